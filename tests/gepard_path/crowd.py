"""Many voices at once on one engine over vLLM, each against its own solo run; run with CHECKPOINT OUT.

A process of its own, as vLLM keeps state in its process. Facts go to OUT as JSON; the test judges them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.engine import Engine, Samples, SpeechRequest
from tts_core.gepard.engine import GepardEngine

CROWD = 32


def requests(engine: Engine) -> list[SpeechRequest]:
    """Each with a voice, a text and a seed of its own."""
    generator = np.random.default_rng(3)
    shape = (8, engine.info.voice_bytes // 16)
    return [
        SpeechRequest(
            id=f"s{i}/0",
            text=f"Caller {i}.",
            voice=f"vc_{i}",
            conditioning=generator.standard_normal(shape).astype("<f2").tobytes(),
            salt=f"salt {i}",
            seed=1000 + i,
        )
        for i in range(CROWD)
    ]


async def say(engine: Engine, request: SpeechRequest) -> Samples:
    """The whole of a request's audio."""
    return np.concatenate([chunk.pcm async for chunk in engine.synthesize(request)])


async def run(checkpoint: str) -> dict[str, Any]:
    """Put an engine through it."""
    engine = GepardEngine(checkpoint=checkpoint, dtype="float32", streams=CROWD, compiled=False)
    await engine.start()
    facts: dict[str, Any] = {"xrt": engine.capacity().xrt}
    try:
        asked = requests(engine)
        solo = [await say(engine, request) for request in asked]
        crowd = await asyncio.gather(*(say(engine, request) for request in asked))
        pairs = list(zip(solo, crowd, strict=True))
        facts["frames"] = [len(audio) / 1024 for audio in solo]
        facts["different"] = len({audio.tobytes() for audio in solo})
        facts["equal"] = [len(a) == len(b) and bool(np.allclose(a, b, atol=1e-5)) for a, b in pairs]
        facts["events"] = engine.events()
        facts["free"] = engine.capacity().free
    finally:
        await engine.close()
    return facts


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(run(sys.argv[1]))))
