from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual import Clock
from tts_core.gepard.budget import FRAME_S
from tts_core.gepard.speed import SLOPE, Lap, Speed


def test_nothing_is_promised_before_a_measurement() -> None:
    speed = Speed(Clock())
    assert speed.xrt(32) == 0
    assert speed.frame_s(1) == FRAME_S


def test_one_stream_alone_gives_a_cautious_guess() -> None:
    speed = Speed(Clock())
    speed.add(1, FRAME_S / 15)
    assert speed.xrt(1) == pytest.approx(15)
    assert speed.xrt(11) == pytest.approx(11 * 15 / (1 + 10 * SLOPE))


@given(st.floats(0.001, 0.05), st.floats(0.0, 0.002), st.integers(4, 64))
def test_the_line_over_load_is_found(alone: float, each: float, most: int) -> None:
    speed = Speed(Clock())
    for _ in range(10):
        speed.add(1, alone + each)
        speed.add(most, alone + each * most)
    slots = most // 2
    # The guess weighs less than a tenth against ten requests at each end.
    error = SLOPE * (alone + each) * 0.1 * most
    assert speed.frame_s(slots) == pytest.approx(alone + each * slots, abs=error)
    assert speed.xrt(slots) == pytest.approx(slots * FRAME_S / speed.frame_s(slots))


def test_what_was_long_ago_is_forgotten() -> None:
    speed = Speed(Clock())
    for _ in range(100):
        speed.add(4, 0.004)
    for _ in range(100):
        speed.add(4, 0.008)
    assert speed.frame_s(4) == pytest.approx(0.008, rel=0.02)


def test_more_streams_are_never_thought_to_be_faster() -> None:
    speed = Speed(Clock())
    speed.add(1, 0.02)
    speed.add(8, 0.01)
    assert speed.frame_s(32) >= speed.frame_s(8) > 0


def test_a_lap_counts_from_the_first_sound_with_those_beside_it() -> None:
    clock = Clock()
    speed = Speed(clock)
    speed.enter()
    lap = Lap(speed)
    clock.now += 5.0  # the wait for the first sound is no speed
    lap.chunk(1)
    clock.now += 0.01
    lap.chunk(1)
    speed.enter()
    clock.now += 0.03
    lap.chunk(3)
    speed.leave()
    speed.leave()
    assert speed.running == 0
    lap.finish()
    assert speed.frame_s((0.01 + 2 * 0.03) / 0.04) == pytest.approx(0.01)


def test_a_request_that_its_reader_held_up_is_not_counted() -> None:
    clock = Clock()
    speed = Speed(clock)
    for stalled in (0.5, 0.1):
        lap = Lap(speed)
        lap.chunk(1)
        clock.now += 1.0
        lap.chunk(10, stalled)
        lap.finish()
        assert (speed.xrt(1) > 0) == (stalled == 0.1)
    assert speed.frame_s(0) == pytest.approx(0.09)


def test_one_chunk_is_no_measurement() -> None:
    speed = Speed(Clock())
    Lap(speed).finish()
    lap = Lap(speed)
    lap.chunk(4)
    lap.finish()
    assert speed.xrt(1) == 0
