"""The decoder on ONNX Runtime is the decoder on torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tts_core.nanocodec.cases import CLOSE, Codec, cuts, in_crowd, some_codes, streamed
from tts_core.errors import EngineError
from tts_core.nanocodec import onnx, weights
from tts_core.nanocodec.config import state_size
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.onnx import OnnxDecoder

shared = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def graph(codec: Codec) -> OnnxDecoder:
    return OnnxDecoder.load(codec.path)


@shared
@given(total=st.integers(1, 40), data=st.data())
def test_cuts_make_no_difference(
    graph: OnnxDecoder, decoder: TorchDecoder, total: int, data: st.DataObject
) -> None:
    codes = some_codes(total, seed=total)
    samples = streamed(graph, codes, data.draw(cuts(total)))
    assert samples.dtype == np.float32
    assert np.abs(samples - decoder.whole(codes)).max() <= CLOSE


@shared
@given(total=st.integers(1, 24), count=st.integers(1, 5), data=st.data())
def test_company_makes_no_difference(
    graph: OnnxDecoder, decoder: TorchDecoder, total: int, count: int, data: st.DataObject
) -> None:
    sizes = data.draw(cuts(total))
    pick = st.lists(st.booleans(), min_size=count, max_size=count)
    picks = data.draw(st.lists(pick, min_size=len(sizes), max_size=len(sizes)))
    clips = [some_codes(total, seed=seed) for seed in range(count)]
    for codes, samples in zip(clips, in_crowd(graph, clips, sizes, picks), strict=True):
        assert np.abs(samples - decoder.whole(codes)).max() <= CLOSE


def test_a_state_is_one_vector(graph: OnnxDecoder) -> None:
    assert graph.new_state().shape == (state_size(graph.config),)
    assert not graph.new_state().any()


def test_the_graph_is_a_valid_model(codec: Codec) -> None:
    import onnx as official

    header, tensors = weights.load(codec.path, "audio_decoder")
    model = official.load_model_from_string(onnx.build(header.config, tensors))
    official.checker.check_model(model, full_check=True)
    assert {entry.domain for entry in model.opset_import} == {""}


def test_codes_beyond_their_levels_are_refused(graph: OnnxDecoder) -> None:
    with pytest.raises(EngineError):
        graph.step(np.full((1, 1, 32), 7, np.uint8), [graph.new_state()])


def test_what_it_does_not_take_is_an_engine_error(codec: Codec) -> None:
    header, tensors = weights.load(codec.path, "audio_decoder")
    tensors["audio_decoder.pre_conv.weight"] = tensors["audio_decoder.pre_conv.weight"].reshape(-1)
    with pytest.raises(EngineError):
        OnnxDecoder(header.config, tensors)
