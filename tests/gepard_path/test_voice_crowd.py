"""Isolation, by the whole path: 32 sessions at once, each with its own voice, all heard as they are alone.

The gateway is the real application with the real engine, inside the test for two reasons: the tiny model on
the processors of a test is not fast enough for the scheduler to promise 32 streams continuity (which is not
the question here), and what the engine keeps of a voice can be counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from telephony.dsp.pcm import decode
from tests.gepard_path.conftest import GREEDY
from tests.peers.clips import clip
from tests.peers.gateway import Running, open_gateway
from tests.peers.native import NativeClient, native_client
from tests.peers.redis import RedisServer
from tests.peers.rest import voice_client
from tests.tone import ToneEngine
from tts_core.engine import Capacity, Samples
from tts_core.gepard.engine import GepardEngine, GepardTorchEngine
from tts_core.nanocodec import fsq

CROWD = 32
FORMAT = {"encoding": "pcm_f32le", "sample_rate": fsq.SAMPLE_RATE}
CLOSE = 1e-5
"""The decoder sums in another order when it is fed in other pieces."""
LIMIT_S = 480.0


class Promising:
    """An engine that is said to be fast enough for everybody."""

    def capacity(self) -> Capacity:
        """Everything as it is, but for the speed."""
        return replace(super().capacity(), xrt=1000.0)  # type: ignore[misc]


class OnTorch(Promising, GepardTorchEngine):
    """The plain loop."""


class OnVllm(Promising, GepardEngine):
    """vLLM."""


def on_torch(model: Path) -> GepardTorchEngine:
    return OnTorch(checkpoint=str(model), streams=CROWD)


def on_vllm(model: Path) -> GepardEngine:
    return OnVllm(checkpoint=str(model), streams=CROWD, dtype="float32", compiled=False)


async def say(caller: NativeClient, context: str, voice: str, i: int) -> Samples:
    text = f"Caller {i + 15}."  # up to 46, of which most are spoken as two words
    await caller.send("open", context, voice=voice, text=text, end=True, seed=1000 + i, format=FORMAT)
    (turn,) = await caller.ended(context)
    assert turn.end is not None
    assert turn.end["type"] == "done", turn.end
    assert turn.end["total_samples"] == turn.samples
    return decode(bytes(turn.audio), "pcm_f32le")


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("make", [on_torch, pytest.param(on_vllm, marks=pytest.mark.slow)])
async def test_each_of_many_sessions_is_heard_as_it_is_alone(
    make: Callable[[Path], Any], model: Path, tmp_path: Path
) -> None:
    redis = RedisServer(tmp_path)
    redis.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(redis.kill)
        await stack.enter_async_context(asyncio.timeout(LIMIT_S))
        engine = make(model)
        gateway = await open_gateway(
            stack,
            tmp_path / "data",
            engine=cast("ToneEngine", engine),
            redis_url=redis.url,
            secret="s" * 40,
            mark=GREEDY["mark"] != "off",
        )
        await at_once(stack, gateway, engine, redis)


async def at_once(
    stack: contextlib.AsyncExitStack, gateway: Running, engine: Any, redis: RedisServer
) -> None:
    rest = await stack.enter_async_context(voice_client(gateway.url, "any"))
    callers = [await stack.enter_async_context(native_client(gateway)) for _ in range(CROWD)]
    consent = await rest.consent()
    voices: list[str] = []
    for i, caller in enumerate(callers):
        made = await rest.enrol(clip(250 + 15 * i, 3.5), consent=consent, session=caller.hello["session"])
        voices.append(made["id"])
    kept = len(engine._prefixes)
    solo = [await say(c, "solo", v, i) for i, (c, v) in enumerate(zip(callers, voices, strict=True))]
    assert len(engine._prefixes) == kept + CROWD
    crowd = await asyncio.gather(
        *(say(c, "crowd", v, i) for i, (c, v) in enumerate(zip(callers, voices, strict=True)))
    )
    assert len({audio.tobytes() for audio in solo}) == CROWD
    for i, (alone, among) in enumerate(zip(solo, crowd, strict=True)):
        assert len(among) == len(alone) > 0, i
        assert np.abs(among - alone).max() <= CLOSE, i
    assert sum(map(len, solo)) > 10 * CROWD * fsq.SAMPLES_PER_FRAME
    assert engine.events()["crashes"] == 0
    # A seed and a voice of another session make something else of the same text.
    stranger = await say(callers[1], "seed", voices[1], 0)
    assert stranger.tobytes() != solo[0].tobytes()
    # Nobody else's voice can be used, and what was kept of them all ends with the sessions.
    await callers[0].send("open", "theirs", voice=voices[1], text="One.", end=True)
    assert (await callers[0].until("error", "theirs"))["code"] == "unknown_voice"
    await until(lambda: engine.capacity().free == CROWD)
    for caller in callers:
        await caller.send("bye")
        await caller.close_code()
    await until(lambda: len(gateway.services.holds) == 0)
    assert len(engine._prefixes) == kept
    with redis.client() as client:
        assert [k for k in client.keys("*") for v in voices if v.encode() in k] == []
