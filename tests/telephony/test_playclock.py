from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.playclock import PlayoutClock


def test_before_any_audio_nothing_is_heard() -> None:
    clock = PlayoutClock(8000)
    assert clock.heard(5.0) == 0
    assert clock.lead(5.0) == 0.0
    assert clock.floor_end == -math.inf


def test_lead_and_heard_follow_the_clock() -> None:
    clock = PlayoutClock(8000)
    assert clock.add(1600, 10.0) == 0.0
    assert clock.lead(10.05) == pytest.approx(0.15)
    assert clock.heard(10.05) == 400
    assert clock.heard(11.0) == 1600
    assert clock.add(1600, 11.0) == pytest.approx(0.8)
    assert clock.since == 11.0
    assert clock.heard(11.1) == 2400


def test_a_confirmed_mark_moves_heard_but_not_the_lead() -> None:
    clock = PlayoutClock(8000)
    clock.add(8000, 10.0)
    clock.confirm(1600, 10.3)  # 100 ms later than with no latency
    assert clock.heard(10.3) == 1600
    assert clock.heard(10.5) == 3200
    assert clock.lead(10.3) == pytest.approx(0.7)
    assert clock.heard(20.0) == 8000


def test_of_the_last_three_confirmations_the_soonest_counts() -> None:
    clock = PlayoutClock(8000)
    clock.add(16000, 10.0)
    clock.confirm(1600, 10.25)
    assert clock.heard(10.25) == 1600
    clock.confirm(3200, 10.60)  # waited for a stall of 150 ms
    assert clock.heard(10.60) == 4400
    clock.confirm(4800, 10.75)
    clock.confirm(6400, 10.95)
    clock.confirm(8000, 11.15)  # later for good: the peer waited for the network
    assert clock.heard(11.15) == 8000


def test_an_answer_of_a_peer_with_nothing_left_tells_no_time() -> None:
    clock = PlayoutClock(8000)
    clock.add(1600, 10.0)
    clock.confirm(1600, 15.0, timed=False)
    clock.add(1600, 15.0)
    assert clock.heard(15.1) == 2400


def test_a_cut_starts_anew_behind_what_was_sent() -> None:
    clock = PlayoutClock(8000)
    clock.add(8000, 10.0)
    assert clock.cut(10.25) == 2000
    assert clock.start == clock.sent == 8000
    assert clock.lead(10.25) == 0.0
    clock.add(160, 10.3)
    assert clock.heard(10.31) == 8080
    clock.confirm(4000, 10.31)  # of the old generation
    assert clock.heard(10.31) == 8080


Step = st.tuples(st.sampled_from(["add", "confirm", "cut"]), st.integers(0, 4000), st.floats(0, 1))


@given(st.lists(Step, max_size=40))
def test_heard_is_never_beyond_sent_nor_before_the_generation(steps: list[tuple[str, int, float]]) -> None:
    clock = PlayoutClock(8000)
    now = 10.0
    for verb, samples, wait in steps:
        now += wait
        before = clock.heard(now)
        if verb == "add":
            clock.add(samples, now)
            assert clock.heard(now) <= max(before + 1, clock.sent - samples + 1)
        elif verb == "confirm":
            clock.confirm(min(samples, clock.heard(now)), now)  # the ledger sorts out impossible ones
        else:
            start = clock.start
            assert start <= clock.cut(now) <= clock.sent == clock.start
        for later in (0.0, 0.1, 10.0):
            assert clock.start <= clock.heard(now + later) <= clock.sent
        assert clock.heard(now + 1e6) == clock.sent
