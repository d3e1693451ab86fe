from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.intelligibility.numerals import MONTHS, canonical
from tts_core.text.numerals import cardinal


@pytest.mark.parametrize(
    ("heard", "digits"),
    [
        ("Please call us back at 415-555-0132.", "4155550132"),
        ("four one five, five five five, zero one three two", "4155550132"),
        ("4 1 5 5 5 5 0 1 3 2", "4155550132"),
        ("1-800-555-0199", "18005550199"),
        ("one, eight hundred, five five five, zero one nine nine", "18005550199"),
        ("+1 303 555 0118", "13035550118"),
        ("$347.89", "34789"),
        ("three hundred forty-seven dollars and eighty-nine cents", "34789"),
        ("347 dollars and 89 cents", "34789"),
        ("$5.05", "505"),
        ("five dollars and five cents", "505"),
        ("$5 and 5 cents", "505"),
        ("$865.00", "865"),
        ("$2,500", "2500"),
        ("two thousand five hundred dollars", "2500"),
        ("one thousand, two hundred and forty nine", "1249"),
        ("sixteen thousand four hundred thirty dollars and seventy two cents", "1643072"),
        ("2 thousand 5 hundred", "2500"),
        ("5 hundred and twelve", "512"),
        ("a hundred and one", "101"),
        ("March 15th, 2027", "march152027"),
        ("March fifteenth twenty twenty-seven", "march152027"),
        ("3/15/2027", "march152027"),
        ("the 15th of March, 2027", "15march2027"),
        ("Jan. 2nd, 2019", "january22019"),
        ("December thirty first", "december31"),
        ("Friday, November 22nd", "november22"),
        ("the twentieth of May", "20may"),
        ("May I march in?", ""),
        ("2:30 p.m.", "230"),
        ("two thirty PM", "230"),
        ("2.30 pm", "230"),
        ("five o'clock", "5"),
        ("5:00", "5"),
        ("nine oh five AM", "905"),
        ("9-0-5", "905"),
        ("12:00", "12"),
        ("nineteen eighty four", "1984"),
        ("two thousand nineteen", "2019"),
        ("twenty nineteen", "2019"),
        ("twenty, one", "201"),
        ("oh, I see", ""),
        ("for you to have won what he ate", ""),
        ("the order is 0012 3.", "00123"),
        ("zero zero one two three", "00123"),
        ("gate 12 and 6:45", "12645"),
        ("nothing", ""),
    ],
)
def test_readings(heard: str, digits: str) -> None:
    assert canonical(heard) == digits


@given(st.integers(0, 999_999_999))
def test_a_number_in_words_or_figures_is_the_same(n: int) -> None:
    assert canonical(cardinal(n)) == str(n)
    assert canonical(f"it is {n:,}, I think") == str(n)


@given(st.text("0123456789", min_size=1, max_size=20), st.integers(1, 5))
def test_digits_said_singly_are_kept_however_they_are_grouped(digits: str, size: int) -> None:
    words = [cardinal(int(d)) for d in digits]
    assert canonical(", ".join(" ".join(words[i : i + size]) for i in range(0, len(words), size))) == digits
    assert canonical("-".join(digits[i : i + size] for i in range(0, len(digits), size))) == digits


@given(st.integers(1, 12), st.integers(1, 28), st.integers(1901, 2099))
def test_dates_keep_their_month(month: int, day: int, year: int) -> None:
    name = MONTHS[month - 1]
    assert (
        canonical(f"{month}/{day}/{year}")
        == canonical(f"{name.title()} {day}, {year}")
        == f"{name}{day}{year}"
    )


@given(st.integers(1, 12), st.integers(1, 59))
def test_times_in_figures(hour: int, minute: int) -> None:
    assert canonical(f"at {hour}:{minute:02d} a.m.") == f"{hour}{minute:02d}"


@given(st.text())
def test_any_transcript_is_taken(text: str) -> None:
    assert set(canonical(text)) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
