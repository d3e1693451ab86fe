from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.gepard.budget import FRAME_S
from tts_core.gepard.ramp import LAST_S, MOST, SIZES, Ramp


def play(step_s: float, frames: int, lead: float = 0.0, *, chunk_s: float = 0.0) -> tuple[list[int], float]:
    """Chunk sizes of a request whose frames come every ``step_s``; and how long its listener was dry.

    ``lead`` seconds of sound are in hand at the start, a chunk is decoded in ``chunk_s``.
    """
    ramp, dry = Ramp(pace=step_s), 0.0
    sizes: list[int] = []
    now, due, made, taken, before = 0.0, lead, 0, 0, 0.0
    while taken < frames:
        made = min(frames, max(made, int(now / step_s + 1e-9)))
        count = ramp.take(made - taken, due - now, ended=made == frames)
        if not count:
            now += step_s
            continue
        now += chunk_s
        ramp.took(count, now - before)
        before = now
        if sizes or lead:
            dry += max(0.0, now - due)
        due = max(due, now) + count * FRAME_S
        sizes.append(count)
        taken += count
    return sizes, dry


def test_a_fast_model_ramps_one_two_four_eight() -> None:
    sizes, dry = play(FRAME_S / 15, 100)
    assert sizes[:4] == [1, 2, 4, 8]
    assert set(sizes[4:-1]) == {8}
    assert dry == 0


def test_a_model_at_real_time_is_waited_for_once() -> None:
    sizes, dry = play(FRAME_S, 20)
    assert sizes == [2] + [1] * 18
    assert dry == 0


@pytest.mark.parametrize(("speed", "first"), [(15, 1), (2, 1), (1.9, 2), (1, 2), (0.7, 3), (0.1, 4)])
def test_the_slower_the_model_the_more_it_begins_with(speed: float, first: int) -> None:
    assert Ramp(pace=FRAME_S / speed).wanted(0.0) == first


def test_with_much_in_hand_the_first_chunk_is_large_already() -> None:
    assert play(FRAME_S / 15, 40, 2.0)[0][0] == 8


def test_what_waits_is_taken_at_once() -> None:
    ramp = Ramp(pace=0.003)
    assert [ramp.take(n, 0.0) for n in (0, 1, 7, 40)] == [0, 1, 7, MOST]
    assert ramp.take(3, 10.0) == 0
    assert ramp.take(3, 10.0, ended=True) == 3


def test_a_held_request_waits_for_its_frames_but_not_beyond_the_end() -> None:
    ramp = Ramp(hold=12)
    assert [ramp.take(n, 5.0) for n in (1, 11, 12, 1, 8)] == [0, 0, 12, 0, 8]
    assert Ramp(hold=12).take(5, 5.0, ended=True) == 5
    assert Ramp(hold=20).take(20, 5.0) == 20
    assert Ramp(hold=12, pace=0.003).take(3, LAST_S - 0.01) == 3  # the listener is about to run dry


@given(
    st.floats(0.02, 1.0),
    st.integers(1, 300),
    st.floats(0.0, 3.0),
    st.floats(0.0, 0.02),
)
def test_every_frame_comes_once_and_a_faster_model_never_lets_the_listener_run_dry(
    speed: float, frames: int, lead: float, chunk_s: float
) -> None:
    """``speed`` is the share of real time that a frame takes; with decoding it stays below real time."""
    step_s = FRAME_S * speed / 2
    sizes, dry = play(step_s, frames, lead, chunk_s=min(chunk_s, FRAME_S / 4))
    assert sum(sizes) == frames
    assert all(1 <= size <= MOST for size in sizes)
    # The first chunk may come after the lead is spent: before it there is nothing to be done.
    first = sizes[0] * step_s + FRAME_S / 4 - lead
    assert dry <= max(0.0, first) + 1e-9


@given(st.floats(-1, 10), st.lists(st.tuples(st.integers(1, 16), st.floats(0, 5))))
def test_sizes_are_those_of_the_ramp(lead: float, history: list[tuple[int, float]]) -> None:
    ramp = Ramp()
    for frames, seconds in history:
        ramp.took(frames, seconds)
    assert ramp.pace >= 0
    assert 1 <= ramp.wanted(lead) <= 8
    ramp.take(16, lead)
    assert ramp.wanted(lead) in SIZES
    assert ramp.wanted(lead) <= ramp.wanted(lead + 1)
