"""Titles, abbreviations, addresses, roman numerals, acronyms."""

from __future__ import annotations

import pytest

from tts_core.text.normaliser import normalise_text
from tts_core.text.titles import STREETS, TITLES


@pytest.mark.parametrize("title", sorted(TITLES))
def test_titles_before_a_name(title: str) -> None:
    assert normalise_text(f"I met {title}. Jones today.") == f"I met {TITLES[title]} Jones today."


@pytest.mark.parametrize("street", sorted(STREETS))
def test_streets_in_an_address(street: str) -> None:
    assert normalise_text(f"At 42 Oak {street}, please.") == f"At forty two Oak {STREETS[street]}, please."


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("PLEASE CALL US NOW", "PLEASE CALL us NOW"),
        ("the IT team", "the IT team"),
        ("I am here, Part I is over", "I am here, Part I is over"),
        ("no. No. no", "no. No. no"),
        ("Apt. 4B", "Apartment four B"),
    ],
)
def test_readings(text: str, want: str) -> None:
    assert normalise_text(text) == want
