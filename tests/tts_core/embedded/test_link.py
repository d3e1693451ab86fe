from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.child.cases import exists
from tts_core.child.frames import numbers
from tts_core.embedded import link as link_module
from tts_core.embedded import wire
from tts_core.embedded.link import PROGRAM, open_link
from tts_core.embedded.trim import Trim
from tts_core.embedded.voices import available
from tts_core.errors import EngineError


def configuration(path: Path | None = None) -> wire.Configure:
    voice, real = available("")[0]
    file = wire.VoiceFile(voice.id, str(path or real), voice.sha256, False)
    return wire.Configure((file,), Trim(), 1.0)


def test_a_worker_has_one_thread_and_asks_nobody_for_models() -> None:
    env = PROGRAM.environment()
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["OMP_NUM_THREADS"] == "1"


async def test_a_worker_speaks_until_it_is_ended() -> None:
    got: asyncio.Queue[tuple[wire.Message, memoryview]] = asyncio.Queue()
    gone = asyncio.Event()
    link = open_link(lambda message, payload: got.put_nowait((message, payload)), gone.set)
    ready = await link.start(configuration())
    assert ready.audio_s > 0
    link.send(wire.Speak(1, "Hello.", "heart", 1.0, None))
    async with asyncio.timeout(30):
        frames = [await got.get()]
        while not isinstance(frames[-1][0], wire.Done):
            frames.append(await got.get())
        link.kill()
        await gone.wait()
    await link.close()
    *blocks, (done, _) = frames
    assert isinstance(done, wire.Done)
    assert sum(len(numbers(pcm, np.float32)) for _, pcm in blocks) == pytest.approx(done.audio_s * 24_000)


async def test_a_worker_that_cannot_load_says_why_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"x")
    link = open_link(lambda message, payload: None, lambda: None)
    with pytest.raises(EngineError, match="not the released one"):
        await link.start(configuration(tmp_path / "m"))
    assert link.pid is not None
    assert not exists(link.pid)


async def test_a_worker_that_dies_at_the_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "PROGRAM", replace(PROGRAM, entry="tests.tts_core.child.programs:dies"))
    with pytest.raises(EngineError, match="a worker of the built-in voice died while it started"):
        await open_link(lambda message, payload: None, lambda: None).start(configuration())
