"""The codec's own file: what is written is read, what is damaged or foreign is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.tts_core.nanocodec.cases import Codec, same
from tts_core.errors import EngineError
from tts_core.nanocodec.config import CodecConfig, Part, tensors
from tts_core.nanocodec.weights import (
    FORMAT,
    Tensors,
    digest,
    file_digest,
    load,
    read_header,
    save,
)

SMALL = CodecConfig(1, 64)
PARTS: tuple[Part, ...] = ("audio_decoder", "audio_encoder")


def arrays(seed: int = 0) -> dict[Part, Tensors]:
    random = np.random.default_rng(seed)
    return {
        part: {
            name: random.standard_normal(shape).astype(np.float32)
            for name, shape in tensors(SMALL, part).items()
        }
        for part in PARTS
    }


def metadata(parts: dict[Part, Tensors], **changes: str) -> dict[str, str]:
    found = {"format": FORMAT, "config": json.dumps(SMALL.as_dict()), "source": "0" * 64}
    found.update({part: digest(part_arrays) for part, part_arrays in parts.items()})
    return {**found, **changes}


def write(path: Path, parts: dict[Part, Tensors], **changes: str) -> Path:
    merged = {name: array for part in parts.values() for name, array in part.items()}
    save_file(merged, path, metadata(parts, **changes))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    parts = arrays()
    written = save(tmp_path / "codec.safetensors", SMALL, parts, "f" * 64)
    assert read_header(tmp_path / "codec.safetensors") == written
    for part, expected in parts.items():
        header, found = load(tmp_path / "codec.safetensors", part)
        assert header == written
        assert header.source == "f" * 64
        assert same(found, expected)
    assert [entry.name for entry in tmp_path.iterdir()] == ["codec.safetensors"]


def test_the_digest_is_of_names_shapes_and_numbers() -> None:
    one = {"a": np.zeros((2, 3), np.float32), "b": np.ones(1, np.float32)}
    assert digest(one) == digest(dict(reversed(one.items())))
    others: list[Tensors] = [
        {"a": one["a"], "c": one["b"]},
        {"a": one["a"].reshape(3, 2), "b": one["b"]},
        {"a": one["a"], "b": np.full(1, 1.0000001, np.float32)},
        {"a": one["a"]},
    ]
    assert len({digest(one), *map(digest, others)}) == 5


def test_a_files_digest_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert file_digest(tmp_path / "x") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(EngineError):
        file_digest(tmp_path / "none")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unseen(codec: Codec, tmp_path: Path, where: float, bit: int) -> None:
    """In the header it may be seen as many things; in the numbers by the digest."""
    data = bytearray(codec.path.read_bytes())
    at = int(where * len(data))
    data[at] ^= 1 << bit
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(data)
    before = {part: load(codec.path, part) for part in PARTS}
    seen = 0
    for part, (header, expected) in before.items():
        try:
            found = load(damaged, part)
        except EngineError:
            seen += 1
            continue
        # The source's digest is a note about where the file comes from, and there is padding.
        assert same(found[1], expected)
        assert found[0].config == header.config
    in_numbers = at >= 8 + int.from_bytes(codec.path.read_bytes()[:8], "little")
    assert seen >= in_numbers


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True))
def test_a_part_of_a_file_is_refused(codec: Codec, tmp_path: Path, share: float) -> None:
    data = codec.path.read_bytes()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(data[: int(share * len(data))])
    with pytest.raises(EngineError):
        load(cut, "audio_decoder")


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, b"PK\x03\x04" + bytes(60), b"\x80\x02c", bytes(1024)])
def test_what_is_no_safetensors_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(EngineError):
        read_header(tmp_path / "x.safetensors")


def test_a_missing_file_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        read_header(tmp_path / "none.safetensors")


def test_a_file_that_cannot_be_written_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        save(tmp_path / "none" / "x.safetensors", SMALL, arrays(), "0")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "another"},
        {"config": "{"},
        {"config": "[" * 100_000},
        {"config": '{"encoder_channels": 0, "decoder_channels": 64}'},
        {"extra": "x"},
        {"audio_decoder": "0" * 64},
    ],
)
def test_a_foreign_header_is_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    path = write(tmp_path / "x.safetensors", arrays(), **changes)
    with pytest.raises(EngineError):
        load(path, "audio_decoder")


def wrong_shape(decoder: Tensors) -> str:
    decoder["audio_decoder.pre_conv.bias"] = np.zeros(65, np.float32)
    return "audio_decoder.pre_conv.bias"


def wrong_type(decoder: Tensors) -> str:
    decoder["audio_decoder.pre_conv.bias"] = np.zeros(64, np.float16)
    return "audio_decoder.pre_conv.bias"


def missing(decoder: Tensors) -> str:
    del decoder["audio_decoder.post_conv.bias"]
    return "audio_decoder.post_conv.bias"


def unknown(decoder: Tensors) -> str:
    decoder["audio_decoder.extra"] = np.zeros(1, np.float32)
    return "audio_decoder.extra"


@pytest.mark.parametrize("damage", [wrong_shape, wrong_type, missing, unknown])
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, damage: Any) -> None:
    parts = arrays()
    name = damage(parts["audio_decoder"])
    path = write(tmp_path / "x.safetensors", parts)
    with pytest.raises(EngineError, match=name):
        load(path, "audio_encoder")
