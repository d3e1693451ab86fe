"""Two gateways over one real Redis: voices are made here and used there, and gone everywhere at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.clips import clip
from tests.peers.gateway import Running, open_gateway
from tests.peers.native import native_client
from tests.peers.redis import RedisServer
from tests.peers.rest import Refused, voice_client
from tests.tone import ToneEngine

KEY = "acme-key-0123456789"
RIVAL = "rival-key-0123456789"
SCOPES = "speak+voice:read+voice:enrol+voice:delete"
HEADERS = {"X-API-Key": KEY}
TEXT = "One two three four five six seven eight. "
CANARY = "CanaryNameOfSomebody"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def gateways(redis: RedisServer, folder: Path, **engine: Any) -> AsyncIterator[tuple[Running, Running]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [
            await open_gateway(
                stack,
                folder / f"data{i}",
                engine=ToneEngine(can_clone=True, **engine),
                redis_url=redis.url,
                secret="s" * 40,
                api_keys=f"acme[{SCOPES}]:{KEY},rival[{SCOPES}]:{RIVAL}",
            )
            for i in range(2)
        ]
        yield made[0], made[1]


async def test_a_voice_made_here_speaks_there_and_is_gone_everywhere(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        gateways(redis, tmp_path, word_s=0.3) as (here, there),
        voice_client(here.url, KEY) as acme,
        native_client(there, headers=HEADERS) as caller,
    ):
        voice = (await acme.enrol(clip(660)))["id"]
        await caller.send("open", "a", voice=voice, text=TEXT, end=True)
        (turn,) = await caller.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        assert there.engine.pitch(there.engine.requests[0].conditioning) == pytest.approx(660, abs=1)
        assert there.engine.enrolled == 0
        await caller.send("open", "b", voice=voice, text=TEXT * 5, end=True, run_ahead_ms=300)
        await caller.audio("b", 0.1)
        receipt = (await acme.delete(voice))["receipt"]
        assert (receipt["answered"], receipt["expected"]) == (2, 2)
        assert sum(node["copies"] for node in receipt["nodes"]) >= 1
        (turn,) = await caller.ended("b")
        assert turn.end is not None
        assert turn.end["code"] == "unknown_voice"
        assert turn.seconds < 4
        with redis.client() as client:
            assert [k for k in client.keys("*") if voice.encode() in k] == []


async def test_what_redis_holds_tells_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        gateways(redis, tmp_path) as (here, _),
        voice_client(here.url, KEY) as acme,
        native_client(here, headers=HEADERS) as caller,
    ):
        session = caller.hello["session"]
        clips = [clip(660), clip(550)]
        permanent = (await acme.enrol(clips[0], name=CANARY))["id"]
        own = (await acme.enrol(clips[1], name=CANARY, session=session))["id"]
        secrets = [CANARY.encode(), session.encode()]
        for voice in (permanent, own):
            data = await here.services.voices.conditioning("acme", voice, session=session, revision="tone 1")
            secrets += [data[:64], data[1000:1064]]
        secrets += [piece[at : at + 64] for piece in clips for at in (44, 30_000, 60_000)]
        with redis.client() as client:
            dump = b"".join(client.dump(k) + k for k in client.keys("*"))
        assert len(dump) > 2 * 16_384
        assert [s for s in secrets if s in dump] == []
        await caller.send("bye")
        await caller.close_code()
        async with asyncio.timeout(5):
            with redis.client() as client:
                while any(own.encode() in k for k in client.keys("*")):
                    await asyncio.sleep(0.01)
                assert any(permanent.encode() in k for k in client.keys("*"))


async def test_a_session_is_known_to_its_own_gateway_alone(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        gateways(redis, tmp_path) as (here, there),
        voice_client(there.url, KEY) as acme,
        native_client(here, headers=HEADERS) as caller,
    ):
        consent = await acme.consent()
        with pytest.raises(Refused) as refused:
            await acme.enrol(consent=consent, session=caller.hello["session"])
        assert refused.value.code == "unknown_session"
        assert there.engine.enrolled == 0


async def test_the_same_clip_on_two_gateways_is_computed_once(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        gateways(redis, tmp_path, enrol_s=0.3) as (here, there),
        voice_client(here.url, KEY) as one,
        voice_client(there.url, KEY) as two,
        voice_client(there.url, RIVAL) as rival,
    ):
        consent = await one.consent()
        made = await asyncio.gather(one.enrol(consent=consent), two.enrol(consent=consent), rival.enrol())
        assert len({m["id"] for m in made}) == 3
        assert sorted(m["reused"] for m in made[:2]) == [False, True]
        assert made[2]["reused"] is False  # nobody profits from another tenant's
        assert here.engine.enrolled + there.engine.enrolled == 2


async def test_without_redis_a_running_turn_goes_on_and_nothing_is_made(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        gateways(redis, tmp_path, word_s=0.2) as (here, _),
        voice_client(here.url, KEY) as acme,
        native_client(here, headers=HEADERS) as caller,
    ):
        consent = await acme.consent()
        voice = (await acme.enrol(consent=consent))["id"]
        await caller.send("open", "a", voice=voice, text=TEXT * 3, end=True, run_ahead_ms=300)
        await caller.audio("a", 0.1)
        redis.kill()
        (turn,) = await caller.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        assert len(here.engine.requests) == 3
        assert len({r.conditioning for r in here.engine.requests}) == 1
        await caller.send("open", "b", voice=voice, text="One.", end=True)  # opened here a moment ago
        (turn,) = await caller.ended("b")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        for attempt in (acme.enrol(consent=consent), acme.delete(voice)):
            with pytest.raises(Refused) as refused:
                await attempt
            assert (refused.value.status, refused.value.code) == (503, "store_unavailable")
        assert here.engine.enrolled == 1
        redis.start()
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(Refused):
                    await acme.enrol()  # an emptied store knows neither voice nor consent
                    break
                await asyncio.sleep(0.05)


async def test_nobodys_name_stands_in_a_log(
    redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with gateways(redis, tmp_path) as (here, _), voice_client(here.url, KEY) as acme:
        consent = await acme.consent(subject="canary-subject", evidence="", statement=f"I am {CANARY}")
        made = await acme.enrol(consent=consent, name=CANARY)
        for bad in (clip(noise_db=-12), b"RIFF" + CANARY.encode() * 50):
            with pytest.raises(Refused):
                await acme.enrol(bad, consent=consent, name=CANARY)
        await acme.delete(made["id"])
        metrics = here.services.metrics.text().decode()
    told = "\n".join([metrics, *(str(record.__dict__) for record in caplog.records)])
    assert len(caplog.records) >= 5
    for word in (CANARY, "canary-subject", KEY):
        assert word not in told
