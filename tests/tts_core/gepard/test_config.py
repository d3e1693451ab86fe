from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.gepard.cases import published
from tts_core.errors import SettingsError
from tts_core.gepard.config import MAX_BYTES, Backbone, Cloning, GepardConfig, Repetition, Special
from tts_core.nanocodec import fsq


def parse(raw: dict[str, Any]) -> GepardConfig:
    return GepardConfig.parse(json.dumps(raw).encode())


def test_published() -> None:
    config = parse(published())
    assert config.backbone == Backbone(1024, 3584, 14, 8, 2, 256, 248320, 262144, 1e-6, 1e7, 256)
    assert config.special == Special(248073, 248074, 248070, 248071, 248076)
    assert config.special.ids == {248073, 248074, 248070, 248071, 248076}
    assert config.levels == fsq.LEVELS
    assert config.repetition == Repetition(True, 16, 13, 8)
    assert config.cloning == Cloning(8, 2, 8, 4096, unfolds=False, projected=True)
    assert (config.dtype, config.audio_embed_dim, config.hidden_size, config.prefix_rows) == (
        "bfloat16", 32, 1024, 8,
    )  # fmt: skip


def test_defaults_of_what_is_left_out() -> None:
    raw = published()
    for name in ("text_repetition", "voice_cloning", "codec", "model_dtype", "audio_embed_dim"):
        del raw[name]
    config = parse(raw)
    assert not config.repetition.enabled
    assert config.cloning is None and config.prefix_rows == 0
    assert (config.dtype, config.audio_embed_dim) == ("bfloat16", 32)


def test_the_order_of_heads_survives_a_sorting_of_keys() -> None:
    raw = published()
    raw["audio_heads"] = dict(sorted(raw["audio_heads"].items()))
    assert [*raw["audio_heads"]][2] == "level_audio_10"
    assert parse(raw).levels == fsq.LEVELS


def test_heads_without_numbers_keep_the_order_of_the_file() -> None:
    raw = published()
    raw["audio_heads"] = {chr(ord("z") - k) * 3 if k < 26 else "_" * k: v for k, v in enumerate(fsq.LEVELS)}
    assert parse(raw).levels == fsq.LEVELS


@pytest.mark.parametrize(
    ("name", "torch_name"),
    [("bf16", "bfloat16"), ("torch.float16", "float16"), ("half", "float16"), ("Float", "float32")],
)
def test_spellings_of_number_types(name: str, torch_name: str) -> None:
    assert parse({**published(), "model_dtype": name}).dtype == torch_name


def test_an_old_spelling_of_the_levels() -> None:
    raw = published()
    raw["codec"]["fsq_Levels"] = raw["codec"].pop("fsq_levels")
    assert parse(raw).levels == fsq.LEVELS
    raw["codec"]["fsq_Levels"] = [8, 5, 5, 5]
    with pytest.raises(SettingsError, match="fsq_levels"):
        parse(raw)


def test_rotary_is_taken_from_the_top_alone() -> None:
    raw = published()
    raw["backbone_config"]["partial_rotary_factor"] = 0.25
    raw["backbone_config"]["rope_parameters"]["partial_rotary_factor"] = 0.25
    assert parse(raw).backbone.rotary_dim == 256
    raw["partial_rotary_factor"] = 0.25
    assert parse(raw).backbone.rotary_dim == 64


def test_theta_may_be_flat_or_left_out() -> None:
    raw = published()
    del raw["backbone_config"]["rope_parameters"]
    assert parse(raw).backbone.theta == 1e7
    raw["backbone_config"]["rope_theta"] = 10000.0
    assert parse(raw).backbone.theta == 1e4


def _in(name: str, key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        raw[name][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.pop("backbone_config"), "backbone_config"),
        (lambda raw: raw.pop("special_tokens"), "special_tokens"),
        (lambda raw: raw.update(model_type="llama"), "model_type"),
        (lambda raw: raw.update(model_dtype="int8"), "model_dtype"),
        (lambda raw: raw.update(audio_embed_dim=0), "audio_embed_dim"),
        (lambda raw: raw.update(audio_embed_dim="32"), "audio_embed_dim"),
        (lambda raw: raw.update(partial_rotary_factor=0.0), "partial_rotary_factor"),
        (lambda raw: raw.update(partial_rotary_factor=0.3), "partial_rotary_factor"),
        (lambda raw: raw["audio_heads"].pop("level_audio_3"), "audio_heads"),
        (_in("audio_heads", "level_audio_3", 8), "audio_heads"),
        (_in("backbone_config", "hidden_size", 0), "hidden_size"),
        (_in("backbone_config", "hidden_size", None), "hidden_size"),
        (_in("backbone_config", "num_key_value_heads", 3), "num_key_value_heads"),
        (_in("backbone_config", "layer_types", ["linear_attention"] * 14), "layer_types"),
        (_in("backbone_config", "layer_types", ["full_attention"] * 13), "layer_types"),
        (_in("backbone_config", "hidden_act", "gelu"), "hidden_act"),
        (_in("backbone_config", "attention_bias", True), "bias"),
        (_in("backbone_config", "attn_output_gate", False), "gate"),
        (_in("backbone_config", "rope_parameters", {"rope_type": "yarn"}), "rope_type"),
        (_in("backbone_config", "rms_norm_eps", 0.0), "rms_norm_eps"),
        (_in("special_tokens", "start_of_text", 248320), "start_of_text"),
        (_in("special_tokens", "end_of_text", True), "end_of_text"),
        (_in("special_tokens", "start_of_speech", 248073), "same id"),
        (_in("codec", "sample_rate", 44100), "codec"),
        (_in("codec", "num_layers", 4), "codec"),
        (_in("text_repetition", "max_repeats", 0), "max_repeats"),
        (_in("voice_cloning", "compressor", {"d_model": 512}), "compressor"),
        (_in("voice_cloning", "compressor", {"num_heads": 7}), "compressor"),
        (_in("voice_cloning", "compressor", {"num_queries": 0}), "num_queries"),
    ],
)
def test_what_cannot_be_served_is_named(change: Callable[[dict[str, Any]], None], words: str) -> None:
    raw = published()
    change(raw)
    with pytest.raises(SettingsError, match=words):
        parse(raw)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gepard_config\.json"):
        GepardConfig.read(tmp_path)
    (tmp_path / "gepard_config.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(SettingsError, match="too large"):
        GepardConfig.read(tmp_path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_any_change_parses_or_is_refused_in_our_words(data: st.DataObject) -> None:
    raw = published()
    for _ in range(data.draw(st.integers(1, 3))):
        place = raw
        while True:
            key = data.draw(st.sampled_from(sorted(place)))
            if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        place[key] = data.draw(_VALUES)
    try:
        config = parse(raw)
    except SettingsError as error:
        assert error.message and len(error.message) < 300
    else:
        assert config.levels == fsq.LEVELS
        assert config.backbone.rotary_dim <= config.backbone.head_dim
        assert max(config.special.ids) < config.backbone.vocab_size


@given(st.binary(max_size=64) | st.integers(1, 100_000).map(lambda n: b"[" * n))
def test_bytes_that_are_no_configuration(data: bytes) -> None:
    with pytest.raises(SettingsError):
        GepardConfig.parse(data)
