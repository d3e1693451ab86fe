"""A ``.nemo`` becomes our file, strictly; a hostile one is refused and nothing in it runs."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.tts_core.nanocodec import plain
from tests.tts_core.nanocodec.cases import Codec
from tts_core.errors import EngineError
from tts_core.nanocodec import convert as convert_module
from tts_core.nanocodec.archive import CHECKPOINT, CONFIG, read_members
from tts_core.nanocodec.config import CodecConfig
from tts_core.nanocodec.convert import (
    Converted,
    convert,
    convert_here,
    ensure,
    load_checkpoint,
    main,
    parse_yaml,
)
from tts_core.nanocodec.fsq import GROUP_LEVELS
from tts_core.nanocodec.tiny import make_tiny_nemo, nemo_config, state_dict
from tts_core.nanocodec.weights import file_digest, load, read_header

SMALL = CodecConfig(1, 64)


def saved(thing: object) -> bytes:
    out = io.BytesIO()
    torch.save(thing, out)
    return out.getvalue()


def nemo(path: Path, document: bytes, checkpoint: bytes) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in ((CONFIG, document), (CHECKPOINT, checkpoint)):
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def document(config: CodecConfig = SMALL, **changes: object) -> bytes:
    return yaml.safe_dump({**nemo_config(config), **changes}).encode()


@pytest.fixture(scope="module")
def stored() -> dict[str, torch.Tensor]:
    return state_dict(SMALL, seed=5)


def refused(tmp_path: Path, document: bytes, checkpoint: bytes) -> str:
    path = nemo(tmp_path / "x.nemo", document, checkpoint)
    with pytest.raises(EngineError) as error:
        convert_here(path, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()
    assert str(tmp_path) not in error.value.message
    return error.value.message


# -- what must work -----------------------------------------------------------------------------------


def test_the_weights_are_those_of_the_checkpoint(codec: Codec, converted: Converted) -> None:
    original = load_checkpoint(read_members(codec.nemo)[1])
    for part in ("audio_decoder", "audio_encoder"):
        header, arrays = load(codec.path, part)
        assert header.source == converted.source == file_digest(codec.nemo)
        for name, array in arrays.items():
            owner, _, kind = name.rpartition(".")
            if kind == "weight":
                expected = plain.weight(original, owner)
                assert np.allclose(array, expected.numpy(), rtol=1e-6, atol=0)
            elif kind == "bias":
                assert np.array_equal(array, original[f"{owner}.conv.bias"].numpy())
            else:
                alpha = original[f"{owner}.activation.snake_act.alpha"]
                assert np.array_equal(array, alpha.flatten().numpy())


def test_what_only_training_needs_is_left_out(tmp_path: Path, stored: dict[str, torch.Tensor]) -> None:
    more = {
        **stored,
        "discriminator.discriminators.0.convs.0.conv.bias": torch.zeros(3),
        "discriminator.discriminators.1.x": torch.zeros(1, dtype=torch.int64),
        "mel_loss_fn.mel_loss_fns.0.window": torch.ones(4),
    }
    for group in range(8):
        more[f"vector_quantizer.fsqs.{group}.num_levels"] = torch.tensor(GROUP_LEVELS).reshape(1, 4, 1)
        more[f"vector_quantizer.fsqs.{group}.dim_base_index"] = torch.tensor([1, 8, 56, 336]).reshape(1, 4, 1)
    path = nemo(tmp_path / "x.nemo", document(), saved(more))
    assert convert_here(path, tmp_path / "x.safetensors") == {"discriminator": 2, "mel_loss_fn": 1}
    assert read_header(tmp_path / "x.safetensors").config == SMALL


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats_are_taken(tmp_path: Path, stored: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    half = {name: tensor.to(dtype) for name, tensor in stored.items()}
    convert_here(nemo(tmp_path / "x.nemo", document(), saved(half)), tmp_path / "x.safetensors")
    _, arrays = load(tmp_path / "x.safetensors", "audio_decoder")
    expected = half["audio_decoder.pre_conv.conv.bias"].float().numpy()
    assert np.array_equal(arrays["audio_decoder.pre_conv.bias"], expected)


def test_a_gzipped_archive_is_the_same_codec(tmp_path: Path, codec: Codec) -> None:
    path = make_tiny_nemo(tmp_path / "x.nemo", gz=True)
    convert_here(path, tmp_path / "x.safetensors")
    assert read_header(tmp_path / "x.safetensors").digests == read_header(codec.path).digests


def test_it_is_converted_once(tmp_path: Path) -> None:
    path = make_tiny_nemo(tmp_path / "x.nemo", config=SMALL)
    target = ensure(path)
    assert target == tmp_path / "x.safetensors"
    before = target.stat().st_mtime_ns
    assert ensure(path) == target
    assert ensure(target) == target
    assert target.stat().st_mtime_ns == before


def test_a_replaced_nemo_is_converted_anew_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_tiny_nemo(tmp_path / "x.nemo", config=SMALL)
    target = ensure(path)
    before = read_header(target)
    assert not caplog.records
    make_tiny_nemo(path, config=SMALL, seed=1)
    assert ensure(path) == target
    after = read_header(target)
    assert after.source == file_digest(path) != before.source
    assert after.digests != before.digests
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "anew" in caplog.text
    assert ensure(path) == target
    assert len(caplog.records) == 1


def test_a_file_beside_the_nemo_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """It may be a checkpoint that happens to bear the name."""
    path = make_tiny_nemo(tmp_path / "model.nemo", config=SMALL)
    theirs = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, theirs)
    data = theirs.read_bytes()
    with pytest.raises(EngineError):
        ensure(path)
    assert theirs.read_bytes() == data


def test_a_replacement_that_cannot_be_converted_leaves_the_former_file(tmp_path: Path) -> None:
    path = make_tiny_nemo(tmp_path / "x.nemo", config=SMALL)
    data = ensure(path).read_bytes()
    path.write_bytes(b"?")
    with pytest.raises(EngineError):
        ensure(path)
    assert (tmp_path / "x.safetensors").read_bytes() == data


def test_class_names_in_the_configuration_are_not_looked_at(
    tmp_path: Path, stored: dict[str, torch.Tensor]
) -> None:
    loud = nemo_config(SMALL)
    loud["target"] = "os.system"
    for section in ("audio_decoder", "audio_encoder", "vector_quantizer", "generator_loss"):
        loud[section]["_target_"] = "os.system"
    path = nemo(tmp_path / "x.nemo", yaml.safe_dump(loud).encode(), saved(stored))
    assert convert_here(path, tmp_path / "x.safetensors") == {}


# -- what must be refused, and run nothing ------------------------------------------------------------


class Bomb:
    """Unpickled with a loader that trusts, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return (os.system, (f"touch {self.path}",))


@pytest.mark.parametrize("place", ["alone", "as a tensor", "as a name", "beside"])
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path, stored: dict[str, torch.Tensor], place: str) -> None:
    mark = tmp_path / "gone-off"
    bomb = Bomb(mark)
    thing: object = {
        "alone": bomb,
        "as a tensor": {**stored, "discriminator.x": bomb},
        "as a name": {bomb: torch.zeros(1)},
        "beside": [stored, bomb],
    }[place]
    path = nemo(tmp_path / "x.nemo", document(), saved(thing))
    with pytest.raises(EngineError, match="more than tensors"):
        convert(path, tmp_path / "x.safetensors")
    assert not mark.exists()
    assert not (tmp_path / "x.safetensors").exists()
    # It is a real one: with a loader that trusts it does go off.
    trusting = "import io, sys, torch; torch.load(io.BytesIO(sys.stdin.buffer.read()), weights_only=False)"
    subprocess.run([sys.executable, "-c", trusting], input=saved(thing), check=True, timeout=120)
    assert mark.exists()


@pytest.mark.parametrize(
    "hostile",
    [
        "!!python/object/apply:os.system ['touch gone-off']",
        "a: !!python/name:os.system",
        "a: &a [*a]\nb: !!python/object/new:os.system ['touch gone-off']",
        "[" * 50_000,
        "{a: b",
        "\x00",
    ],
)
def test_hostile_yaml_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: dict[str, torch.Tensor], hostile: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(tmp_path, hostile.encode(), saved(stored))
    assert not (tmp_path / "gone-off").exists()


def test_yaml_that_doubles_itself_is_read_in_no_time() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert isinstance(parse_yaml("\n".join(lines).encode()), dict)


@pytest.mark.parametrize(
    "thing",
    [
        [torch.zeros(1)],
        torch.zeros(1),
        {1: torch.zeros(1)},
        {"audio_decoder": {"x": torch.zeros(1)}},
        {"x": "text"},
        {f"discriminator.{n}": torch.zeros(0) for n in range(10_001)},
    ],
)
def test_what_is_no_state_dict_is_refused(thing: object) -> None:
    with pytest.raises(EngineError):
        load_checkpoint(saved(thing))


def test_the_old_form_of_checkpoints_is_refused(stored: dict[str, torch.Tensor]) -> None:
    out = io.BytesIO()
    torch.save(stored, out, _use_new_zipfile_serialization=False)
    with pytest.raises(EngineError, match="no zip"):
        load_checkpoint(out.getvalue())


def test_a_checkpoint_with_an_entry_twice_is_refused(stored: dict[str, torch.Tensor]) -> None:
    out = io.BytesIO(saved(stored))
    with zipfile.ZipFile(out, "a") as entries, pytest.warns(UserWarning, match="Duplicate"):
        entries.writestr(entries.namelist()[0], b"another")
    with pytest.raises(EngineError, match="twice"):
        load_checkpoint(out.getvalue())


def test_a_compressed_checkpoint_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as entries:
        entries.writestr("archive/data.pkl", bytes(1 << 24))
    with pytest.raises(EngineError, match="compressed"):
        load_checkpoint(out.getvalue())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True))
def test_a_part_of_a_checkpoint_is_refused(stored: dict[str, torch.Tensor], share: float) -> None:
    data = saved(stored)
    with pytest.raises(EngineError):
        load_checkpoint(data[: int(share * len(data))])


def lacks(stored: dict[str, torch.Tensor]) -> str:
    del stored["audio_decoder.res_layers.2.res_blocks.1.res_blocks.0.skip_conv.conv.bias"]
    return "audio_decoder.res_layers.2.res_blocks.1.res_blocks.0.skip_conv.conv.bias"


def unknown_decoder(stored: dict[str, torch.Tensor]) -> str:
    stored["audio_decoder.post_conv.conv.scale"] = torch.zeros(1)
    return "audio_decoder.post_conv.conv.scale"


def unknown_other(stored: dict[str, torch.Tensor]) -> str:
    stored["somewhere.else"] = torch.zeros(1)
    return "somewhere.else"


def misshapen(stored: dict[str, torch.Tensor]) -> str:
    name = "audio_encoder.pre_conv.conv.parametrizations.weight.original0"
    stored[name] = stored[name].reshape(-1)
    return name


def stretched(stored: dict[str, torch.Tensor]) -> str:
    """A few stored bytes that claim to be an enormous tensor."""
    name = "audio_decoder.pre_conv.conv.bias"
    stored[name] = torch.zeros(1).expand(1 << 40)
    return name


def whole_numbers(stored: dict[str, torch.Tensor]) -> str:
    name = "audio_decoder.activations.0.activation.snake_act.alpha"
    stored[name] = stored[name].to(torch.int32)
    return name


def infinite(stored: dict[str, torch.Tensor]) -> str:
    stored["audio_decoder.post_conv.conv.bias"] = torch.tensor([float("inf")])
    return "audio_decoder.post_conv.bias"


def no_direction(stored: dict[str, torch.Tensor]) -> str:
    """A weight of norm zero cannot be scaled."""
    name = "audio_decoder.post_conv.conv.parametrizations.weight.original1"
    stored[name] = torch.zeros_like(stored[name])
    return "audio_decoder.post_conv.weight"


def other_levels(stored: dict[str, torch.Tensor]) -> str:
    stored["vector_quantizer.fsqs.3.num_levels"] = torch.tensor([8, 5, 5, 5]).reshape(1, 4, 1)
    return "vector_quantizer.fsqs.3.num_levels"


@pytest.mark.parametrize(
    "damage",
    [
        *(lacks, unknown_decoder, unknown_other, misshapen, stretched, whole_numbers, infinite),
        *(no_direction, other_levels),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    tmp_path: Path, stored: dict[str, torch.Tensor], damage: Callable[[dict[str, torch.Tensor]], str]
) -> None:
    changed = dict(stored)
    name = damage(changed)
    assert name in refused(tmp_path, document(), saved(changed))


def test_another_configuration_is_refused(tmp_path: Path, stored: dict[str, torch.Tensor]) -> None:
    assert "sample_rate" in refused(tmp_path, document(sample_rate=44100), saved(stored))
    refused(tmp_path, document(CodecConfig(1, 96)), saved(stored))


# -- the child ----------------------------------------------------------------------------------------


def test_the_child_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        convert(tmp_path / "none.nemo", tmp_path / "x.safetensors")


def test_a_child_that_dies_is_an_engine_error(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "_COMMAND", "import os; os.abort()")
    with pytest.raises(EngineError, match="died"):
        convert(codec.nemo, tmp_path / "x.safetensors")


def test_a_child_that_hangs_is_ended(tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "_COMMAND", "import signal; signal.pause()")
    with pytest.raises(EngineError, match="too long"):
        convert(codec.nemo, tmp_path / "x.safetensors", deadline_s=0.5)


def test_the_child_has_none_of_our_settings(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXWIRE_SECRET", "x")
    told = 'import json, os; print(json.dumps({"error": [k for k in os.environ if "VOXWIRE" in k]}))'
    monkeypatch.setattr(convert_module, "_COMMAND", told)
    with pytest.raises(EngineError, match=r"^\[\]$"):
        convert(codec.nemo, tmp_path / "x.safetensors")


def test_a_program_cannot_be_started_is_an_engine_error(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="started"):
        convert(codec.nemo, tmp_path / "x.safetensors")


def test_the_childs_program(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here, without its limits, which would bind these tests as well."""
    monkeypatch.setattr(convert_module, "_limit", lambda: None)
    monkeypatch.setattr(sys, "argv", ["", str(codec.nemo), str(tmp_path / "x.safetensors")])
    main()
    assert capsys.readouterr().out == '{"ignored": {}}\n'
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "none"), str(tmp_path / "y.safetensors")])
    main()
    assert capsys.readouterr().out == '{"error": "the codec file cannot be read"}\n'


def test_the_result_is_private_until_whole(tmp_path: Path, codec: Codec) -> None:
    convert(codec.nemo, tmp_path / "x.safetensors")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]
    assert stat.S_ISREG((tmp_path / "x.safetensors").stat().st_mode)
