from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tts_core.errors import SettingsError
from tts_core.gepard.config import GepardConfig
from tts_core.gepard.plugin.serving import (
    Plan,
    check_blocks,
    check_memory,
    engine_arguments,
    make_plan,
    write_folder,
)
from tts_core.gepard.prompt import longest_prompt

SIZES: dict[str, Any] = {
    "dtype": "bfloat16",
    "max_streams": 32,
    "max_frames": 512,
    "max_context": 64,
    "voices": 256,
    "guidance": False,
    "kv_bytes": None,
}


@pytest.fixture
def config(directory: Path) -> GepardConfig:
    return GepardConfig.read(directory)


def plan(config: GepardConfig, **changes: Any) -> Plan:
    return make_plan(config, **{**SIZES, **changes})


def test_the_cache_holds_every_stream_at_full_length(config: GepardConfig) -> None:
    made = plan(config)
    assert made.positions == longest_prompt(config) + 64 + 512
    per_token = 2 * 2 * 2 * 32 * 2
    blocks = made.kv_bytes // per_token // 128
    check_blocks(made, blocks, 128)
    check_blocks(made, blocks * 8, 16)
    with pytest.raises(SettingsError, match=r"holds 31 sequences .* instead of 32"):
        check_blocks(made, blocks - 1, 128)


def test_guided_requests_take_two_sequences_and_one_step(config: GepardConfig) -> None:
    made, single = plan(config, guidance=True), plan(config)
    assert made.rows == 64
    assert made.kv_bytes > 1.9 * single.kv_bytes
    arguments = engine_arguments(Path("x"), made, cpu=True, compiled=False)
    assert arguments["max_num_batched_tokens"] >= 2 * made.prompt + 64
    assert engine_arguments(Path("x"), single, cpu=True, compiled=False)["max_num_batched_tokens"] == 256


def test_a_cache_that_is_too_small_says_what_would_fit(config: GepardConfig) -> None:
    whole = plan(config).kv_bytes
    assert plan(config, kv_bytes=whole).kv_bytes == whole
    with pytest.raises(SettingsError, match="raise kv_bytes, or lower max_streams to 15") as caught:
        plan(config, kv_bytes=whole // 2)
    assert plan(config, kv_bytes=whole // 2, max_streams=15).rows == 15
    assert "MiB" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "int8"}, "dtype"),
        ({"max_streams": 0}, "max_streams"),
        ({"max_frames": 4096}, "lower max_frames by"),
        ({"frame_rows": 1000}, "power of two"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(config: GepardConfig, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        plan(config, **changes)


def test_the_folder_is_the_checkpoint_in_vllms_words(
    config: GepardConfig, directory: Path, tmp_path: Path
) -> None:
    made = plan(config)
    write_folder(tmp_path, config, made, directory / "model.safetensors")
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["GepardForCausalLM"]
    assert values["rope_parameters"] == {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 1.0,
    }
    assert values["vocab_size"] == config.backbone.vocab_size
    assert values["gepard"]["layout"]["stop"] == config.special.end_of_speech
    assert values["gepard"]["layout"]["fault"] not in config.special.ids
    assert (tmp_path / "model.safetensors").read_bytes()[:8] == (
        directory / "model.safetensors"
    ).read_bytes()[:8]


def test_a_model_that_names_no_end_of_speech_has_a_stop_id_too(config: GepardConfig) -> None:
    bare = replace(config, special=replace(config.special, end_of_speech=None, tts_pad=None))
    layout = plan(bare).layout
    assert len({layout.stop, layout.fault, *bare.special.ids}) == 5


def test_memory_that_is_not_there_is_noticed_before_it_is_used(config: GepardConfig, directory: Path) -> None:
    check_memory(plan(config), directory / "model.safetensors")
    with pytest.raises(SettingsError, match="lower max_streams"):
        check_memory(replace(plan(config), kv_bytes=1 << 50), directory / "model.safetensors")
