"""Random codecs in the public layout."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch
import yaml

from tests.tts_core.nanocodec.cases import Codec
from tts_core.nanocodec.archive import read_members
from tts_core.nanocodec.config import CodecConfig
from tts_core.nanocodec.convert import load_checkpoint
from tts_core.nanocodec.tiny import FULL, TINY, make_tiny_nemo, nemo_config, random_tensors, state_dict

SMALL = CodecConfig(1, 64)


def test_the_same_seed_gives_the_same_codec(tmp_path: Path, codec: Codec) -> None:
    again = make_tiny_nemo(tmp_path / "again.nemo")
    other = make_tiny_nemo(tmp_path / "other.nemo", seed=1)
    first, second, third = (load_checkpoint(read_members(path)[1]) for path in (codec.nemo, again, other))
    assert first.keys() == second.keys() == third.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], third[name]) for name in first)


def test_it_has_the_released_models_names() -> None:
    """387 and 291 tensors, as counted in NeMo's own model."""
    stored = state_dict(TINY, 0)
    assert sum(name.startswith("audio_decoder.") for name in stored) == 387
    assert sum(name.startswith("audio_encoder.") for name in stored) == 291
    assert len(stored) == 387 + 291


def test_members_are_as_in_released_files(codec: Codec) -> None:
    with tarfile.open(codec.nemo) as archive:
        assert archive.getnames() == ["./model_config.yaml", "./model_weights.ckpt"]
    assert yaml.safe_load(read_members(codec.nemo)[0]) == nemo_config(TINY)
    assert codec.nemo.stat().st_size < 8 << 20


@pytest.mark.parametrize("gz", [False, True])
def test_it_can_be_zipped(tmp_path: Path, gz: bool) -> None:
    path = make_tiny_nemo(tmp_path / "x.nemo", config=SMALL, gz=gz)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") is gz
    assert len(load_checkpoint(read_members(path)[1])) == 678


def test_the_full_size_is_the_released_models() -> None:
    assert CodecConfig() == FULL
    widest = random_tensors(SMALL, "audio_decoder", 0)
    assert len(widest) == 290


def test_a_checkpoint_is_tensors_alone() -> None:
    out = io.BytesIO()
    torch.save(state_dict(SMALL, 0), out)
    assert len(torch.load(io.BytesIO(out.getvalue()), weights_only=True)) == 678
