"""A decoder by name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.nanocodec.cases import CLOSE, Codec, some_codes, streamed
from tts_core.errors import EngineError, SettingsError
from tts_core.nanocodec.backends import open_decoder


@pytest.mark.parametrize("name", ["onnx", "torch"])
def test_backends_agree(codec: Codec, name: str) -> None:
    codes = some_codes(7)
    expected = streamed(open_decoder("torch", codec.path), codes, [7])
    assert np.abs(streamed(open_decoder(name, codec.path), codes, [1, 2, 4]) - expected).max() <= CLOSE


def test_an_unknown_backend_is_named(codec: Codec) -> None:
    with pytest.raises(SettingsError, match="onnx, torch, nemo"):
        open_decoder("tensorrt", codec.path)


def test_a_backend_that_is_not_installed_is_a_setting_to_change(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nemo", None)
    monkeypatch.delitem(sys.modules, "tts_core.nanocodec.nemo", raising=False)
    with pytest.raises(SettingsError, match="nemo"):
        open_decoder("nemo", codec.path)


def test_a_missing_file_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        open_decoder("onnx", tmp_path / "none.safetensors")
