from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from tts_core.embedded import link as link_module
from tts_core.embedded import wire
from tts_core.embedded.link import WorkerLink, environment
from tts_core.embedded.trim import Trim
from tts_core.embedded.voices import available
from tts_core.errors import EngineError


def exists(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def configuration(path: Path | None = None) -> wire.Configure:
    voice, real = available("")[0]
    file = wire.VoiceFile(voice.id, str(path or real), voice.sha256, False)
    return wire.Configure((file,), Trim(), 1.0)


def test_the_gateways_settings_stay_out_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXWIRE_PEPPER", "very secret")
    env = environment()
    assert "very secret" not in env.values()
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["OMP_NUM_THREADS"] == "1"


async def test_a_worker_speaks_and_its_death_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXWIRE_PEPPER", "very secret")
    got: asyncio.Queue[wire.Message | wire.Audio] = asyncio.Queue()
    lost: list[int] = []
    gone = asyncio.Event()

    def on_lost() -> None:
        lost.append(1)
        gone.set()

    link = WorkerLink(got.put_nowait, on_lost)
    ready = await link.start(configuration())
    assert ready.audio_s > 0
    assert link.pid is not None
    assert b"very secret" not in environ(link.pid)
    assert os.getsid(link.pid) == link.pid  # the terminal's Ctrl-C does not reach it
    link.send(wire.Speak(1, "Hello.", "heart", 1.0, None))
    messages = [await got.get()]
    while not isinstance(messages[-1], wire.Done):
        messages.append(await got.get())
    assert isinstance(messages[0], wire.Audio)
    link.kill()
    await asyncio.wait_for(gone.wait(), 10)
    await link.close()
    link.send(wire.Cancel(1))
    assert lost == [1]


async def test_a_worker_that_cannot_load_says_why_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"x")
    link = WorkerLink(lambda m: None, lambda: None)
    with pytest.raises(EngineError, match="not the released one"):
        await link.start(configuration(tmp_path / "m"))
    assert link.pid is not None
    assert not exists(link.pid)


async def test_nothing_is_left_unheard_of_a_start_that_was_abandoned() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    link = WorkerLink(lambda m: None, lambda: None)
    starting = asyncio.create_task(link.start(configuration()))
    while link.pid is None:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await link.close()
    await asyncio.sleep(0)  # the socket's end is seen
    del link, starting
    gc.collect()
    assert told == []


async def test_a_worker_that_dies_at_the_start_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_COMMAND", "raise SystemExit(3)")
    with pytest.raises(EngineError, match="died while it started"):
        await WorkerLink(lambda m: None, lambda: None).start(configuration())


async def test_a_worker_that_never_becomes_ready_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_COMMAND", "import signal; signal.pause()")
    monkeypatch.setattr(link_module, "START_S", 0.2)
    link = WorkerLink(lambda m: None, lambda: None)
    with pytest.raises(EngineError, match="not ready in time"):
        await link.start(configuration())
    assert not exists(link.pid)


async def test_a_worker_that_talks_nonsense_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = (
        "import os, sys; fd = int(sys.argv[1]); os.write(fd, b'\\xff' * 8); os.read(fd, 9999); os.read(fd, 1)"
    )
    monkeypatch.setattr(link_module, "_COMMAND", talk)
    with pytest.raises(EngineError, match="died while it started"):
        await WorkerLink(lambda m: None, lambda: None).start(configuration())
