"""A codec process as the service sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tts_core.nanocodec.cases import Codec, some_codes
from tts_core.errors import EngineError
from tts_core.nanocodec import link as link_module
from tts_core.nanocodec import wire
from tts_core.nanocodec.link import CodecLink, environment


def configuration(codec: Codec, **changes: Any) -> wire.Configure:
    values = {
        "role": "decode",
        "model": str(codec.path),
        "backend": "onnx",
        "device": "cpu",
        "batch_frames": 16,
    }
    return wire.Configure(**{**values, **changes})


class Heard:
    """What a link told."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[wire.Message | wire.Data] = asyncio.Queue()
        self.lost = 0
        self.gone = asyncio.Event()

    def on_lost(self) -> None:
        self.lost += 1
        self.gone.set()

    def link(self) -> CodecLink:
        return CodecLink(self.messages.put_nowait, self.on_lost)


def exists(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_gateways_settings_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXWIRE_PEPPER", "very secret")
    assert "very secret" not in environment().values()
    assert environment()["OMP_NUM_THREADS"] == "1"


async def test_a_process_works_and_its_death_is_told_once(codec: Codec) -> None:
    heard = Heard()
    link = heard.link()
    await link.start(configuration(codec))
    assert link.pid is not None
    assert os.getsid(link.pid) == link.pid  # the terminal's Ctrl-C does not reach it
    codes = some_codes(2)
    link.send(wire.Data(1, 7, codes))
    async with asyncio.timeout(30):
        data = await heard.messages.get()
        assert isinstance(data, wire.Data)
        assert (data.stream, data.request, data.array.shape) == (1, 7, (2048,))
        assert isinstance(await heard.messages.get(), wire.Step)
        os.kill(link.pid, signal.SIGKILL)
        await heard.gone.wait()
    link.send(wire.Close(1))  # to nobody
    await link.close()
    await link.close()
    assert heard.lost == 1
    assert not exists(link.pid)


async def test_what_is_sent_may_be_changed_afterwards(codec: Codec) -> None:
    heard = Heard()
    link = heard.link()
    await link.start(configuration(codec))
    codes = some_codes(2)
    link.send(wire.Data(1, 1, codes))
    codes[:] = 255
    link.send(wire.Data(2, 2, some_codes(2)))
    found: dict[int, Any] = {}
    async with asyncio.timeout(30):
        while len(found) < 2:
            message = await heard.messages.get()
            if isinstance(message, wire.Data):
                found[message.request] = message.array
    assert np.abs(found[1] - found[2]).max() <= 1e-6
    await link.close()


async def test_a_model_that_does_not_load_is_an_engine_error(codec: Codec, tmp_path: Path) -> None:
    heard = Heard()
    link = heard.link()
    with pytest.raises(EngineError, match="cannot be read"):
        await link.start(configuration(codec, model=str(tmp_path / "none")))
    assert not exists(link.pid)
    async with asyncio.timeout(30):
        await heard.gone.wait()


async def test_a_program_that_dies_at_once_is_an_engine_error(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_COMMAND", "raise SystemExit(3)")
    with pytest.raises(EngineError, match="died"):
        await Heard().link().start(configuration(codec))


async def test_a_program_that_says_nothing_is_ended(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_COMMAND", "import signal; signal.pause()")
    monkeypatch.setattr(link_module, "START_S", 0.3)
    link = Heard().link()
    with pytest.raises(EngineError, match="in time"):
        await link.start(configuration(codec))
    assert not exists(link.pid)


async def test_a_program_that_is_not_there_is_an_engine_error(
    codec: Codec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="started"):
        await Heard().link().start(configuration(codec))


async def test_a_program_that_speaks_another_language_is_cut_off(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = "import os, signal, sys; os.write(int(sys.argv[1]), b'HTTP/1.1 200 OK and so on'); signal.pause()"
    monkeypatch.setattr(link_module, "_COMMAND", talk)
    link = Heard().link()
    with pytest.raises(EngineError, match="died"):
        await link.start(configuration(codec))
    assert not exists(link.pid)


async def test_an_abandoned_start_leaves_no_process(codec: Codec) -> None:
    link = Heard().link()
    starting = asyncio.ensure_future(link.start(configuration(codec)))
    while link.pid is None:
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not exists(link.pid)
