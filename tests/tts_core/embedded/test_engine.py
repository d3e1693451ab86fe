"""The engine with its real workers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.contract import EngineContract
from tts_core.embedded import EmbeddedEngine
from tts_core.embedded.speaker import Speaker
from tts_core.embedded.voices import RELEASED, available
from tts_core.engine import SpeechChunk, SpeechRequest
from tts_core.errors import BadRequest, EngineCrashed, EngineError, TextTooLong, UnknownVoice
from tts_core.pool import engine as engine_module

pytestmark = pytest.mark.asyncio(loop_scope="module")

W12 = "I can help you with that order right now, just one moment please."
MINUTES = "This goes on and on, and it will take quite a while until all of it has been made. " * 40


class TestContract(EngineContract):
    mute = (*EngineContract.mute, "你好")


def request(text: str = W12, **changes: object) -> SpeechRequest:
    return SpeechRequest(**{"id": "r", "text": text, "voice": "heart", **changes})  # type: ignore[arg-type]


async def speak(engine: EmbeddedEngine, text: str = W12, **changes: object) -> list[SpeechChunk]:
    return [chunk async for chunk in engine.synthesize(request(text, **changes))]


def samples(chunks: list[SpeechChunk]) -> np.ndarray:
    return np.concatenate([c.pcm for c in chunks])


async def until(check: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0)


@asynccontextmanager
async def running(workers: int = 1, **options: object) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine(workers, **options)  # type: ignore[arg-type]
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def test_the_audio_is_that_of_the_voice(engine: EmbeddedEngine, speaker: Speaker) -> None:
    chunks = await speak(engine)
    pcm = samples(chunks)
    assert 3.0 < len(pcm) / 24_000 < 4.5
    assert 0.2 < np.max(np.abs(pcm)) < 1.0
    assert np.sqrt((pcm**2).mean()) > 0.05
    np.testing.assert_array_equal(pcm, np.concatenate([b.pcm for b in speaker.speak(W12)]))


async def test_chunks_join_and_only_the_last_says_so(engine: EmbeddedEngine) -> None:
    chunks = await speak(engine)
    at = 0
    for chunk in chunks:
        assert chunk.pcm.dtype == np.float32
        assert chunk.start_sample == at
        at += len(chunk.pcm)
    assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks[0].pcm) <= 0.13 * 24_000
    words = chunks[0].words
    assert [W12[w.text_start : w.text_end] for w in words] == W12.split()
    assert words[-1].sample_end <= at


async def test_speed_and_seed(engine: EmbeddedEngine) -> None:
    slow, fast = [len(samples(await speak(engine, speed=s))) for s in (0.5, 2.0)]
    assert slow > 3 * fast
    one, two, other = [samples(await speak(engine, seed=s)) for s in (1, 1, 2)]
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"speed": 0.49}, BadRequest),
        ({"speed": 2.01}, BadRequest),
        ({"speed": float("nan")}, BadRequest),
        ({"voice": "nobody"}, UnknownVoice),
        ({"voice": "emma"}, UnknownVoice),
        ({"conditioning": b"x"}, BadRequest),
        ({"text": "a" * 4001}, TextTooLong),
    ],
)
async def test_what_it_cannot_do_is_refused(
    engine: EmbeddedEngine, changes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await anext(engine.synthesize(request(**changes)))  # type: ignore[arg-type]
    assert engine.capacity().queued == 0


async def test_it_says_what_it_is(engine: EmbeddedEngine) -> None:
    info = engine.info
    assert info.native_rate == 24_000
    assert [v.id for v in info.voices] == ["heart"]
    assert RELEASED["heart"].sha256[:12] in info.revision
    with pytest.raises(EngineError, match="clone"):
        await engine.enroll(np.zeros(10, np.float32), 24_000)
    await engine.start()  # a second start does nothing
    capacity = engine.capacity()
    assert (capacity.slots, capacity.alive) == (2, 2)
    assert capacity.xrt > 5


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def cpu(pid: int) -> int:
    """Clock ticks of CPU time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


async def test_requests_are_spread_over_the_workers(engine: EmbeddedEngine) -> None:
    pids = engine.worker_pids
    before = [cpu(p) for p in pids]
    results = await asyncio.gather(*(speak(engine, f"{i}. {W12}") for i in range(16)))
    assert all(r[-1].last for r in results)
    used = [cpu(p) - b for p, b in zip(pids, before, strict=True)]
    assert min(used) > 0.25 * max(used)
    await until(lambda: engine.capacity().free == 2)


async def test_an_abandoned_request_leaves_the_queue_at_once(engine: EmbeddedEngine) -> None:
    busy = [engine.synthesize(request(MINUTES)) for _ in range(2)]
    for chunks in busy:
        await anext(chunks)
    waiting = [asyncio.ensure_future(speak(engine)) for _ in range(5)]
    await until(lambda: engine.capacity().queued == 5)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert engine.capacity().queued == 0
    for chunks in busy:
        await chunks.aclose()


async def test_a_hundred_quick_aborts_leave_nothing(engine: EmbeddedEngine) -> None:
    await until(lambda: engine.capacity().free == 2)
    tasks_before = len(asyncio.all_tasks())
    pids = engine.worker_pids
    for turn in range(100):
        chunks = engine.synthesize(request(MINUTES if turn % 2 else W12, seed=turn))
        first = asyncio.ensure_future(anext(chunks))
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        if turn % 3 == 0:
            await first
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await chunks.aclose()
    await until(lambda: engine.capacity().free == 2)
    assert engine.capacity().queued == 0
    assert engine.worker_pids == pids
    assert len(asyncio.all_tasks()) == tasks_before
    assert (await speak(engine))[-1].last


async def test_a_killed_worker_is_replaced_and_its_request_run_again() -> None:
    async with running(1) as engine:
        expected = samples(await speak(engine))
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGSTOP)
        again = asyncio.ensure_future(speak(engine))
        await until(lambda: engine.capacity().free == 0)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: engine.capacity().alive == 0)
        assert engine.capacity().xrt == 0
        np.testing.assert_array_equal(samples(await again), expected)
        assert engine.capacity().alive == 1
        assert engine.worker_pids != (pid,)


async def test_a_request_that_was_heard_in_part_fails_when_its_worker_dies() -> None:
    async with running(1) as engine:
        chunks = engine.synthesize(request(MINUTES))
        await anext(chunks)
        os.kill(engine.worker_pids[0], signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            async for _ in chunks:
                pass
        assert (await speak(engine))[-1].last


async def test_a_request_is_run_again_only_once() -> None:
    async with running(1) as engine:
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGSTOP)
        doomed = asyncio.ensure_future(speak(engine))
        await until(lambda: engine.capacity().free == 0)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: engine.worker_pids not in ((), (pid,)))
        os.kill(engine.worker_pids[0], signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await doomed
        assert (await speak(engine))[-1].last


async def test_an_aborted_request_of_a_dead_worker_is_forgotten() -> None:
    async with running(1) as engine:
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGSTOP)
        task = asyncio.ensure_future(speak(engine))
        await until(lambda: engine.capacity().free == 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: engine.capacity().alive == 0)
        await until(lambda: engine.capacity().alive == 1)
        assert engine.capacity().free == 1


async def test_a_worker_is_given_time_anew_with_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(1) as engine:
        started = time.monotonic()
        await speak(engine, MINUTES)
        whole = time.monotonic() - started
        monkeypatch.setattr(engine_module, "STUCK_S", whole * 0.75)  # one slow block is none of its business
        (pid,) = engine.worker_pids
        assert (await speak(engine, MINUTES, seed=1))[-1].last
        assert engine.worker_pids == (pid,)


async def test_a_worker_that_hangs_within_a_request_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "STUCK_S", 1.0)
    async with running(1) as engine:
        (pid,) = engine.worker_pids
        chunks = engine.synthesize(request(MINUTES))
        await anext(chunks)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineCrashed):
            async for _ in chunks:
                pass
        await until(lambda: engine.worker_pids not in ((), (pid,)))
        assert (await speak(engine))[-1].last


async def test_close_ends_everything() -> None:
    engine = EmbeddedEngine(workers=1)
    with pytest.raises(EngineError, match="not running"):
        await speak(engine)
    await engine.start()
    (pid,) = engine.worker_pids
    running_one = asyncio.ensure_future(speak(engine, MINUTES))
    waiting = asyncio.ensure_future(speak(engine))
    await until(lambda: engine.capacity().queued == 1)
    await engine.close()
    for task in (running_one, waiting):
        with pytest.raises(EngineError, match="closed"):
            await task
    assert not exists(pid)
    assert engine.capacity().alive == 0
    await engine.close()
    with pytest.raises(EngineError):
        await engine.start()


async def test_a_voice_file_that_is_not_the_released_one_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / RELEASED["emma"].file).write_bytes(available("")[0][1].read_bytes())
    engine = EmbeddedEngine(workers=2, home=str(tmp_path))
    assert [v.id for v in engine.info.voices] == ["heart", "emma"]
    with pytest.raises(EngineError, match="voice 'emma' is not the released one"):
        await engine.start()
    assert engine.worker_pids == ()


async def test_without_the_duration_tensor_it_speaks_as_well(engine: EmbeddedEngine) -> None:
    async with running(1, durations=False) as plain:
        ours, theirs = await speak(plain), await speak(engine)
        assert abs(len(samples(ours)) - len(samples(theirs))) < 0.05 * 24_000
        assert len(ours[0].words) == len(theirs[0].words)
