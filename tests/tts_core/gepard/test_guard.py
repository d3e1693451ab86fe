from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tts_core.gepard.guard import FLAT, ONSET, WINDOW, Guard

SHARE = st.floats(0.0, 1.0, width=32)


def test_a_model_that_latches_after_its_onset_is_fine() -> None:
    guard = Guard()
    assert not guard.push([1.0] * ONSET + [0.95] * (WINDOW - 1) + [0.4])
    assert not guard.push([0.5] * 100)


def test_flat_belief_past_the_onset_is_a_derailment_and_stays_one() -> None:
    guard = Guard()
    assert not guard.push([0.99] * (ONSET + WINDOW - 1))
    assert guard.push([0.99])
    assert guard.push([0.1] * 50)
    assert guard.derailed


def test_it_can_be_switched_off() -> None:
    assert not Guard(flat=2.0).push([1.0] * 500)


@given(st.lists(SHARE, max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_how_frames_come_does_not_matter_and_the_rule_is_the_windows_mean(
    values: list[float], cuts: list[int]
) -> None:
    guard = Guard()
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for start, end in pairwise(edges):
        guard.push(np.array(values[start:end], np.float32))
    past = values[ONSET:]
    means = [sum(past[i : i + WINDOW]) for i in range(len(past) - WINDOW + 1)]
    assert guard.derailed == any(total >= FLAT * WINDOW for total in means)
