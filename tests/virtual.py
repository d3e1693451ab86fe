"""An event loop whose time stands still until everybody waits, then jumps to the next timer.

Tests of pacing, deadlines and idle times run on it in milliseconds and always the same way. Real sockets
within the test's own process work too: what one side sends the other can read at once, so nothing is under
way when time jumps. While a thread works, time stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_S = 0.002
"""Real seconds that descriptors get before time jumps, when something moved since the last jump."""

STUCK_S = 5.0
"""Real seconds after which a test without any timer waits for something that never comes."""


class Clock:
    """Seconds that move only when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop
    _moved = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            ready = self._wait(timeout)
        self._moved = self._moved or bool(ready)
        return ready

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.loop.threads:
            return super().select(0.05)
        if self._moved:
            if ready := super().select(PATIENCE_S):
                return ready
            self._moved = False
        if timeout is not None:
            self.loop.now += timeout
            return []
        # The loop's own waker is always there; anything beyond it may still bring news from outside.
        ready = super().select(STUCK_S) if len(self.get_map()) > 1 else []
        if not ready:
            raise RuntimeError("the test waits for something that never comes")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.threads = 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads -= 1

    def _returned(self, _: object) -> None:
        self.threads -= 1


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` on a fresh virtual loop; fail if it leaves a task behind."""

    async def checked() -> T:
        result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(checked())


def clock() -> float:
    """The loop's time: the injected clock of what is under test."""
    return asyncio.get_running_loop().time()


def skip(seconds: float) -> None:
    """Move the running loop's time on at once, without the timers in between."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += seconds
