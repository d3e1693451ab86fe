"""The breaker, without a store."""

from __future__ import annotations

from sessions.breaker import Breaker


def test_opens_after_failures_in_a_row_only() -> None:
    b = Breaker(threshold=3)
    assert not b.failed("A")
    assert not b.failed("A")
    b.succeeded()
    assert [b.failed("B") for _ in range(3)] == [False, False, True]
    assert b.open
    assert (b.failures, b.opened, b.last_error) == (5, 1, "B")


def test_only_a_probe_closes_it() -> None:
    b = Breaker(threshold=1)
    b.failed("A")
    b.succeeded()  # a call from before
    states = [b.open, b.probed(ok=False), b.open, b.probed(ok=True), b.open]
    assert states == [True, False, True, True, False]
    assert not b.probed(ok=True)


def test_probes_slow_down_and_start_afresh() -> None:
    b = Breaker(threshold=1, first_probe=0.1, slowest_probe=1.0)
    b.failed("A")
    delays = []
    for _ in range(6):
        delays.append(b.probe_delay())
        b.probed(ok=False)
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    b.probed(ok=True)
    b.failed("A")
    assert b.opened == 2
    assert b.probe_delay() == 0.1


def test_failures_while_open_do_not_open_again() -> None:
    b = Breaker(threshold=1)
    assert b.failed("A")
    assert not b.failed("A")
    assert b.opened == 1
