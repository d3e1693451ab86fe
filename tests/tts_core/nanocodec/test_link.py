"""A codec process as the service sees it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.child.cases import exists
from tests.tts_core.nanocodec.cases import CLOSE, Codec, configuration, some_codes
from tts_core.child.frames import numbers, raw
from tts_core.errors import EngineError
from tts_core.nanocodec import link as link_module
from tts_core.nanocodec import wire
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.link import PROGRAM, open_link


def test_a_process_has_one_thread() -> None:
    assert PROGRAM.environment()["OMP_NUM_THREADS"] == "1"


async def test_a_process_decodes_until_it_is_ended(codec: Codec, decoder: TorchDecoder) -> None:
    got: asyncio.Queue[tuple[wire.Message, memoryview]] = asyncio.Queue()
    gone = asyncio.Event()
    link = open_link(lambda message, payload: got.put_nowait((message, payload)), gone.set)
    await link.start(configuration(codec))
    codes = some_codes(2)
    link.send(wire.Codes(1, 7), raw(codes))
    async with asyncio.timeout(30):
        message, payload = await got.get()
        assert message == wire.Samples(1, 7)
        assert np.abs(numbers(payload, np.float32) - decoder.whole(codes)).max() <= CLOSE
        assert isinstance((await got.get())[0], wire.Step)
        link.kill()
        await gone.wait()
    await link.close()


async def test_a_model_that_does_not_load_is_an_engine_error(codec: Codec, tmp_path: Path) -> None:
    link = open_link(lambda message, payload: None, lambda: None)
    with pytest.raises(EngineError, match="cannot be read"):
        await link.start(configuration(codec, model=str(tmp_path / "none")))
    assert link.pid is not None
    assert not exists(link.pid)


async def test_a_process_that_dies_at_the_start_is_named(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "PROGRAM", replace(PROGRAM, entry="tests.tts_core.child.programs:dies"))
    with pytest.raises(EngineError, match="a codec process died while it started"):
        await open_link(lambda message, payload: None, lambda: None).start(configuration(codec))
