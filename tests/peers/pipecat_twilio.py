"""Measures pipecat's Twilio serializer on 20 ms frames; runs in pipecat's own environment.

``python pipecat_twilio.py RATE...`` prints one JSON object: the version, and per rate the milliseconds of
audio withheld after each feed (mean, least, most), and the CPU microseconds of one frame, for the whole
``serialize`` and for its resampling and companding alone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from loguru import logger
from pipecat.audio.utils import create_stream_resampler, pcm_to_ulaw
from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.serializers.twilio import TwilioFrameSerializer

FRAMES = 1000
OUT_RATE = 8000


def serializer() -> TwilioFrameSerializer:
    params = TwilioFrameSerializer.InputParams(auto_hang_up=False)
    return TwilioFrameSerializer(stream_sid="MZ0", params=params)


def chunks(rate: int) -> list[bytes]:
    """20 ms frames of int16 noise at -14 dBFS or so."""
    source = random.Random(0)
    return [
        b"".join(int(source.gauss(0, 6000)).to_bytes(2, "little", signed=True) for _ in range(rate // 50))
        for _ in range(50)
    ]


async def lags(rate: int) -> list[float]:
    """Milliseconds fed and not yet given, after each feed."""
    peer, audio = serializer(), chunks(rate)
    given, held = 0, []
    for k in range(FRAMES):
        message = await peer.serialize(OutputAudioRawFrame(audio[k % len(audio)], rate, 1))
        if message:
            given += len(base64.b64decode(json.loads(message)["media"]["payload"]))
        held.append((k + 1) * 20 - given * 1000 / OUT_RATE)
    return held


async def cost(step: Callable[[bytes], Awaitable[object]], audio: list[bytes]) -> float:
    """CPU microseconds of one frame: the best of several rounds."""
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        for k in range(FRAMES):
            await step(audio[k % len(audio)])
        best = min(best, time.process_time() - start)
    return best / FRAMES * 1e6


async def measure(rate: int) -> dict[str, Any]:
    held = await lags(rate)
    peer, resampler = serializer(), create_stream_resampler()
    audio = chunks(rate)
    return {
        "lag_ms": [sum(held) / len(held), min(held), max(held)],
        "serialize_us": await cost(lambda pcm: peer.serialize(OutputAudioRawFrame(pcm, rate, 1)), audio),
        "resample_us": await cost(lambda pcm: pcm_to_ulaw(pcm, rate, OUT_RATE, resampler), audio),
    }


async def main() -> None:
    logger.remove()
    rates = {rate: await measure(int(rate)) for rate in sys.argv[1:]}
    print(json.dumps({"version": version("pipecat-ai"), "rates": rates}))


if __name__ == "__main__":
    asyncio.run(main())
