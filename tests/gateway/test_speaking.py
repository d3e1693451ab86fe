"""Voice, limits, phrase cache and metrics around each context, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from gateway.speaking import Allowance, TenantAdmission
from sessions.context import ContextOptions
from sessions.events import Audio, Cancelled, Done, Event, Failed
from sessions.principal import Limits, Principal
from sessions.runner import ContextRunner
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import Draining, Forbidden, LimitExceeded, UnknownVoice

ACME = Principal("acme", "k1")


class Said:
    """A context and what came of it."""

    def __init__(
        self,
        gateway: Running,
        principal: Principal = ACME,
        allowance: Allowance | None = None,
        **options: object,
    ) -> None:
        self.events: list[Event] = []
        made = replace(ContextOptions(voice="tone"), **options)  # type: ignore[arg-type]
        self.runner: ContextRunner = gateway.services.speaking.runner(
            principal=principal,
            allowance=allowance or Allowance(principal),
            dialect="native",
            context_id="c",
            options=made,
            sink=self.sink,
        )
        self.runner.start()

    async def sink(self, event: Event) -> None:
        self.events.append(event)

    async def say(self, text: str) -> Event:
        self.runner.text(text)
        self.runner.end()
        await self.runner.wait()
        return self.events[-1]


def metric(gateway: Running, name: str, **labels: str) -> float:
    value = gateway.services.metrics.registry.get_sample_value(name, labels)
    return value if value is not None else 0.0


@on_gateway(default_voice="other", voice_aliases={"ada": "tone", "old": "gone", "me": "default"})
async def test_a_voice_by_id_alias_or_default(gateway: Running) -> None:
    speaking = gateway.services.speaking
    wanted = {"": "other", "tone": "tone", "ada": "tone", "default": "other", "me": "other"}
    assert {name: speaking.voice(ACME, name) for name in wanted} == wanted
    for name in ("nobody", "old", "TONE"):
        with pytest.raises(UnknownVoice) as error:
            speaking.voice(ACME, name)
        assert error.value.field == "voice"


@on_gateway(voice_aliases={"*": "other"})
async def test_the_star_takes_every_other_name(gateway: Running) -> None:
    speaking = gateway.services.speaking
    assert speaking.voice(ACME, "anything") == "other"
    assert speaking.voice(ACME, "tone") == "tone"
    assert speaking.voice(ACME, "") == "tone"


@on_gateway(voice_aliases={"ada": "other"})
async def test_a_caller_bound_to_a_voice_gets_no_other(gateway: Running) -> None:
    speaking = gateway.services.speaking
    for bound in (ACME.narrow(voice="other"), ACME.narrow(voice="ada")):
        assert [speaking.voice(bound, name) for name in ("", "other", "ada")] == ["other"] * 3
        assert [v.id for v in speaking.voices(bound)] == ["other"]
        with pytest.raises(Forbidden):
            speaking.voice(bound, "tone")
    gone = ACME.narrow(voice="gone")
    assert speaking.voices(gone) == []
    with pytest.raises(UnknownVoice):
        speaking.voice(gone, "")
    assert [v.id for v in speaking.voices(ACME)] == ["tone", "other"]


@on_gateway()
async def test_a_context_is_spoken_counted_and_forgotten(gateway: Running) -> None:
    said = Said(gateway)
    assert gateway.services.in_flight.count == 1
    assert len(gateway.services.playing) == 1
    assert isinstance(await said.say("One two three."), Done)
    assert sum(e.samples for e in said.events if isinstance(e, Audio)) == 3 * 4800
    assert gateway.idle
    labels = {"dialect": "native", "outcome": "done"}
    assert metric(gateway, "voxwire_contexts_total", **labels) == 1


@on_gateway()
async def test_a_tokens_allowance_is_shared_by_its_contexts(gateway: Running) -> None:
    token = ACME.narrow(max_characters=20)
    allowance = Allowance(token)
    assert isinstance(await Said(gateway, token, allowance).say("Fifteen is it."), Done)
    failed = await Said(gateway, token, allowance).say("Too much.")
    assert isinstance(failed, Failed)
    assert failed.error.code == "limit_exceeded"
    assert isinstance(await Said(gateway, token, allowance).say("Six ok"), Done)  # what is left may be used
    assert isinstance(await Said(gateway, ACME).say("No limit for the key. " * 10), Done)
    assert gateway.idle


@on_gateway()
async def test_the_keys_contexts_and_rates_are_kept(gateway: Running) -> None:
    one = Principal("acme", "k2", limits=Limits(contexts=1))
    first = Said(gateway, one)
    first.runner.text("One two three. ")
    first.runner.flush()
    await asyncio.sleep(0.1)
    second = await Said(gateway, one).say("Late.")
    assert isinstance(second, Failed)
    assert (second.error.code, second.error.status) == ("limit_exceeded", 429)
    assert second.error.retry_after
    assert isinstance(await first.runner.cancel(), Cancelled)
    assert isinstance(await Said(gateway, one).say("Now."), Done)
    slow = Principal("acme", "k3", limits=Limits(characters_per_minute=30, requests_per_minute=2))
    assert isinstance(await Said(gateway, slow).say("Twenty-five characters ok."), Done)
    assert isinstance(failed := await Said(gateway, slow).say("One more sentence."), Failed)
    assert failed.error.code == "limit_exceeded"
    assert gateway.idle


@on_gateway()
async def test_a_context_counts_as_one_request_however_many_segments(gateway: Running) -> None:
    one = Principal("acme", "k4", limits=Limits(requests_per_minute=1))
    assert isinstance(await Said(gateway, one).say("One two. Three four. Five six."), Done)
    assert isinstance(await Said(gateway, one).say("One."), Failed)


@on_gateway()
async def test_leaving_twice_gives_one_place_back(gateway: Running) -> None:
    services = gateway.services
    first, second = (TenantAdmission(services, ACME, Allowance(ACME)) for _ in range(2))
    await first.enter()
    await second.enter()
    first.leave()
    first.leave()
    assert services.limits.active == 1
    second.leave()
    assert services.limits.active == 0


@on_gateway()
async def test_phrases_are_cached_for_those_who_ask(gateway: Running) -> None:
    keeps = replace(ACME, phrase_cache=True)
    for principal, cache, engine in (
        (keeps, True, 1),  # spoken
        (keeps, True, 1),  # kept
        (keeps, False, 2),  # this context did not ask
        (ACME, True, 3),  # this key did not ask
        (replace(keeps, tenant="other"), True, 4),  # and tenants share nothing
    ):
        await Said(gateway, principal, cache=cache).say("Welcome back.")
        await asyncio.sleep(0.01)
        assert len(gateway.engine.requests) == engine


@on_gateway(phrase_bytes=0)
async def test_without_a_cache_all_is_spoken(gateway: Running) -> None:
    for _ in range(2):
        await Said(gateway, replace(ACME, phrase_cache=True), cache=True).say("Welcome back.")
    assert len(gateway.engine.requests) == 2


@on_gateway()
async def test_no_context_begins_while_the_gateway_drains(gateway: Running) -> None:
    gateway.services.draining.set()
    with pytest.raises(Draining) as error:
        Said(gateway)
    assert error.value.retry_after
    gateway.services.draining.clear()


@on_gateway(lambda: ToneEngine(work_s=0.5))
async def test_a_dry_listener_is_counted_and_logged(gateway: Running) -> None:
    class Lines(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record)

    lines = Lines()
    log = logging.getLogger("gateway.speaking")
    log.addHandler(lines)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        done = await Said(gateway).say("Hello there friend. And then some more text.")
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
    assert isinstance(done, Done)
    assert done.stats.underruns >= 1
    said = [record.getMessage() for record in lines.lines]
    assert "listener ran dry" in said
    ended = lines.lines[-1]
    assert (ended.getMessage(), ended.__dict__["outcome"]) == ("context ended", "done")
    assert "text" not in ended.__dict__  # no spoken text unless it is asked for


def test_an_allowance_counts_down_and_refuses_the_whole() -> None:
    allowance = Allowance(ACME.narrow(max_characters=10))
    allowance.take(6)
    with pytest.raises(LimitExceeded):
        allowance.take(5)
    allowance.take(4)
    with pytest.raises(LimitExceeded):
        allowance.take(1)
    Allowance(ACME).take(10**9)
