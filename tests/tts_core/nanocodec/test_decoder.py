"""The stateful decoder: equal to the whole-clip network, to NeMo, and to itself however a clip is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tts_core.nanocodec import plain
from tests.tts_core.nanocodec.cases import CLOSE, Codec, cuts, in_crowd, some_codes, streamed
from tests.tts_core.nanocodec.oracle import Oracle
from tts_core.errors import EngineError
from tts_core.nanocodec.archive import read_members
from tts_core.nanocodec.config import LEFT_CONTEXT, state_size
from tts_core.nanocodec.convert import load_checkpoint
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.fsq import LEVELS, SAMPLES_PER_FRAME

shared = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_it_is_the_plain_network(decoder: TorchDecoder, codec: Codec) -> None:
    codes = some_codes(40, seed=3)
    with torch.inference_mode():
        expected = plain.decode(load_checkpoint(read_members(codec.nemo)[1]), codes)
    samples = decoder.whole(codes)
    assert samples.dtype == np.float32
    assert samples.shape == (40 * SAMPLES_PER_FRAME,)
    assert 0.02 < samples.std() < 0.3
    assert np.abs(samples - expected).max() <= CLOSE


def test_it_is_nemo(decoder: TorchDecoder, oracle: Oracle) -> None:
    samples = decoder.whole(oracle.codes)
    assert np.abs(samples - oracle.samples).max() <= CLOSE
    assert np.abs(samples - oracle.samples_of_tokens).max() <= CLOSE


@shared
@given(total=st.integers(1, 40), data=st.data())
def test_cuts_make_no_difference(decoder: TorchDecoder, total: int, data: st.DataObject) -> None:
    codes = some_codes(total, seed=total)
    sizes = data.draw(cuts(total))
    assert np.abs(streamed(decoder, codes, sizes) - decoder.whole(codes)).max() <= CLOSE


@shared
@given(total=st.integers(1, 24), count=st.integers(1, 5), data=st.data())
def test_company_makes_no_difference(
    decoder: TorchDecoder, total: int, count: int, data: st.DataObject
) -> None:
    sizes = data.draw(cuts(total))
    picks = data.draw(
        st.lists(
            st.lists(st.booleans(), min_size=count, max_size=count),
            min_size=len(sizes),
            max_size=len(sizes),
        )
    )
    clips = [some_codes(total, seed=seed) for seed in range(count)]
    for codes, samples in zip(clips, in_crowd(decoder, clips, sizes, picks), strict=True):
        assert np.abs(samples - decoder.whole(codes)).max() <= CLOSE


@pytest.mark.parametrize("frame", [0, 3, 11])
def test_it_never_looks_ahead_and_back_25_frames_at_most(decoder: TorchDecoder, frame: int) -> None:
    codes = some_codes(frame + LEFT_CONTEXT + 4, seed=1)
    other = codes.copy()
    other[frame] = np.array(LEVELS, np.uint8) - 1 - other[frame]
    change = np.abs(decoder.whole(codes) - decoder.whole(other)).reshape(-1, SAMPLES_PER_FRAME).max(axis=1)
    changed = np.flatnonzero(change)
    assert changed[0] == frame
    assert changed[-1] == frame + LEFT_CONTEXT


def test_a_window_of_25_frames_is_exact(decoder: TorchDecoder) -> None:
    codes = some_codes(60, seed=2)
    whole = decoder.whole(codes)
    for at in (26, 40, 59):
        window = decoder.whole(codes[at - LEFT_CONTEXT : at + 1])
        assert (
            np.abs(
                window[-SAMPLES_PER_FRAME:] - whole[at * SAMPLES_PER_FRAME : (at + 1) * SAMPLES_PER_FRAME]
            ).max()
            <= CLOSE
        )


def test_a_step_leaves_the_states_it_was_given(decoder: TorchDecoder) -> None:
    codes = some_codes(8)
    _, (state,) = decoder.step(codes[None, :4], [decoder.new_state()])
    before = state.clone()
    once, _ = decoder.step(codes[None, 4:], [state])
    again, _ = decoder.step(codes[None, 4:], [state])
    assert torch.equal(before, state)
    assert np.array_equal(once, again)


def test_no_frames_are_no_samples(decoder: TorchDecoder) -> None:
    assert decoder.whole(some_codes(0)).shape == (0,)


def test_a_state_is_one_vector(decoder: TorchDecoder) -> None:
    state = decoder.new_state()
    assert state.shape == (state_size(decoder.config),)
    assert not state.any()


def test_codes_beyond_their_levels_are_refused(decoder: TorchDecoder) -> None:
    codes: Any = np.full((1, 1, 32), 7, np.uint8)
    with pytest.raises(EngineError):
        decoder.step(codes, [decoder.new_state()])
