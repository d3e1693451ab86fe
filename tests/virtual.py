"""An event loop whose time stands still until everybody waits, then jumps to the next timer.

Tests of pacing, deadlines and idle times run on it in milliseconds and always the same way. It serves real file
descriptors too (they are polled without waiting), but virtual time does not wait for them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and self.loop is not None:
            if timeout is None:
                raise RuntimeError("the test waits for something that never comes")
            self.loop.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on a fresh virtual loop; leaves no task behind, or fails."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def checked() -> T:
            result = await main
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"
            return result

        return runner.run(checked())


def clock() -> float:
    """The loop's time: the injected clock of what is under test."""
    return asyncio.get_running_loop().time()
