"""A voice made of a recording: it speaks as the model would, ends with its session, and outlives a Redis."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import numpy as np
import pytest

from sessions.voices import LEASE_S
from telephony.dsp.pcm import decode
from tests.gepard_path.conftest import ModelGateway
from tests.gepard_path.oracle import SHORT, spoken, voice
from tests.peers.clips import clip
from tests.peers.gateway import Running
from tests.peers.native import NativeClient, Turn, native_client
from tests.peers.rest import Refused, VoiceClient, voice_client
from tts_core.engine import Samples

FORMAT = {"encoding": "pcm_f32le", "sample_rate": 22050}
KEY = "any"
SECOND = "The line is busy now."
LIMIT_S = 90.0
RECORDINGS = (clip(440), clip(770))


def caller_of(gateway: ModelGateway) -> Any:
    return native_client(cast("Running", gateway))


async def say(caller: NativeClient, context: str, voice_id: str, text: str) -> Turn:
    await caller.send("open", context, voice=voice_id, text=text, end=True, seed=5, format=FORMAT)
    (turn,) = await caller.ended(context)
    assert turn.end is not None
    assert turn.end["type"] == "done", turn.end
    assert turn.end["total_samples"] == turn.samples
    return turn


def samples(turn: Turn) -> Samples:
    return decode(bytes(turn.audio), "pcm_f32le")


def alike(heard: Samples, wanted: Samples) -> bool:
    """The same number of samples, and the same sound."""
    return heard.shape == wanted.shape and bool(np.linalg.norm(heard - wanted) < 0.1 * np.linalg.norm(wanted))


def kept(gateway: ModelGateway, voice_id: str) -> dict[bytes, float]:
    """The keys in Redis that bear a voice's id, and the seconds that each has left."""
    with gateway.redis.client() as client:
        return {k: client.pttl(k) / 1000 for k in client.keys("*") if voice_id.encode() in k}


async def refused(rest: VoiceClient, **fields: str) -> Refused:
    with pytest.raises(Refused) as caught:
        await rest.enrol(RECORDINGS[1], **fields)
    return caught.value


async def test_a_sessions_voice_speaks_and_is_gone_with_it(gateway: ModelGateway, model: Any) -> None:
    wanted = spoken(model, SHORT, await voice(model, RECORDINGS[0]))
    async with asyncio.timeout(LIMIT_S), voice_client(gateway.url, KEY) as rest:
        async with caller_of(gateway) as caller:
            session = caller.hello["session"]
            made = await rest.enrol(RECORDINGS[0], session=session)
            assert (made["kind"], made["session"]) == ("session", session)
            own = await say(caller, "own", made["id"], SHORT)
            nobody = await say(caller, "nobody", "default", SHORT)
            assert alike(samples(own), wanted)
            assert alike(samples(nobody), spoken(model, SHORT))
            assert own.samples != nobody.samples
            before = kept(gateway, made["id"])
            assert len(before) >= 2
            assert all(0 < left <= LEASE_S for left in before.values())
            dropped = time.monotonic()
            caller.drop()
        while kept(gateway, made["id"]):
            await asyncio.sleep(0.01)
        # It was destroyed, and has not merely lapsed.
        assert time.monotonic() - dropped < min(before.values()) - 5
        assert made["id"] not in await rest.listed(f"?session={session}")
        async with caller_of(gateway) as caller:
            await caller.send("open", "late", voice=made["id"], text=SHORT, end=True)
            error = await caller.until("error", "late")
            assert (error["code"], error["terminal"]) == ("unknown_voice", True)
        assert (await refused(rest, session=session)).code == "unknown_session"


async def test_a_voice_speaks_on_when_redis_is_killed_and_others_are_made_later(
    gateway: ModelGateway, model: Any
) -> None:
    text = f"{SHORT} {SECOND} {SHORT}"
    first, second = [await voice(model, recording) for recording in RECORDINGS]
    async with (
        asyncio.timeout(LIMIT_S),
        voice_client(gateway.url, KEY) as rest,
        caller_of(gateway) as caller,
    ):
        session = caller.hello["session"]
        consent = await rest.consent()
        own = (await rest.enrol(RECORDINGS[0], consent=consent, session=session))["id"]
        undisturbed = samples(await say(caller, "undisturbed", own, text))
        assert alike(undisturbed[: len(spoken(model, SHORT, first))], spoken(model, SHORT, first))
        # Given out as it is heard, so that most of it is still to be spoken when the store goes.
        await caller.send(
            "open", "a", voice=own, text=text, end=True, seed=5, format=FORMAT, run_ahead_ms=300
        )
        turn = await caller.audio("a", 0.5)
        gateway.redis.kill()
        assert turn.samples < len(undisturbed) / 2
        try:
            error = await refused(rest, consent=consent, session=session)
            assert (error.status, error.code) == (503, "store_unavailable")
            await caller.ended("a")
            assert turn.end is not None
            assert turn.end["type"] == "done", turn.end
            assert alike(samples(turn), undisturbed)
        finally:
            gateway.redis.start()
        while True:
            try:
                other = (await rest.enrol(RECORDINGS[1], session=session))["id"]
                break
            except Refused as error:
                assert error.code == "store_unavailable"
                await asyncio.sleep(0.05)
        assert kept(gateway, other)
        assert alike(samples(await say(caller, "other", other, SHORT)), spoken(model, SHORT, second))
