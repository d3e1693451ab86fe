"""Real processes as their owner sees them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.child.cases import LANGUAGE, Echo, Load, Message, Ready, ended, exists
from tts_core.child.frames import FrameError, numbers, raw
from tts_core.child.link import Link
from tts_core.child.program import Program
from tts_core.errors import BadRequest, EngineError, EngineTimeout, SettingsError, VoxwireError


def program(name: str, start_s: float = 30.0) -> Program:
    return Program("the worker", f"tests.tts_core.child.programs:{name}", start_s, env={"COLOUR": "green"})


class Heard:
    """What a link told."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[tuple[Message, memoryview]] = asyncio.Queue()
        self.lost = 0
        self.gone = asyncio.Event()

    def on_message(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Echo) and message.words == "forbidden":
            raise FrameError("that has no business here")
        self.messages.put_nowait((message, payload))

    def on_lost(self) -> None:
        self.lost += 1
        self.gone.set()

    def link(
        self, what: Program, kinds: tuple[type[VoxwireError], ...] = (EngineError,)
    ) -> Link[Message, Ready]:
        return Link(what, LANGUAGE, Ready, self.on_message, self.on_lost, kinds=kinds)

    async def next(self) -> tuple[Message, memoryview]:
        async with asyncio.timeout(30):
            return await self.messages.get()


@asynccontextmanager
async def started(name: str) -> AsyncIterator[tuple[Heard, Link[Message, Ready], Ready]]:
    heard = Heard()
    link = heard.link(program(name))
    ready = await link.start(Load())
    try:
        yield heard, link, ready
    finally:
        await link.close()


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert await asyncio.to_thread(ended, watch)


@pytest.mark.parametrize("name", ["echo", "loop"])
async def test_a_worker_answers_and_its_death_is_told_once(name: str) -> None:
    async with started(name) as (heard, link, ready):
        assert ready.pid == link.pid
        assert os.getsid(ready.pid) == ready.pid  # the terminal's Ctrl-C does not reach it
        audio = np.arange(300_000, dtype=np.float32)
        for k in range(9):
            link.send(Echo(k), raw(audio + k))
        for k in range(9):
            message, payload = await heard.next()
            assert message == Echo(k)
            assert np.array_equal(numbers(payload, np.float32), audio + k)
        assert link.unsent == 0
        os.kill(ready.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            await heard.gone.wait()
        link.send(Echo(1))  # to nobody
        await link.close()
        await link.close()
        assert heard.lost == 1
        assert not exists(ready.pid)


async def test_its_environment_is_the_owners_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXWIRE_PEPPER", "very secret")
    async with started("echo") as (heard, link, _):
        link.send(Echo(1, "environment"))
        _, payload = await heard.next()
        assert b"COLOUR=green" in bytes(payload)
        assert b"OMP_NUM_THREADS=1" in bytes(payload)
        assert b"very secret" not in bytes(payload)


@pytest.mark.parametrize(
    ("load", "kinds", "kind", "words", "field"),
    [
        ("settings", (EngineError,), EngineError, "no such model", None),
        ("settings", (EngineError, SettingsError), SettingsError, "no such model", "VOXWIRE_MODEL"),
        ("request", (EngineError, SettingsError), EngineError, "too long", None),
        ("request", (BadRequest,), BadRequest, "too long", "text"),
        ("timeout", (EngineError,), EngineTimeout, "too slow", None),
        ("odd", (EngineError, SettingsError), EngineError, "it could not be loaded", None),
    ],
)
async def test_a_worker_that_cannot_load_says_why_and_is_gone(
    load: str, kinds: tuple[type[VoxwireError], ...], kind: type[VoxwireError], words: str, field: str | None
) -> None:
    heard = Heard()
    link = heard.link(program("echo"), kinds)
    with pytest.raises(VoxwireError) as caught:
        await link.start(Load(load))
    assert (type(caught.value), caught.value.message, caught.value.field) == (kind, words, field)
    assert link.pid is not None
    assert not exists(link.pid)
    async with asyncio.timeout(30):
        await heard.gone.wait()
    assert heard.lost == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dies", "the worker died while it started"),
        ("foreign", "the worker died while it started"),
        ("hasty", "the worker died while it started"),
        ("refuses", "come again"),
    ],
)
async def test_a_worker_that_does_not_get_ready_is_an_engine_error(name: str, words: str) -> None:
    heard = Heard()
    link = heard.link(program(name))
    with pytest.raises(EngineError, match=words):
        await link.start(Load())
    assert not exists(link.pid)
    assert heard.messages.empty()


async def test_a_worker_that_says_nothing_is_ended_in_time() -> None:
    link = Heard().link(program("silent", start_s=0.3))
    with pytest.raises(EngineError, match="the worker was not ready in time"):
        await link.start(Load())
    assert link.pid is not None
    assert not exists(link.pid)


async def test_a_program_that_is_not_there_is_an_engine_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    link = Heard().link(program("echo"))
    with pytest.raises(EngineError, match="the worker could not be started"):
        await link.start(Load())
    assert link.pid is None
    assert link.unsent == 0
    link.send(Echo(1))
    await link.close()


async def test_a_first_message_that_is_too_large_leaves_no_process() -> None:
    link = Heard().link(program("echo"))
    with pytest.raises(FrameError):
        await link.start(Load(), bytes(LANGUAGE.max_frame + 1))
    assert link.pid is not None
    assert not exists(link.pid)


async def test_a_worker_that_breaks_the_protocol_later_is_ended() -> None:
    async with started("echo") as (heard, link, ready):
        link.send(Echo(1, "forbidden"))
        async with asyncio.timeout(30):
            await heard.gone.wait()
        assert heard.messages.empty()
        await gone(ready.pid)


async def test_a_killed_worker_takes_what_it_started_with_it() -> None:
    async with started("family") as (heard, link, ready):
        assert ready.pid != link.pid
        link.kill()
        await gone(ready.pid)
        async with asyncio.timeout(30):
            await heard.gone.wait()


async def test_nothing_is_left_of_what_a_dead_worker_had_started() -> None:
    async with started("deserter") as (heard, _, ready):
        async with asyncio.timeout(30):
            await heard.gone.wait()
        await gone(ready.pid)


@pytest.mark.parametrize("wait", [False, True])
async def test_nothing_is_left_of_a_start_that_was_abandoned(wait: bool) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    spawned: list[int] = []

    class Spy(Program):
        def spawn(self, theirs: object) -> object:  # type: ignore[override]
            process = super().spawn(theirs)  # type: ignore[arg-type]
            spawned.append(process.pid)
            return process

    link = Heard().link(Spy("the worker", "tests.tts_core.child.programs:silent", 30.0))
    starting = asyncio.create_task(link.start(Load()))
    while link.pid is None and wait:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await link.close()
    async with asyncio.timeout(30):
        while not spawned or exists(spawned[0]):
            await asyncio.sleep(0)
    del link, starting
    gc.collect()
    assert told == []
