from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.services import InFlight, Services
from gateway.settings import Settings
from tests.peers.gateway import ToneEngine
from tts_core.errors import Draining


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(settings=Settings(data_dir=tmp_path), engine=ToneEngine())


async def test_in_flight_is_idle_only_when_all_have_ended() -> None:
    work = InFlight()
    await asyncio.wait_for(work.idle(), 1)
    with work.one():
        work.add(1)
        waiting = asyncio.create_task(work.idle())
        await asyncio.sleep(0)
        work.add(-1)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert work.count == 1
    await asyncio.wait_for(waiting, 1)


async def test_work_that_fails_still_ends() -> None:
    work = InFlight()
    with pytest.raises(ValueError, match="x"), work.one():
        raise ValueError("x")
    assert work.count == 0


async def test_spawned_tasks_are_kept_until_they_end(services: Services) -> None:
    go = asyncio.Event()
    task = services.spawn(go.wait(), name="waiter")
    assert (services.tasks, task.get_name()) == (1, "waiter")
    go.set()
    await task
    await asyncio.sleep(0)
    assert services.tasks == 0


async def test_a_failed_task_is_logged_and_hurts_no_other(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("x")

    stays = services.spawn(asyncio.Event().wait())
    await asyncio.gather(services.spawn(fail()), return_exceptions=True)
    await asyncio.sleep(0)
    assert [record.msg for record in caplog.records if record.levelno == logging.ERROR] == ["task failed"]
    assert not stays.done()
    await services.stop_tasks()
    assert stays.cancelled()
    assert services.tasks == 0


async def test_new_work_is_refused_once_draining(services: Services) -> None:
    services.refuse_if_draining()
    services.draining.set()
    with pytest.raises(Draining) as caught:
        services.refuse_if_draining()
    assert caught.value.retry_after
