"""Voice, limits, phrase cache and metrics around each context, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gateway.speaking import Allowance, CannotClone, TenantAdmission, Voice, voice_revision
from sessions.context import ContextOptions
from sessions.events import Audio, Cancelled, Done, Event, Failed
from sessions.phrases import unpack
from sessions.principal import Limits, Principal
from sessions.runner import ContextRunner
from sessions.voice_catalogue import About
from sessions.voices import StoredVoice
from telephony.dsp.pcm import decode
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import native_client
from tests.tone import PITCH, RATE, ToneEngine
from tts_core.engine import Samples, VoiceInfo
from tts_core.errors import Draining, Forbidden, LimitExceeded, StoreError, UnknownVoice

ACME = Principal("acme", "k1")


class Said:
    """A context and what came of it."""

    def __init__(
        self,
        gateway: Running,
        principal: Principal = ACME,
        allowance: Allowance | None = None,
        voice: Voice | None = None,
        **options: object,
    ) -> None:
        self.events: list[Event] = []
        made = replace(ContextOptions(voice=voice.id if voice else "tone"), **options)  # type: ignore[arg-type]
        self.runner: ContextRunner = gateway.services.speaking.runner(
            principal=principal,
            allowance=allowance or Allowance(principal),
            dialect="native",
            context_id="c",
            options=made,
            sink=self.sink,
            voice=voice,
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
        assert "VOXWIRE_VOICE_ALIASES" in error.value.message


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


@on_gateway(lambda: ToneEngine(work_s=0.2))
async def test_what_a_tenant_said_cannot_be_told_by_anothers_first_audio_s24(gateway: Running) -> None:
    """In virtual time, so the same to the microsecond and not only in distribution."""
    keeps = replace(ACME, phrase_cache=True)

    async def waits(principal: Principal, text: str) -> float:
        said = Said(gateway, principal, cache=True)
        await said.say(text)
        await asyncio.sleep(0.01)
        return said.runner.context.stats.first_audio

    uncached = await waits(keeps, "Your code is four two.")
    assert uncached >= 0.2
    assert await waits(keeps, "Your code is four two.") < 0.1
    other = replace(keeps, tenant="other")
    for text in ("Your code is four two.", "Your code is one nine."):
        assert await waits(other, text) == pytest.approx(uncached, abs=1e-6)


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


def cloning() -> ToneEngine:
    return ToneEngine(second="other", can_clone=True)


async def made(
    gateway: Running, pitch: float, tenant: str = "acme", session: str | None = None, name: str = ""
) -> str:
    """The id of a new voice that speaks at this pitch."""
    data = await gateway.engine.enroll(ToneEngine.tone(RATE, pitch), RATE)
    revision = voice_revision(gateway.engine.info)
    ttl = 60.0 if session else None
    voice = await gateway.services.voices.put(
        tenant, session, data, ttl, revision=revision, about=About(name=name, language="en-GB")
    )
    return voice.voice_id


@on_gateway(cloning)
async def test_a_tenants_own_voice_is_found_by_the_tenant_alone(gateway: Running) -> None:
    speaking = gateway.services.speaking
    voice_id = await made(gateway, 660)
    voice = await speaking.resolve(ACME, voice_id)
    assert (voice.id, voice.lasting) == (voice_id, True)
    assert isinstance(await Said(gateway, voice=voice).say("One two."), Done)
    (request,) = gateway.engine.requests
    assert gateway.engine.pitch(request.conditioning) == pytest.approx(660, abs=1)
    for principal, name in (
        (Principal("other", "k2"), voice_id),
        (ACME, "vc_" + "0" * 32),
        (ACME, voice_id.upper()),
        (ACME, voice_id[:-1]),
    ):
        with pytest.raises(UnknownVoice):
            await speaking.resolve(principal, name)
    assert await speaking.resolve(ACME, "other") == Voice("other")


@on_gateway(cloning)
async def test_a_sessions_voice_is_that_sessions_alone(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client, native_client(gateway) as stranger:
        here, there = client.hello["session"], stranger.hello["session"]
        local = services.native_sessions[here].principal
        voice_id = await made(gateway, 660, local.tenant, here, "Ada")
        revision, tenant = voice_revision(gateway.engine.info), local.tenant
        services.holds.add(StoredVoice(tenant, voice_id, here, revision, 60.0))
        voice = await services.speaking.resolve(local, voice_id, (here, "c_1"))
        assert (voice.id, voice.lasting) == (voice_id, False)
        for scopes in ((), (there,)):
            with pytest.raises(UnknownVoice):
                await services.speaking.resolve(local, voice_id, scopes)
        kept = await made(gateway, 550, local.tenant, name="Bob")
        names = [(v.id, v.name, kind) for v, kind in await services.speaking.listed(local, (here,))]
        own = {(voice_id, "Ada", "session"), (kept, "Bob", "permanent")}
        assert names[:2] == [("tone", "Tone", "built_in"), ("other", "Other", "built_in")]
        assert set(names[2:]) == own
        assert len(await services.speaking.listed(local)) == 3
        speaker = Principal(local.tenant, "k2")  # without the scope voice:read
        shown = [v.id for v, _ in await services.speaking.listed(speaker, (here,))]
        assert shown == ["tone", "other", voice_id]
        assert [v.id for v, _ in await services.speaking.listed(speaker.narrow(voice=kept))] == [kept]
        assert await services.speaking.listed(ACME) == [(v, "built_in") for v in gateway.engine.info.voices]
        assert [v.id for v, _ in await services.speaking.listed(local.narrow(voice=kept))] == [kept]


@on_gateway(cloning)
async def test_a_token_for_an_own_voice_speaks_with_no_other(gateway: Running) -> None:
    speaking = gateway.services.speaking
    mine, second = await made(gateway, 660), await made(gateway, 550)
    bound = ACME.narrow(voice=mine)
    assert (await speaking.resolve(bound, "")).id == mine
    for name in (second, "tone"):
        with pytest.raises(Forbidden):
            await speaking.resolve(bound, name)


@on_gateway()
async def test_an_engine_that_cannot_clone_says_so(gateway: Running) -> None:
    with pytest.raises(CannotClone) as error:
        await gateway.services.speaking.resolve(ACME, "vc_" + "0" * 32)
    assert (error.value.code, error.value.status) == ("cannot_clone", 409)
    assert await gateway.services.speaking.resolve(ACME, "") == Voice("tone")


@on_gateway(cloning)
async def test_a_voice_deleted_while_it_speaks_ends_at_the_next_segment(gateway: Running) -> None:
    services = gateway.services
    voice_id = await made(gateway, 660)
    said = Said(gateway, voice=await services.speaking.resolve(ACME, voice_id), run_ahead_s=0.5)
    said.runner.text("One two three four five six seven eight nine ten. And more of it. And again more. ")
    await asyncio.sleep(1.0)
    await services.voices.delete("acme", voice_id)
    with pytest.raises(UnknownVoice):
        await services.speaking.resolve(ACME, voice_id)
    await said.runner.wait()
    failed = said.events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.stats.segments) == ("unknown_voice", 1)
    assert sum(e.samples for e in said.events if isinstance(e, Audio)) == pytest.approx(10 * 4800, abs=600)
    assert gateway.idle


@on_gateway(cloning)
async def test_every_tenant_and_voice_has_a_salt_of_its_own(gateway: Running) -> None:
    for principal, options in (
        (ACME, "tone"),
        (ACME, "other"),
        (Principal("rival", "k2"), "tone"),
        (ACME, "tone"),
    ):
        assert isinstance(await Said(gateway, principal, voice=Voice(options)).say("One."), Done)
    salts = [request.salt for request in gateway.engine.requests]
    assert salts[0] == salts[3]
    assert len(set(salts)) == 3
    assert all(len(salt) == 64 for salt in salts)


@on_gateway(cloning)
async def test_phrases_of_own_voices_are_kept_apart_and_go_with_the_voice(gateway: Running) -> None:
    services, cached = gateway.services, replace(ACME, phrase_cache=True)
    first, second = await made(gateway, 660), await made(gateway, 550)
    lapsing = await services.voices.put(
        "acme",
        None,
        await gateway.engine.enroll(ToneEngine.tone(RATE, 770), RATE),
        3600.0,
        revision=voice_revision(gateway.engine.info),
    )

    async def pitch(voice_id: str) -> tuple[float, bool]:
        """At what pitch it was said, and whether it came from the cache."""
        before = len(gateway.engine.requests)
        voice = await services.speaking.resolve(cached, voice_id)
        said = Said(gateway, cached, voice=voice, cache=True)
        assert isinstance(await said.say("One two three four."), Done)
        await asyncio.sleep(1)
        data = b"".join(e.data for e in said.events if isinstance(e, Audio))
        heard = np.abs(np.fft.rfft(np.frombuffer(data, "<i2")))
        return float(np.argmax(heard) * RATE / (len(data) / 2)), len(gateway.engine.requests) == before

    for _ in range(2):
        for voice_id, wanted in ((first, 660), (second, 550), ("tone", PITCH), (lapsing.voice_id, 770)):
            assert (await pitch(voice_id))[0] == pytest.approx(wanted, abs=3)
    assert [(await pitch(v))[1] for v in (first, second, "tone", lapsing.voice_id)] == [
        True,
        True,
        True,
        False,
    ]
    await services.voices.delete("acme", first)
    await asyncio.sleep(1)
    assert services.phrases is not None
    assert services.phrases.hits == 6
    assert {k.voice for k in services.phrases._front} == {"", second}


@on_gateway(cloning)
async def test_without_the_store_the_built_in_voices_are_listed(gateway: Running) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreError

    await made(gateway, 660)
    gateway.services.voices.catalogue.list = away  # type: ignore[method-assign, assignment]
    assert [v.id for v, _ in await gateway.services.speaking.listed(ACME)] == ["tone", "other"]


async def _sound(gateway: Running, principal: Principal, *, cache: bool = False) -> Samples:
    said = Said(gateway, principal, cache=cache)
    assert isinstance(await said.say("One two three four."), Done)
    await asyncio.sleep(1)  # the cache is written meanwhile
    return decode(b"".join(e.data for e in said.events if isinstance(e, Audio)), "pcm_s16le")


@on_gateway(mark=True)
async def test_what_is_spoken_is_marked_anew_each_time_and_the_cache_holds_no_mark(gateway: Running) -> None:
    cached = replace(ACME, phrase_cache=True)
    first, second = [await _sound(gateway, cached, cache=True) for _ in range(2)]
    assert gateway.services.phrases is not None
    assert gateway.services.phrases.hits == 1
    (data, _) = next(iter(gateway.services.phrases._front.values()))
    (name,) = (key.name for key in gateway.services.phrases._front)
    kept = unpack(data, name)
    assert kept is not None
    plain = kept.pcm.astype(np.float32) / 32768
    assert len(first) == len(second) == len(plain)
    for heard in (first, second):
        below = 10 * np.log10(np.sum((heard - plain) ** 2) / np.sum(plain**2))
        assert -35 < below < -15


@on_gateway()
async def test_nothing_is_marked_unless_asked_for(gateway: Running) -> None:
    first, second = [await _sound(gateway, ACME) for _ in range(2)]
    assert np.array_equal(first, second)
    tone = ToneEngine.tone(len(first))
    assert np.abs(first - tone).max() < 1e-4


class Polyglot(ToneEngine):
    """Its first voice speaks German; it may read written text itself."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        voices = (VoiceInfo("de", "De", "de-DE"), VoiceInfo("en", "En", "en-GB"))
        self.info = replace(self.info, voices=voices, **changes)


@on_gateway(Polyglot)
async def test_numbers_are_put_into_words_in_english_alone(gateway: Running) -> None:
    for voice in ("de", "en"):
        await Said(gateway, voice=Voice(voice)).say("It is 21.")
    assert gateway.engine.spoken == ["It is 21.", "It is twenty one."]


@on_gateway(lambda: Polyglot(text_form="written"))
async def test_an_engine_that_reads_numbers_gets_them_as_written(gateway: Running) -> None:
    await Said(gateway, voice=Voice("en")).say("It is 21.")
    assert gateway.engine.spoken == ["It is 21."]
