from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.engine import Samples
from tts_core.gepard.silence import KEEP, LEVEL, MOST, WINDOW, LeadingSilence


def speech(silent: int, loud: int, level: float = 0.1) -> Samples:
    tone = level * np.sin(np.arange(loud) * 0.2)
    return np.concatenate((np.zeros(silent), tone)).astype(np.float32)


def run(pcm: Samples, cuts: list[int] | None = None, most: int = MOST) -> tuple[Samples, LeadingSilence]:
    trim = LeadingSilence(most)
    edges = [0, *sorted(min(cut, len(pcm)) for cut in cuts or []), len(pcm)]
    out = [trim.push(pcm[a:b]) for a, b in pairwise(edges)]
    return np.concatenate([*out, trim.finish()]), trim


def test_silence_is_left_out_up_to_a_margin() -> None:
    pcm = speech(3000, 5000)
    out, trim = run(pcm)
    assert 3000 - KEEP - WINDOW <= trim.dropped <= 3000 - KEEP
    assert np.array_equal(out, pcm[trim.dropped :])
    assert trim.heard


def test_sound_at_once_is_left_alone() -> None:
    pcm = speech(0, 3000)
    out, trim = run(pcm)
    assert trim.dropped == 0
    assert np.array_equal(out, pcm)


def test_a_long_silence_is_cut_to_its_bound_and_then_heard() -> None:
    pcm = speech(4 * MOST, 1000)
    out, trim = run(pcm, list(range(0, 5 * MOST, 1024)))
    assert trim.dropped == MOST
    assert len(out) == len(pcm) - MOST


def test_silence_to_the_end_leaves_a_little() -> None:
    out, trim = run(speech(3000, 0))
    assert len(out) + trim.dropped == 3000
    assert KEEP <= len(out) < KEEP + WINDOW
    assert np.array_equal(run(speech(0, 0))[0], np.zeros(0))


def test_the_benchmarks_threshold_is_above_ours_and_a_breath_stays() -> None:
    breath = speech(3000, 2000, level=2 * LEVEL)
    assert run(breath)[1].dropped < 3000


def test_it_can_be_switched_off() -> None:
    pcm = speech(3000, 100)
    out, trim = run(pcm, most=0)
    assert trim.heard
    assert np.array_equal(out, pcm)


@given(
    st.integers(0, 2 * MOST),
    st.integers(0, 4000),
    st.lists(st.integers(0, 3 * MOST), max_size=8),
    st.sampled_from([0, 100, 1024, MOST]),
)
def test_any_chunking_gives_the_same_and_nothing_but_silence_goes(
    silent: int, loud: int, cuts: list[int], most: int
) -> None:
    pcm = speech(silent, loud)
    whole, first = run(pcm, most=most)
    out, trim = run(pcm, cuts, most)
    assert np.array_equal(out, pcm[trim.dropped :])
    assert trim.dropped <= min(most, silent)
    if loud >= 2 * WINDOW:  # at the very end the cut may differ by what was not looked at yet
        assert np.array_equal(out, whole)
        assert trim.dropped == first.dropped
    assert trim.dropped == pytest.approx(min(most, max(0, silent - KEEP)), abs=2 * WINDOW)
