from __future__ import annotations

import asyncio

import pytest

from tests import virtual
from tts_core.patience import Patience


def test_each_wait_may_last_so_long() -> None:
    async def run() -> None:
        async with Patience(5.0) as patience:
            for _ in range(4):
                patience.begin()
                await asyncio.sleep(4.9)
                patience.end()

    virtual.run(run)


@pytest.mark.parametrize("before", [0.0, 0.1, 3.0, 4.9, 12.0])
def test_one_that_lasts_longer_ends_when_its_time_is_up(before: float) -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        began = 0.0
        with pytest.raises(TimeoutError):
            async with Patience(5.0) as patience:
                patience.begin()
                await asyncio.sleep(min(before, 4.9))
                patience.end()
                await asyncio.sleep(before)
                patience.begin()
                began = loop.time()
                await asyncio.sleep(100)
        return loop.time() - began

    assert virtual.run(run) == pytest.approx(5.0, abs=1e-6)


def test_what_is_awaited_in_between_may_take_as_long_as_it_wants() -> None:
    async def run() -> None:
        async with Patience(5.0) as patience:
            patience.begin()
            await asyncio.sleep(1)
            patience.end()
            await asyncio.sleep(100)
            patience.begin()
            await asyncio.sleep(4.9)
            patience.end()

    virtual.run(run)


def test_a_cancellation_from_outside_stays_one_and_no_timer_is_left() -> None:
    async def run() -> None:
        async def wait() -> None:
            async with Patience(5.0) as patience:
                patience.begin()
                await asyncio.sleep(100)

        task = asyncio.create_task(wait())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(100)

    virtual.run(run)


def test_an_error_inside_leaves_as_it_is() -> None:
    async def run() -> None:
        async with Patience(5.0):
            raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        virtual.run(run)
