"""The plain loop in its process: the same frames, cancels, crashes, limits."""

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

from tests.tts_core.gepard.cases import joined, prefix_of, random_codes, request
from tts_core.errors import BadRequest, Busy, EngineCrashed, EngineError, EngineTimeout, TextTooLong
from tts_core.gepard import torch_model
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameBatch, FrameModel, FrameRequest
from tts_core.gepard.reference import ReferenceModel
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


async def test_same_frames_as_the_loop(
    checkpoint: Checkpoint, model: ReferenceModel, served: TorchModel
) -> None:
    """Nine requests in four turns, of every kind, each as if alone."""
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


async def test_a_crash_fails_what_runs_and_is_mended(
    checkpoint: Checkpoint, served: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "BACKOFF_S", (0.0, 0.0))
    want = await speak(served, request(checkpoint))
    crashes = (await served.stats())["crashes"]
    stream = served.generate(request(checkpoint, **LONG))
    await anext(stream)
    pid = served.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        async for _ in stream:
            pass
    now = served.pid, served.running
    assert now == (None, 0)
    # What is asked for meanwhile waits for the new worker.
    assert await speak(served, request(checkpoint)) == want
    assert served.pid not in (None, pid)
    assert (await served.stats())["crashes"] == crashes + 1


async def test_it_gives_up_in_the_end(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "BACKOFF_S", (0.0,))
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
        with pytest.raises(EngineError, match="not running"):
            await speak(served, request(opened))
        assert not served.alive
        with pytest.raises(EngineError, match="not running"):
            await speak(served, request(opened))
    finally:
        await served.close()


async def test_a_worker_that_gives_nothing_is_replaced(
    checkpoint: Checkpoint, served: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "BACKOFF_S", (0.0,))
    monkeypatch.setattr(torch_model, "STUCK_S", 0.3)
    assert served.pid is not None
    os.kill(served.pid, signal.SIGSTOP)
    with pytest.raises(EngineCrashed):
        await speak(served, request(checkpoint))
    assert (await speak(served, request(checkpoint, max_frames=1)))[1] == "length"


async def test_a_wait_that_is_too_long(
    checkpoint: Checkpoint, served: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_model, "WAIT_S", 0.2)
    assert served.pid is not None
    os.kill(served.pid, signal.SIGSTOP)
    with pytest.raises(EngineTimeout):
        await speak(served, request(checkpoint))
    assert served.running == 0
    os.kill(served.pid, signal.SIGCONT)


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
    with pytest.raises(EngineError, match=r"tokenizer\.json"):
        await served.start()
    assert not served.alive and served.pid is None
    await served.close()


async def test_close(checkpoint: Checkpoint) -> None:
    served = TorchModel(checkpoint, threads=1)
    with pytest.raises(EngineError, match="not running"):
        await speak(served, request(checkpoint))
    await served.start()
    pid = served.pid
    task = asyncio.create_task(speak(served, request(checkpoint, **LONG)))
    await until(lambda: served.running == 1)
    await served.close()
    await served.close()
    with pytest.raises(EngineError, match="closed"):
        await task
    with pytest.raises(EngineError, match="closed"):
        await served.start()
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


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
    job = torch_model._Job(None)  # type: ignore[arg-type]
    for n in range(3):
        job.put(FrameBatch(random_codes(1, n), np.full(1, n, np.float32), "length" if n == 2 else ""))
    merged = await job.next()
    assert np.array_equal(merged.codes, np.concatenate([random_codes(1, n) for n in range(3)]))
    assert merged.entropy.tolist() == [0, 1, 2] and merged.finish == "length"
