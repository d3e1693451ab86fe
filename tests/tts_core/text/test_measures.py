"""Units, percentages, fractions and the other readings of quantities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.measures import UNITS, fraction
from tts_core.text.normaliser import normalise_text
from tts_core.text.numerals import cardinal, number


def test_units_table_is_whole() -> None:
    assert len(UNITS) > 100
    assert all(one and many for one, many in UNITS.values())


@given(
    st.integers(2, 99999), st.sampled_from(["kg", "km", "MB", "mph", "ml", "kWh"]), st.sampled_from(["", " "])
)
def test_units(k: int, unit: str, gap: str) -> None:
    assert normalise_text(f"It is {k}{gap}{unit}.") == f"It is {cardinal(k)} {UNITS[unit][1]}."


@given(st.decimals(0, 1000, places=2))
def test_percent(d: object) -> None:
    assert normalise_text(f"{d}%") == f"{number(str(d))} percent"


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (1, 2, "one half"),
        (3, 2, "three halves"),
        (3, 4, "three quarters"),
        (2, 3, "two thirds"),
        (7, 200, "seven over two hundred"),
    ],
)
def test_fraction(a: int, b: int, want: str) -> None:
    assert fraction(a, b) == want


@given(st.integers(1, 98), st.integers(1, 400))
def test_ranges(a: int, more: int) -> None:
    assert normalise_text(f"{a}-{a + more} items") == f"{cardinal(a)} to {cardinal(a + more)} items"
