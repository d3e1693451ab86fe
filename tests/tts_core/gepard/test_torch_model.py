"""The plain loop in its process gives the frames of the plain loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tts_core.gepard.cases import joined, prefix_of, random_codes, request
from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameModel, FrameRequest
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.torch_model import TorchModel


async def speak(model: FrameModel, asked: FrameRequest) -> tuple[bytes, str]:
    codes, _, finish = joined([batch async for batch in model.generate(asked)])
    return codes.tobytes(), finish


async def test_same_frames_as_the_loop(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    """Nine requests in four turns, of every kind, each as if alone."""
    served = TorchModel(checkpoint, threads=1)
    await served.start()
    try:
        await _compare(checkpoint, model, served)
    finally:
        await served.close()


async def _compare(checkpoint: Checkpoint, model: ReferenceModel, served: TorchModel) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 0.7, "seed": 5},
        {"prefix": prefix_of(checkpoint, 1), "repetition_penalty": 1.3},
        {"cfg_scale": 2.0, "cfg_frames": 5},
        {"context": random_codes(4), "max_frames": 9},
        {"text": "No.", "temperature": 1.0, "top_k": 3},
        {"max_frames": 1},
        {"stop_threshold": 0.0},
        {"text": "It was sent on Monday."},
    ]
    asked = [request(checkpoint, name=str(n), **kind) for n, kind in enumerate(kinds)]
    before = await served.stats()
    together = await asyncio.gather(*(speak(served, each) for each in asked))
    for each, (codes, finish) in zip(asked, together, strict=True):
        alone, _, end = joined(model.frames(each))
        assert (codes, finish) == (alone.tobytes(), end)
    stats = await served.stats()
    assert stats["frames"] - before["frames"] == sum(len(codes) // 32 for codes, _ in together)
    assert stats["requests"] - before["requests"] == 9
    assert stats["busy_s"] > before["busy_s"] and stats["crashes"] == before["crashes"]
    assert served.running == 0 and served.alive and served.slots == 4


def test_a_number_type_that_is_none(checkpoint: Checkpoint) -> None:
    with pytest.raises(SettingsError):
        TorchModel(checkpoint, dtype="int8")
