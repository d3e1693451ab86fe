"""The pool with real worker processes that make a tone: the contract, and what becomes of workers that die.

The embedded engine's own tests (``tests/tts_core/embedded/test_engine.py``) go on where its model matters.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.tts_core.child.cases import exists
from tests.tts_core.contract import EngineContract, samples, speech, until
from tests.tts_core.pool.toy import RATE, ToyEngine
from tts_core.engine import SpeechChunk, SpeechRequest
from tts_core.errors import EngineCrashed, EngineError
from tts_core.pool import engine as module

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[ToyEngine]:
    async with running(2) as made:
        yield made


@asynccontextmanager
async def running(workers: int = 1, **options: object) -> AsyncIterator[ToyEngine]:
    engine = ToyEngine(workers, **options)  # type: ignore[arg-type]
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


class TestContract(EngineContract):
    seconds = (3.0, 3.6)
    long = "First pause"  # until it is told to stop


def request(text: str, **changes: object) -> SpeechRequest:
    return SpeechRequest(**{"id": "r", "text": text, "voice": "toy", **changes})  # type: ignore[arg-type]


async def speak(engine: ToyEngine, text: str, **changes: object) -> list[SpeechChunk]:
    return [chunk async for chunk in engine.synthesize(request(text, **changes))]


async def test_the_engines_speed_and_the_requests_multiply() -> None:
    async with running(speed=1.5) as engine:
        assert len(samples(await speak(engine, "one", speed=1.2))) == round(RATE / 4 / 1.8)


async def test_the_most_urgent_goes_first() -> None:
    async with running() as engine:
        order: list[str] = []

        async def say(name: str, deadline: float | None) -> None:
            await speak(engine, "Hi.", deadline=deadline)
            order.append(name)

        first = speech(engine, request("First pause"))
        await anext(first)
        later = [asyncio.ensure_future(say(n, d)) for n, d in (("never", None), ("late", 9.0), ("soon", 5.0))]
        await until(lambda: engine.capacity().queued == 3)
        await first.aclose()
        await asyncio.gather(*later)
        assert order == ["soon", "late", "never"]


async def test_a_fault_fails_one_request_without_a_word_of_it() -> None:
    async with running() as engine:
        with pytest.raises(EngineError, match="the toy failed on this text") as caught:
            await speak(engine, "One fault")
        assert "secret" not in caught.value.message
        assert (await speak(engine, "One."))[-1].last
        assert engine.capacity().alive == 1


async def test_a_request_that_died_unheard_is_run_again_once() -> None:
    async with running() as engine:
        (pid,) = engine.worker_pids
        with pytest.raises(EngineCrashed, match="died while it spoke"):
            await speak(engine, "die")  # kills the second worker as well
        await until(lambda: engine.capacity().alive == 1)
        assert engine.worker_pids != (pid,)
        assert (await speak(engine, "One."))[-1].last


async def test_a_request_that_was_heard_in_part_fails_with_its_worker() -> None:
    async with running() as engine:
        chunks = speech(engine, request("One die"))
        await anext(chunks)
        with pytest.raises(EngineCrashed):
            async for _ in chunks:
                pass


async def test_a_worker_that_hangs_is_replaced() -> None:
    async with running(stuck_s=0.5) as engine:
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGSTOP)
        hung = asyncio.ensure_future(speak(engine, "Hi."))
        await until(lambda: engine.capacity().free == 0)
        engine.patience = 30.0
        assert (await hung)[-1].last
        assert engine.worker_pids != (pid,)


async def test_waiting_requests_fail_when_no_worker_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", (0.0,))
    async with running() as engine:
        engine.entry = "tests.tts_core.pool.toy:dies"
        os.kill(engine.worker_pids[0], signal.SIGKILL)
        await until(lambda: engine.capacity().alive == 0)
        assert engine.capacity().xrt == 0
        with pytest.raises(EngineCrashed, match="the toy cannot be started"):
            await speak(engine, "Hi.")


async def test_a_worker_that_cannot_load_says_why() -> None:
    engine = ToyEngine(refuse="the voice is not there")
    with pytest.raises(EngineError, match="the voice is not there"):
        await engine.start()
    assert engine.worker_pids == ()


async def test_close_ends_everything() -> None:
    engine = ToyEngine()
    with pytest.raises(EngineError, match="not running"):
        await speak(engine, "Hi.")
    await engine.start()
    await engine.start()  # a second one does nothing
    (pid,) = engine.worker_pids
    one = asyncio.ensure_future(speak(engine, "First pause"))
    waiting = asyncio.ensure_future(speak(engine, "Hi."))
    await until(lambda: engine.capacity().queued == 1)
    await engine.close()
    for task in (one, waiting):
        with pytest.raises(EngineError, match="closed"):
            await task
    assert not exists(pid)
    assert engine.capacity().alive == 0
    await engine.close()
    with pytest.raises(EngineError):
        await engine.start()
