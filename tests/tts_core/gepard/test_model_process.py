"""A model in its process, the plain one: cancels, crashes, limits."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.tts_core.gepard.cases import joined, random_codes, request
from tts_core.errors import (
    BadRequest,
    Busy,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    SettingsError,
    TextTooLong,
    VoxwireError,
)
from tts_core.gepard import model_process
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameBatch, FrameModel, FrameRequest
from tts_core.gepard.model_process import Limits
from tts_core.gepard.torch_model import TorchModel

LONG: dict[str, Any] = {"max_frames": 2000, "stop_threshold": 1.0}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(checkpoint: Checkpoint) -> AsyncIterator[TorchModel]:
    """One for all: a worker takes seconds to import torch."""
    model = TorchModel(checkpoint, threads=1)
    await model.start()
    yield model
    await model.close()


async def speak(model: FrameModel, asked: FrameRequest) -> tuple[bytes, str]:
    codes, _, finish = joined([batch async for batch in model.generate(asked)])
    return codes.tobytes(), finish


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_slow_reader_gets_several_frames_at_once(checkpoint: Checkpoint, served: TorchModel) -> None:
    async with aclosing(served.generate(request(checkpoint, max_frames=30, stop_threshold=1.0))) as batches:
        first = await anext(batches)
        # Another request, behind it in the turns, is over only when this one is.
        await speak(served, request(checkpoint, max_frames=30, stop_threshold=1.0))
        rest = [batch async for batch in batches]
    assert len(rest) < 29 - len(first.codes)
    assert sum(len(batch.codes) for batch in (first, *rest)) == 30


async def test_closing_frees_the_turn_within_a_step(checkpoint: Checkpoint, served: TorchModel) -> None:
    streams = [served.generate(request(checkpoint, **LONG)) for _ in range(served.slots)]
    for stream in streams:
        await anext(stream)
    assert served.running == served.slots
    for stream in streams:
        await stream.aclose()
    assert served.running == 0
    # Once this is answered the worker has read the cancels, which were sent before it.
    await speak(served, request(checkpoint, max_frames=1))
    before = (await served.stats())["frames"]
    await speak(served, request(checkpoint, max_frames=50, stop_threshold=1.0))
    assert (await served.stats())["frames"] - before == 50


async def test_a_cancelled_task_frees_its_turn(checkpoint: Checkpoint, served: TorchModel) -> None:
    task = asyncio.create_task(speak(served, request(checkpoint, **LONG)))
    await until(lambda: served.running == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert served.running == 0
    assert (await speak(served, request(checkpoint, max_frames=1)))[1] == "length"


async def test_a_crash_fails_what_runs_and_a_start_mends_it(
    checkpoint: Checkpoint, served: TorchModel
) -> None:
    want = await speak(served, request(checkpoint))
    crashes = (await served.stats())["crashes"]
    stream = served.generate(request(checkpoint, **LONG))
    await anext(stream)
    asked = asyncio.create_task(served.ask("nothing"))
    pid = served.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        async for _ in stream:
            pass
    with pytest.raises(EngineError):
        await asked
    now = served.pid, served.running, served.alive
    assert now == (None, 0, False)
    for refused in (speak(served, request(checkpoint)), served.ask("nothing")):
        with pytest.raises(EngineCrashed, match="not running"):
            await refused
    await served.start()
    assert await speak(served, request(checkpoint)) == want
    assert served.pid not in (None, pid)
    assert (await served.stats())["crashes"] == crashes + 1


async def test_a_start_after_a_death_may_fail(directory: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    opened = Checkpoint.open(copy)
    served = TorchModel(opened, threads=1)
    await served.start()
    stream = served.generate(request(opened, **LONG))
    try:
        await anext(stream)
        (copy / "model.safetensors").write_bytes(b"")
        assert served.pid is not None
        os.kill(served.pid, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            async for _ in stream:
                pass
        with pytest.raises(VoxwireError):
            await served.start()
        assert not served.alive
        with pytest.raises(EngineCrashed, match="not running"):
            await speak(served, request(opened))
    finally:
        await served.close()


async def test_a_worker_that_gives_nothing_is_killed(checkpoint: Checkpoint) -> None:
    served = TorchModel(checkpoint, threads=1, limits=Limits(60.0, 60.0, 0.3))
    await served.start()
    try:
        assert served.pid is not None
        os.kill(served.pid, signal.SIGSTOP)
        with pytest.raises(EngineCrashed):
            await speak(served, request(checkpoint))
        assert not served.alive
    finally:
        await served.close()


async def test_a_wait_that_is_too_long(checkpoint: Checkpoint) -> None:
    served = TorchModel(checkpoint, threads=1, limits=Limits(0.2, 0.2, 60.0))
    await served.start()
    try:
        assert served.pid is not None
        os.kill(served.pid, signal.SIGSTOP)
        with pytest.raises(EngineTimeout):
            await speak(served, request(checkpoint))
        with pytest.raises(EngineTimeout):
            await served.ask("nothing")
        assert served.running == 0
    finally:
        await served.close()


async def test_a_question_that_the_model_does_not_know(served: TorchModel) -> None:
    with pytest.raises(EngineError, match="no method"):
        await served.ask("nothing", 1, b"x")
    await served.forget("a fingerprint")
    assert served.alive


async def test_a_model_that_does_not_run_has_nothing_to_forget(checkpoint: Checkpoint) -> None:
    await TorchModel(checkpoint, slots=1, waiting=1, threads=1).forget("a fingerprint")


async def test_too_many_wait(checkpoint: Checkpoint) -> None:
    served = TorchModel(checkpoint, slots=1, waiting=1, threads=1)
    await served.start()
    try:
        tasks = [asyncio.create_task(speak(served, request(checkpoint, **LONG))) for _ in range(2)]
        await until(lambda: served.running == 2)
        with pytest.raises(Busy) as caught:
            await speak(served, request(checkpoint))
        assert caught.value.retry_after
        stats = await served.stats()
        assert (stats["running"], stats["waiting"]) == (1, 1)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        assert served.running == 1
    finally:
        await served.close()
    assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[0], EngineError)


async def test_requests_that_do_not_fit_never_reach_the_worker(
    checkpoint: Checkpoint, served: TorchModel
) -> None:
    before = (await served.stats())["requests"]
    with pytest.raises(BadRequest):
        await speak(served, replace(request(checkpoint), ids=(1 << 20,)))
    with pytest.raises(TextTooLong):
        await speak(served, replace(request(checkpoint), ids=(1,) * 5000))
    assert (await served.stats())["requests"] == before


async def test_a_start_that_fails(directory: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    served = TorchModel(Checkpoint.open(copy), threads=1)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(SettingsError, match=r"tokenizer\.json"):
        await served.start()
    assert not served.alive and served.pid is None
    await served.close()


async def test_close(checkpoint: Checkpoint) -> None:
    served = TorchModel(checkpoint, threads=1)
    with pytest.raises(EngineCrashed, match="not running"):
        await speak(served, request(checkpoint))
    await served.start()
    pid = served.pid
    task = asyncio.create_task(speak(served, request(checkpoint, **LONG)))
    await until(lambda: served.running == 1)
    await served.close()
    await served.close()
    with pytest.raises(EngineError, match="closed"):
        await task
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await asyncio.gather(served.start(), served.start())
    assert served.alive
    await served.close()
    assert (await served.stats())["crashes"] == 0


async def test_a_failure_in_the_worker_ends_one_request_alone(directory: Path, tmp_path: Path) -> None:
    """A model that gives no numbers says so, and goes on serving."""
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    tensors = load_file(copy / "model.safetensors")
    tensors["model.embed_tokens.weight"][7] = float("nan")
    save_file(tensors, copy / "model.safetensors")
    opened = Checkpoint.open(copy)
    served = TorchModel(opened, threads=1)
    await served.start()
    try:
        good, bad = request(opened, max_frames=4), replace(request(opened), ids=(7,))
        results = await asyncio.gather(speak(served, bad), speak(served, good), return_exceptions=True)
        assert isinstance(results[0], EngineError) and not isinstance(results[0], EngineCrashed)
        assert not isinstance(results[1], BaseException)
        assert (await served.stats())["crashes"] == 0
    finally:
        await served.close()


async def test_merged_batches_keep_order() -> None:
    job = model_process._Job()
    for n in range(3):
        job.put(FrameBatch(random_codes(1, n), np.full(1, n, np.float32), "length" if n == 2 else ""))
    merged = await job.next()
    assert np.array_equal(merged.codes, np.concatenate([random_codes(1, n) for n in range(3)]))
    assert merged.entropy.tolist() == [0, 1, 2] and merged.finish == "length"
