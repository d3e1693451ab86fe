"""The share of time spent working."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.nanocodec.duty import Duty


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_is_the_share_of_the_window() -> None:
    clock = Clock()
    duty = Duty(clock=clock)
    assert duty.value() == 0
    for _ in range(100):
        clock.now += 0.2
        duty.add(0.05)
    assert duty.value() == pytest.approx(0.25, abs=0.02)


def test_it_is_over_less_time_at_the_start() -> None:
    clock = Clock()
    duty = Duty(clock=clock)
    clock.now += 2
    duty.add(1)
    assert duty.value() == pytest.approx(0.5)


def test_idleness_brings_it_back_to_nothing() -> None:
    clock = Clock()
    duty = Duty(clock=clock)
    clock.now += 5
    duty.add(5)
    clock.now += 10.1
    assert duty.value() == 0


def test_all_workers_busy_is_one() -> None:
    clock = Clock()
    duty = Duty(2, clock=clock)
    for _ in range(40):
        clock.now += 0.5
        duty.add(0.5)
        duty.add(0.5)
    assert duty.value() == pytest.approx(1, abs=0.03)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), max_size=200))
def test_it_stays_in_bounds_and_small(steps: list[tuple[float, float]]) -> None:
    clock = Clock()
    duty = Duty(clock=clock)
    for pause, busy in steps:
        clock.now += pause
        duty.add(busy)
        assert 0 <= duty.value() <= 1
    assert len(duty._spells) <= 22
