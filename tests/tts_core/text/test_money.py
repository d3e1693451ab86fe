"""Amounts of money."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.money import Currency, amount
from tts_core.text.normaliser import normalise_text
from tts_core.text.numerals import cardinal

DOLLAR = Currency("dollar", "dollars")


@given(st.integers(2, 10**9), st.integers(2, 99))
def test_dollars_and_cents(dollars: int, cents: int) -> None:
    want = f"{cardinal(dollars)} dollars and {cardinal(cents)} cents"
    assert amount(f"{dollars}.{cents:02}", DOLLAR) == want
    assert normalise_text(f"${dollars:,}.{cents:02}") == want
    assert normalise_text(f"It costs ${dollars}.{cents:02}, or so.") == f"It costs {want}, or so."


@pytest.mark.parametrize(
    ("text", "magnitude", "want"),
    [
        ("1.00", "", "one dollar"),
        ("0.01", "", "one cent"),
        ("2.5", "", "two point five dollars"),
        ("1.2", "bn", "one point two billion dollars"),
        ("3", "K", "three thousand dollars"),
        ("1" * 20 + ".00", "", None),
    ],
)
def test_amount(text: str, magnitude: str, want: str | None) -> None:
    said = amount(text, DOLLAR, magnitude)
    assert said.endswith("dollars") if want is None else said == want


def test_unit_without_hundredths() -> None:
    assert amount("1.50", Currency("yen", "yen", "", "")) == "one point five zero yen"
    assert amount("5", DOLLAR, singular=True) == "five dollar"
