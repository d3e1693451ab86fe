from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.virtual import Clock
from tts_core.gepard.hunger import PATIENT_S, STARVED, STUCK_S, Hunger


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stuck(hunger: Hunger) -> bool:
    return hunger.stuck


def leave(hunger: Hunger, clock: Clock, after: float) -> None:
    """Wait in vain and go."""
    with pytest.raises(TimeoutError), hunger.waiting():
        clock.now += after
        raise TimeoutError


def test_a_model_that_nobody_asks_is_not_stuck(clock: Clock) -> None:
    hunger = Hunger(clock)
    with hunger.waiting():
        clock.now += 1
    clock.now += 10 * STUCK_S
    assert not stuck(hunger)


def test_one_that_gives_nothing_to_who_waits_is(clock: Clock) -> None:
    hunger = Hunger(clock)
    with hunger.waiting():
        clock.now += STUCK_S - 0.1
        assert not stuck(hunger)
        clock.now += 0.2
        assert stuck(hunger)
        hunger.forget()
        assert not stuck(hunger)
    assert not stuck(hunger)


def test_frames_for_anybody_are_a_sign_of_life(clock: Clock) -> None:
    hunger = Hunger(clock)
    with ExitStack() as stack:
        stack.enter_context(hunger.waiting())
        for _ in range(10):
            clock.now += STUCK_S / 2
            with hunger.waiting():
                pass
            assert not stuck(hunger)


def test_many_who_left_hungry_count_though_nobody_waits_now(clock: Clock) -> None:
    hunger = Hunger(clock)
    for _ in range(STARVED - 1):
        leave(hunger, clock, PATIENT_S)
    clock.now += STUCK_S
    assert not stuck(hunger)
    leave(hunger, clock, PATIENT_S)
    assert stuck(hunger)
    with hunger.waiting():
        pass
    assert not stuck(hunger)


def test_who_leaves_early_says_nothing(clock: Clock) -> None:
    hunger = Hunger(clock)
    for _ in range(20):
        leave(hunger, clock, PATIENT_S / 2)
    clock.now += STUCK_S
    assert not stuck(hunger)
