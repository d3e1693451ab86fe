"""Dates and times of day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.normaliser import normalise_text
from tts_core.text.numerals import ordinal, year
from tts_core.text.when import MONTHS, clock


@given(st.dates())
def test_all_ways_to_write_a_date(d: object) -> None:
    y, m, day = d.year, d.month, d.day  # type: ignore[attr-defined]
    if not 1900 <= y <= 2099:
        y = 1900 + y % 200
    want = f"{MONTHS[m - 1]} {ordinal(day)}, {year(y)}"
    for written in (
        f"{m}/{day}/{y}",
        f"{m:02}/{day:02}/{y}",
        f"{y}-{m:02}-{day:02}",
        f"{MONTHS[m - 1]} {day}, {y}",
    ):
        assert normalise_text(f"It is {written}.") == f"It is {want}."


@given(st.integers(1, 12), st.integers(0, 59), st.sampled_from(["AM", "pm", " PM", " a.m."]))
def test_twelve_hour_clock(hour: int, minute: int, half: str) -> None:
    want = f"{clock(hour, minute, None, bare=False)} {'AM' if 'a' in half.lower() else 'PM'}"
    assert normalise_text(f"At {hour}:{minute:02}{half} we go.") == f"At {want} we go."


@pytest.mark.parametrize(
    ("at", "want"),
    [
        ((2, 5, None), "two oh five"),
        ((5, 0, None), "five o'clock"),
        ((14, 0, None), "fourteen hundred"),
        ((0, 0, None), "midnight"),
        ((1, 2, 1), "one oh two and one second"),
    ],
)
def test_clock(at: tuple[int, int, int | None], want: str) -> None:
    assert clock(*at, bare=True) == want


def test_impossible_dates_are_not_dates() -> None:
    for text in ("31/31/2024", "2024-13-40", "March 45"):
        assert not any(m in normalise_text(text) for m in MONTHS if m != "March")
