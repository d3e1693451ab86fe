from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.tts_core.gepard.cases import published
from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import FILES, WEIGHTS, Checkpoint, sha256, shapes
from tts_core.gepard.config import GepardConfig
from tts_core.gepard.tiny import make_tiny

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    """A checkpoint of the test's own."""
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def change(copy: Path, by: Callable[[Tensors], Any]) -> None:
    tensors = load_file(copy / WEIGHTS)
    by(tensors)
    save_file(tensors, copy / WEIGHTS)


def test_the_published_file_s_arithmetic() -> None:
    """293 tensors; 555.5 million numbers, of which 511,217,664 in the backbone: the report's 555.7 M."""
    wanted = shapes(GepardConfig.parse(json.dumps(published()).encode()))
    assert len(wanted) == 293
    assert sum(prod(shape) for shape in wanted.values()) == 555_546_587
    assert sum(prod(s) for name, s in wanted.items() if name.startswith("model.")) == 511_217_664
    assert wanted["audio_embed_proj.0.weight"] == (1024, 1024)
    assert wanted["model.layers.13.self_attn.q_proj.weight"] == (4096, 1024)
    assert wanted["ref_compressor.blocks.1.ffn.up_proj.weight"] == (4096, 1024)


def test_opens(checkpoint: Checkpoint, directory: Path) -> None:
    assert checkpoint.directory == directory
    assert checkpoint.ignored == ("supcon_head.fc1.bias", "supcon_head.fc1.weight", "supcon_head.fc2.weight")
    assert checkpoint.tensors().keys() == shapes(checkpoint.config).keys()
    assert checkpoint.check_values() == sum(prod(s) for s in shapes(checkpoint.config).values())
    heads = checkpoint.tensors("codebook_heads.")
    assert heads["0.weight"].shape == (8, 64) and len(heads) == 64


def test_the_digest_follows_every_file(copy: Path) -> None:
    before = Checkpoint.open(copy).digest
    assert Checkpoint.open(copy).digest == before and len(before) == 64
    for name in FILES:
        kept = (copy / name).read_bytes()
        if name == WEIGHTS:
            change(copy, lambda tensors: tensors["stop_head.bias"].add_(1))
        else:
            (copy / name).write_bytes(kept + b"\n")
        assert Checkpoint.open(copy).digest != before
        (copy / name).write_bytes(kept)


@pytest.mark.parametrize("size", [(), (1,)])
def test_single_numbers_of_either_shape(copy: Path, size: tuple[int, ...]) -> None:
    def by(tensors: Tensors) -> None:
        for name in ("audio_embed_scale", "ref_compressor.output_scale"):
            tensors[name] = torch.tensor(0.25).reshape(size)

    change(copy, by)
    opened = Checkpoint.open(copy)
    assert opened.tensors("audio_embed_scale")[""].shape == (1,)
    assert opened.tensors("ref_compressor.")["output_scale"].shape == (1,)


def test_what_serves_training_is_ignored(copy: Path) -> None:
    names = ("lm_head.weight", "mtp.layers.0.weight", "aligner.a", "supcon_head.fc1.bias")
    change(copy, lambda tensors: tensors.update({name: torch.zeros(3) for name in names}))
    opened = Checkpoint.open(copy)
    assert set(names) <= set(opened.ignored)
    assert not any(name in opened.tensors() for name in names)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (lambda t: t.pop("stop_head.bias"), r"lacks stop_head\.bias"),
        (lambda t: [t.pop(f"codebook_heads.{k}.bias") for k in range(32)], r"heads\.0\.bias and 31 more"),
        (lambda t: t.pop("null_prefix"), "lacks null_prefix"),
        (lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(1)}), r"layers\.2\.mlp"),
        (lambda t: t.update({"x\ny": torch.zeros(1)}), r"x\?y"),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(63)}),
            r"model\.norm\.weight is 63 and must be 64",
        ),
        (lambda t: t.update({"stop_head.bias": torch.tensor(0.0)}), r"stop_head\.bias is a single number"),
        (lambda t: t.update({"audio_embed_scale": torch.zeros(2)}), "audio_embed_scale is 2 and must be 1"),
        (lambda t: t.update({"stop_head.weight": torch.zeros(64, 1)}), "64x1 and must be 1x64"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(64, dtype=torch.int64)}), "number type"),
    ],
)
def test_every_tensor_is_accounted_for(copy: Path, by: Callable[[Tensors], Any], words: str) -> None:
    change(copy, by)
    with pytest.raises(SettingsError, match=words):
        Checkpoint.open(copy)


def test_values_that_are_not_numbers(copy: Path) -> None:
    change(copy, lambda tensors: tensors["audio_embed_proj.2.bias"][3].fill_(float("nan")))
    with pytest.raises(SettingsError, match=r"audio_embed_proj\.2\.bias"):
        Checkpoint.open(copy).check_values()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_there(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        Checkpoint.open(copy)


def test_two_descriptions_that_do_not_agree(copy: Path) -> None:
    raw = json.loads((copy / "config.json").read_text())
    for key, value in (("num_hidden_layers", 3), ("rms_norm_eps", 1e-5), ("vocab_size", 513)):
        changed = {**raw, key: value, "layer_types": None}
        (copy / "config.json").write_text(json.dumps(changed))
        with pytest.raises(SettingsError, match=key):
            Checkpoint.open(copy)
    # What is known to be written differently by different tools is no disagreement.
    (copy / "config.json").write_text(json.dumps({**raw, "partial_rotary_factor": 0.25, "extra": 1}))
    Checkpoint.open(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(SettingsError, match=r"config\.json"):
        Checkpoint.open(copy)


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_weights_are_refused(directory: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Cut anywhere, or with bytes of the header changed: refused in our words, or harmless."""
    copy = tmp_path / "damaged"
    if not copy.exists():
        shutil.copytree(directory, copy)
    whole = (directory / WEIGHTS).read_bytes()
    (header,) = struct.unpack_from("<Q", whole)
    if data.draw(st.booleans()):
        spoiled = whole[: data.draw(st.integers(0, len(whole) - 1))]
        harmless = False
    else:
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 3))):
            changed[data.draw(st.integers(0, 8 + header - 1))] = data.draw(st.integers(0, 255))
        spoiled, harmless = bytes(changed), True
    (copy / WEIGHTS).write_bytes(spoiled)
    try:
        Checkpoint.open(copy)
    except SettingsError as error:
        assert error.message.startswith(("model.safetensors", "the checkpoint"))
        assert str(tmp_path) not in error.message
    else:
        assert harmless


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95",
        b"PK\x03\x04" + bytes(64),
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"{}",
    ],
)
def test_files_of_another_kind(copy: Path, data: bytes) -> None:
    (copy / WEIGHTS).write_bytes(data)
    with pytest.raises(SettingsError, match=r"model\.safetensors"):
        Checkpoint.open(copy)


@pytest.mark.parametrize("name", ["no/such/dir", "nothing", "../x/y", "a b/c", ""])
def test_neither_a_directory_nor_an_id(name: str) -> None:
    with pytest.raises(SettingsError):
        Checkpoint.open(name or "a/b/c")


@pytest.mark.parametrize("revision", [None, "main", "0123abc", "G" * 40])
def test_an_id_needs_a_commit(revision: str | None) -> None:
    with pytest.raises(SettingsError, match="revision"):
        Checkpoint.open("nineninesix/gepard-1.0", revision=revision)


def test_an_id_that_is_not_cached() -> None:
    with pytest.raises(SettingsError, match="not in the local cache"):
        Checkpoint.open(f"nineninesix/no-such@{'0' * 40}", offline=True)


def test_other_number_types(tmp_path: Path) -> None:
    opened = Checkpoint.open(make_tiny(tmp_path, dtype="bf16"))
    assert opened.config.dtype == "bfloat16"
    assert {t.dtype for t in opened.tensors().values()} == {torch.bfloat16}


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
