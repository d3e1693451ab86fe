"""The codec's shape: read strictly, and the tensors and states that follow from it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import EngineError
from tts_core.nanocodec.config import (
    CodecConfig,
    decoder_widths,
    encoder_widths,
    state_size,
    states,
    tensors,
)
from tts_core.nanocodec.tiny import nemo_config

RELEASED = CodecConfig()


def changed(*path: str, value: object = None, delete: bool = False) -> dict[str, Any]:
    document = copy.deepcopy(nemo_config(RELEASED))
    owner: Any = document
    for key in path[:-1]:
        owner = owner[key]
    if delete:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return document


def test_the_released_model() -> None:
    assert CodecConfig.from_nemo(nemo_config(RELEASED)) == RELEASED
    assert decoder_widths(RELEASED) == (432, 216, 108, 54, 27)
    assert encoder_widths(RELEASED) == (24, 48, 96, 192, 384)
    # Counted in NeMo's own model: 31.56 and 31.0 million, weight norm folded.
    sizes = {part: sum(map(math.prod, tensors(RELEASED, part).values())) for part in PARTS}
    assert round(sizes["audio_decoder"] / 1e6, 2) == 31.56
    assert round(sizes["audio_encoder"] / 1e6, 1) == 31.0
    assert len(tensors(RELEASED, "audio_decoder")) == 290
    assert len(tensors(RELEASED, "audio_encoder")) == 194


PARTS: tuple[Any, ...] = ("audio_decoder", "audio_encoder")


def test_the_state_of_the_released_model() -> None:
    found = states(RELEASED)
    assert len(found) == 97
    assert state_size(RELEASED) == 182_712
    assert found["audio_decoder.pre_conv"].offset == 0


@given(st.integers(2, 40).map(lambda n: 32 * n), st.integers(1, 256))
def test_states_lie_side_by_side(decoder_channels: int, encoder_channels: int) -> None:
    config = CodecConfig(encoder_channels, decoder_channels)
    at = 0
    for state in states(config).values():
        assert state.offset == at
        assert state.size == state.channels * state.length > 0
        at += state.size
    assert at == state_size(config)


@given(st.integers(2, 128).map(lambda n: 32 * n), st.integers(1, 256))
def test_a_configuration_survives_both_forms(decoder_channels: int, encoder_channels: int) -> None:
    config = CodecConfig(encoder_channels, decoder_channels)
    assert CodecConfig.from_dict(config.as_dict()) == config
    assert CodecConfig.from_nemo(nemo_config(config)) == config


@pytest.mark.parametrize(
    "widths", [(0, 864), (24, 32), (24, 865), (24, 8192), (24.0, 864), (True, 864), ("24", 864)]
)
def test_impossible_widths_are_refused(widths: tuple[Any, Any]) -> None:
    with pytest.raises(EngineError):
        CodecConfig(*widths)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sample_rate",), 44100),
        (("output_sample_rate",), 44100),
        (("samples_per_frame",), 1764),
        (("semantic_codec",), {"sample_rate": 22050}),
        (("semantic_codec_path",), "other.nemo"),
        (("audio_decoder", "activation"), "lrelu"),
        (("audio_decoder", "up_sample_rates"), [8, 8, 2, 2, 4]),
        (("audio_decoder", "output_activation"), "tanh"),
        (("audio_decoder", "n_groups_equal_to_out_channels"), False),
        (("audio_decoder", "n_groups_equal_to_out_channels"), 1),
        (("audio_decoder", "resblock_kernel_sizes"), [3, 5, 7]),
        (("audio_decoder", "causal"), True),
        (("audio_encoder", "pad_mode"), "reflect"),
        (("audio_encoder", "down_sample_rates"), [2, 2, 8, 8]),
        (("vector_quantizer", "num_groups"), 4),
        (("vector_quantizer", "num_levels_per_group"), [8, 5, 5, 5]),
        (("vector_quantizer", "eps"), 0.01),
        (("vector_quantizer",), None),
        (("audio_decoder",), ["x"]),
    ],
)
def test_another_codec_is_refused(path: tuple[str, ...], value: object) -> None:
    with pytest.raises(EngineError, match=path[0]):
        CodecConfig.from_nemo(changed(*path, value=value))


@pytest.mark.parametrize(
    "path",
    [
        ("audio_decoder", "activation"),
        ("audio_encoder", "pad_mode"),
        ("vector_quantizer", "num_groups"),
        ("audio_encoder",),
        ("sample_rate",),
    ],
)
def test_what_has_no_safe_default_must_be_stated(path: tuple[str, ...]) -> None:
    with pytest.raises(EngineError, match=path[-1]):
        CodecConfig.from_nemo(changed(*path, delete=True))


def test_class_names_are_not_looked_at() -> None:
    for section in ("audio_decoder", "audio_encoder", "vector_quantizer"):
        document = changed(section, "_target_", value="os.system")
        assert CodecConfig.from_nemo(document) == RELEASED


@pytest.mark.parametrize("document", [None, [], "x", 1, {}, {"sample_rate": {}}])
def test_what_is_no_configuration_is_refused(document: object) -> None:
    with pytest.raises(EngineError):
        CodecConfig.from_nemo(document)


@pytest.mark.parametrize("document", [None, [], {}, {"encoder_channels": 24}, {"a": 1, "b": 2}])
def test_what_is_none_of_ours_is_refused(document: object) -> None:
    with pytest.raises(EngineError):
        CodecConfig.from_dict(document)
