"""A process that works slowly is left alone; one that hangs or goes round in circles is not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual import Clock
from tts_core.nanocodec.vigil import BUSY_S, IDLE_S, LOOK_S, SILENT_S, Vigil, processor_s


class Process:
    """Uses ``share`` of a core; None where nobody can tell."""

    def __init__(self, share: float | None) -> None:
        self.clock = Clock()
        self.share = share
        self.used = 5.0
        self.vigil = Vigil(lambda: None if self.share is None else self.used, self.clock)

    def watched(self, seconds: float) -> tuple[float, str]:
        """Look at it for some seconds: when something was wrong with it, and what."""
        began = self.clock.now
        while self.clock.now - began < seconds:
            self.clock.now += LOOK_S
            self.used += LOOK_S * (self.share or 0.0)
            if wrong := self.vigil.look():
                return self.clock.now - began, wrong
        return seconds, ""


def test_one_that_uses_no_processor_hangs() -> None:
    took, wrong = Process(0.0).watched(1000)
    assert wrong == "silent and idle"
    assert IDLE_S <= took <= IDLE_S + 2 * LOOK_S


def test_one_that_gets_little_of_a_busy_machine_is_only_slow() -> None:
    took, wrong = Process(0.1).watched(10_000)
    assert took >= SILENT_S - LOOK_S
    assert wrong == "silent for too long"
    assert Process(0.1).watched(6 * IDLE_S) == (6 * IDLE_S, "")


def test_one_that_goes_round_in_circles_is_found_before_that() -> None:
    took, wrong = Process(1.0).watched(10_000)
    assert wrong == "busy without a result"
    assert BUSY_S <= took <= BUSY_S + 2 * LOOK_S < SILENT_S


def test_one_that_stops_after_a_while_is_found_then() -> None:
    process = Process(0.5)
    assert process.watched(15) == (15, "")
    process.share = 0.0
    took, wrong = process.watched(1000)
    assert wrong == "silent and idle"
    assert took == pytest.approx(IDLE_S, abs=LOOK_S)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0, None])
def test_whoever_is_heard_is_well(share: float | None) -> None:
    process = Process(share)
    for _ in range(200):
        assert process.watched(IDLE_S - 2 * LOOK_S)[1] == ""
        process.vigil.heard()


def test_without_processor_time_the_long_bound_counts() -> None:
    took, wrong = Process(None).watched(10_000)
    assert wrong == "silent for too long"
    assert took == pytest.approx(SILENT_S, abs=LOOK_S)


@given(st.lists(st.floats(0.05, 1.0), max_size=100))
def test_nobody_who_moves_at_every_look_is_called_idle(shares: list[float]) -> None:
    process = Process(None)
    for share in shares:
        process.share = share
        assert process.watched(LOOK_S)[1] != "silent and idle"


def test_the_processor_time_is_the_processes_own() -> None:
    """A child that works has used what it says it has; one that sleeps has not moved since."""
    work = (
        "import sys, time\nwhile time.process_time() < 0.3: pass\n"
        "print(time.process_time(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = float(child.stdout.readline())
        seen = processor_s(child.pid)
        assert seen == pytest.approx(said, abs=0.1)
    assert processor_s(child.pid) is None
    assert (processor_s(os.getpid()) or 0) > 0
