"""What the schedule keeps back, and that it loses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.elevenlabs_schedule import DEFAULT, TRIGGER, Schedule


def test_the_default_steps_are_120_160_250_290_and_on() -> None:
    schedule = Schedule()
    given_out = []
    for _ in range(2000):
        if text := schedule.add("x"):
            given_out.append(len(text))
    assert given_out[:6] == [120, 160, 250, 290, 290, 290]
    assert DEFAULT == (120, 160, 250, 290)


def test_a_schedule_of_the_client_is_kept_to_and_may_change() -> None:
    schedule = Schedule([50])
    assert schedule.add("y" * 49) == ""
    assert schedule.add("z") == "y" * 49 + "z"
    schedule.change([10, 20])
    assert schedule.add("a" * 19) == ""
    assert schedule.add("b") == "a" * 19 + "b"
    schedule.change([])
    assert schedule.add("c" * 200) == ""
    assert len(schedule.add("c" * 100)) == 300


def test_a_trigger_needs_something_worth_it() -> None:
    schedule = Schedule()
    assert schedule.add("a" * (TRIGGER - 1), trigger=True) == ""
    assert schedule.held == TRIGGER - 1
    assert schedule.add("b", trigger=True) == "a" * (TRIGGER - 1) + "b"
    assert Schedule([5]).add("12345", trigger=True) == "12345"


def test_what_is_dropped_is_gone() -> None:
    schedule = Schedule()
    schedule.add("lost")
    schedule.drop()
    assert (schedule.held, schedule.flush()) == (0, "")


@given(
    st.lists(st.tuples(st.text(), st.sampled_from(["text", "trigger", "flush"]))),
    st.lists(st.integers(1, 500), max_size=5),
)
def test_any_order_gives_every_character_once(script: list[tuple[str, str]], lengths: list[int]) -> None:
    schedule = Schedule(lengths)
    out = ""
    for text, verb in script:
        out += schedule.add(text, trigger=verb == "trigger")
        if verb == "flush":
            out += schedule.flush()
    assert out + schedule.flush() == "".join(text for text, _ in script)
