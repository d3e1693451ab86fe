"""Workers that cannot start say why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.peers.piper_engine import RATE, bundled, python
from tts_core.errors import EngineError
from tts_core.piper import wire
from tts_core.piper.link import open_link


def configuration(folder: Path) -> wire.Configure:
    (path,) = folder.glob("*.onnx")
    return wire.Configure((wire.VoiceFile(str(path), (("joe", None),)),), RATE, 1)


async def test_a_python_without_piper_is_told() -> None:
    for own in ("", sys.executable):
        link = open_link(own, lambda *_: None, lambda: None)
        with pytest.raises(EngineError, match=r"extra 'piper'.*VOXWIRE_PIPER_PYTHON"):
            await link.start(configuration(bundled()))


async def test_a_file_that_is_no_voice_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "odd.onnx").write_bytes(b"nothing")
    (tmp_path / "odd.onnx.json").write_text("{}")
    link = open_link(str(python()), lambda *_: None, lambda: None)
    with pytest.raises(EngineError, match=r"the voice odd\.onnx could not be loaded") as caught:
        await link.start(configuration(tmp_path))
    assert str(tmp_path) not in caught.value.message
