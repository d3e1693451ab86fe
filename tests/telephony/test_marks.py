from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.marks import MarkEvent, MarkLedger, Outcome
from telephony.playclock import PlayoutClock
from tts_core.errors import LegError

RATE = 8000


def ledger(**options: object) -> tuple[PlayoutClock, MarkLedger]:
    clock = PlayoutClock(RATE)
    return clock, MarkLedger(clock, **options)  # type: ignore[arg-type]


def test_a_mark_waits_for_its_audio_and_is_played_when_the_peer_says_so() -> None:
    clock, marks = ledger()
    marks.sent("greeting", 1600)
    assert marks.due(10.0) is None
    clock.add(1600, 10.0)
    name = marks.due(10.0)
    assert name == "0.1:1600"
    assert marks.due(10.0) is None
    assert marks.acked(name, 10.25) == [MarkEvent("greeting", 1600, Outcome.PLAYED)]
    assert marks.answered == 1
    assert len(marks) == 0
    assert marks.acked(name, 10.26) == []
    assert marks.unknown == 1


def test_heard_is_the_last_played_mark_and_the_time_since() -> None:
    clock, marks = ledger()
    clock.add(800, 10.0)
    marks.sent("a", 800)
    name = marks.due(10.0)
    assert name is not None
    clock.add(1600, 10.0)
    marks.acked(name, 10.14)  # 40 ms of latency
    assert marks.heard(10.14) == 800
    assert marks.heard(10.19) == 1200
    assert marks.heard(11.0) == 2400


def test_answers_after_a_clear_never_count_as_heard() -> None:
    """Twilio returns pending marks on clear."""
    clock, marks = ledger()
    clock.add(4000, 10.0)
    marks.sent("old", 4000)
    name = marks.due(10.0)
    assert name is not None
    heard, events = marks.clear(10.1)
    assert heard == 800
    assert events == [MarkEvent("old", 4000, Outcome.CLEARED)]
    clock.add(800, 10.12)
    assert marks.acked(name, 10.13) == []
    assert marks.stale == 1
    assert marks.heard(10.13) == 4080
    marks.sent("new", 4800)
    assert marks.due(10.13) == "1.2:4800"


def test_an_unanswered_mark_is_given_up_two_seconds_after_it_was_due() -> None:
    clock, marks = ledger()
    clock.add(8000, 10.0)
    marks.sent("end", 8000)
    assert marks.due(10.0) is not None
    assert marks.expire(12.99) == []
    assert marks.expire(13.0) == [MarkEvent("end", 8000, Outcome.TIMED_OUT)]
    assert marks.timed_out == 1
    assert marks.heard(13.0) == 8000


def test_answers_that_come_at_once_are_not_believed() -> None:
    """jambonz-feature-server#811: marks return immediately."""
    clock, marks = ledger()
    for index in range(3):
        now = 10.0 + index
        clock.add(8000, now)
        marks.sent(f"m{index}", clock.sent)
        name = marks.due(now)
        assert name is not None
        assert marks.trusted
        assert marks.acked(name, now + 0.01) == []
        assert marks.heard(now + 0.01) == index * 8000 + 80
        assert marks.expire(now + 0.99) == []
        assert marks.expire(now + 1.0) == [MarkEvent(f"m{index}", clock.sent, Outcome.CLOCK)]
    assert marks.early == 3
    assert not marks.trusted
    clock.add(8000, 13.0)
    marks.sent("by the clock", clock.sent)
    assert marks.due(13.0) is None
    assert marks.expire(14.0) == [MarkEvent("by the clock", clock.sent, Outcome.CLOCK)]


def test_a_peer_whose_clock_is_a_little_fast_is_believed() -> None:
    """200 ppm for ten minutes of speech without a pause are 120 ms."""
    clock, marks = ledger()
    clock.add(RATE * 600, 10.0)
    marks.sent("end", clock.sent)
    name = marks.due(10.0)
    assert name is not None
    assert marks.acked(name, 10.0 + 600 * (1 - 200e-6))[0].outcome is Outcome.PLAYED


def test_at_most_five_marks_a_second_go_out_and_the_others_ride_along() -> None:
    clock, marks = ledger()
    out: list[tuple[float, str]] = []
    for index in range(100):
        now = 10.0 + index * 0.02
        clock.add(160, now)
        marks.sent(str(index), clock.sent)
        name = marks.due(now)
        if name is not None:
            out.append((now, name))
    assert len(out) == 10
    assert all(b[0] - a[0] >= 0.2 - 1e-6 for a, b in itertools.pairwise(out))
    ended = [event for now, name in out for event in marks.acked(name, now + 0.1)]
    assert [event.name for event in ended] == [str(index) for index in range(91)]
    assert [event.at_sample for event in ended] == [(index + 1) * 160 for index in range(91)]
    name = marks.due(12.0)
    assert name is not None
    assert len(marks.acked(name, 12.1)) == 9


def test_a_confirmed_mark_ends_the_ones_before_it() -> None:
    clock, marks = ledger(min_gap_s=0.0)
    names = []
    for index in range(3):
        clock.add(1600, 10.0)
        marks.sent(str(index), clock.sent)
        names.append(marks.due(10.0))
    assert names[1] is not None
    assert [event.name for event in marks.acked(names[1], 10.4)] == ["0", "1"]
    assert len(marks) == 1


def test_without_peer_marks_all_go_by_the_clock() -> None:
    clock, marks = ledger(peer_marks=False)
    clock.add(1600, 10.0)
    marks.sent("end", 1600)
    assert marks.due(10.0) is None
    assert marks.expire(10.1) == []
    assert marks.expire(10.2) == [MarkEvent("end", 1600, Outcome.CLOCK)]


def test_the_number_of_waiting_marks_is_bounded() -> None:
    _, marks = ledger()
    for index in range(1024):
        marks.sent(str(index), 10**6)
    with pytest.raises(LegError):
        marks.sent("one more", 10**6)


@pytest.mark.parametrize(
    "name", ["", ".", "x.1:2", "0", "0.9:9", "٣.1:0", "9" * 5000 + ".1", "-1.1:0", "0.1:0"]
)
def test_answers_to_nothing_are_counted(name: str) -> None:
    _, marks = ledger()
    assert marks.acked(name, 10.0) == []
    assert marks.unknown == 1


Step = st.tuples(
    st.sampled_from(["audio", "mark", "ack", "ack late", "clear", "tick"]),
    st.integers(0, 2000),
    st.floats(0, 0.5),
)


@given(st.lists(Step, max_size=60), st.booleans())
def test_every_mark_ends_once_and_heard_is_never_beyond_sent(
    steps: list[tuple[str, int, float]], peer_marks: bool
) -> None:
    clock, marks = ledger(peer_marks=peer_marks)
    now = 10.0
    asked: dict[str, int] = {}
    ended: list[MarkEvent] = []
    wires: list[str] = []
    old: list[str] = []
    for index, (verb, value, wait) in enumerate(steps):
        now += wait
        if verb == "audio":
            clock.add(value, now)
        elif verb == "mark":
            asked[str(index)] = clock.sent
            marks.sent(str(index), clock.sent)
        elif verb == "ack" and wires:
            ended += marks.acked(wires.pop(value % len(wires)), now)
        elif verb == "ack late" and old:
            before = marks.heard(now)
            assert marks.acked(old[value % len(old)], now) == []
            assert marks.heard(now) == before
        elif verb == "clear":
            heard, events = marks.clear(now)
            assert heard <= clock.sent
            ended += events
            old, wires = old + wires, []
        name = marks.due(now)
        if name is not None:
            assert peer_marks
            wires.append(name)
        ended += marks.expire(now)
        assert clock.start <= marks.heard(now) <= clock.sent
        assert len(asked) == len(ended) + len(marks)
    for later in range(20):
        marks.due(now + later)
        ended += marks.expire(now + later)
    assert sorted(event.name for event in ended) == sorted(asked)
    assert all(asked[event.name] == event.at_sample for event in ended)
