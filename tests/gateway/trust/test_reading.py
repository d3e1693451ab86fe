from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.trust.reading import words, wrong

SLIGHT = frozenset({"a", "an", "and", "of", "the", "uh"})
TEXT = (
    "Today is November 30, 2026. I agree that Voxwire Labs makes a voice from my recordings. My words are "
    "cactus, hotel, lobster, tiger, onion, piano."
)
AT = TEXT.index("Voxwire")
NAME = slice(AT, AT + len("Voxwire Labs"))


def errors(heard: str) -> int:
    return wrong(TEXT, heard, name=NAME, slight=SLIGHT)


@pytest.mark.parametrize(
    "written",
    [
        "30 November 2026",
        "30th november, 2026!",
        "the thirtieth of November, twenty twenty-six",
        "Thirty NOVEMBER two thousand and twenty six",
        "30 növember 2,026",
    ],
)
def test_dates_and_numbers_are_alike_however_they_are_written(written: str) -> None:
    assert wrong("30 November 2026", written, slight=SLIGHT) == 0


def test_words_are_plain() -> None:
    assert words("The 21st Café's  twenty-first, 1,234", SLIGHT) == ["21", "cafes", "21", "1234"]
    assert words("nineteen hundred five; two thousand three hundred twenty six", SLIGHT) == ["1905", "2326"]
    assert words("first thousand", SLIGHT) == ["1", "thousand"]
    assert words("", SLIGHT) == words("... — !", SLIGHT) == []


@pytest.mark.parametrize(
    ("heard", "count"),
    [
        (TEXT, 0),
        (TEXT.upper().replace(",", "").replace(".", ""), 0),
        (TEXT.replace("November 30, 2026", "the thirtieth of November twenty twenty six"), 0),
        (TEXT.replace("Voxwire Labs", "vox wire lab"), 0),
        (TEXT.replace("makes a voice", "makes the voice, uh,"), 0),
        (TEXT.replace("lobster", "lob ster"), 0),
        (TEXT.replace("cactus", "captors"), 1),
        (TEXT.replace(" tiger,", ""), 1),
        (TEXT.replace("tiger", "tiger, zebra"), 1),
        (TEXT.replace("November 30", "November 29"), 1),
        (TEXT.replace("cactus, hotel", "hotel, cactus"), 2),
        (TEXT.replace("Voxwire Labs", "Volkswagen"), 1),
        (TEXT.replace("Voxwire Labs", "Acme").replace("tiger", "river"), 2),
        (TEXT.replace("Voxwire Labs ", ""), 2),
        ("Thank you.", 23),
        ("", 24),
    ],
)
def test_what_counts_as_wrong(heard: str, count: int) -> None:
    assert errors(heard) == count


def test_what_is_said_twice_is_too_much() -> None:
    assert errors(f"{TEXT} {TEXT}") > 15


def test_a_name_may_be_a_word_of_the_text() -> None:
    text = "I agree that I makes a voice"
    assert wrong(text, text, name=slice(13, 14), slight=SLIGHT) == 0
    assert wrong(text, "I agree that it makes a voice", name=slice(13, 14), slight=SLIGHT) <= 2


@given(st.text(max_size=300))
def test_nothing_that_is_heard_breaks_it(heard: str) -> None:
    assert 0 <= errors(heard) <= 24 + len(heard)


@given(st.integers(0, 5), st.integers(0, 2**32))
def test_each_changed_word_counts_once(changed: int, seed: int) -> None:
    chosen = random.Random(seed)
    parts = TEXT.split()
    places = chosen.sample([n for n, part in enumerate(parts) if part.rstrip(",.") in _OWN], changed)
    for place in places:
        parts[place] = "quagmire"
    assert errors(" ".join(parts)) == changed


_OWN = {"cactus", "hotel", "lobster", "tiger", "onion", "piano"}


@given(st.integers(0, 9999))
def test_any_number_in_words_is_itself(number: int) -> None:
    assert words(_say(number)) == [str(number)]


ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def _say(n: int) -> str:
    ones, tens = ONES.split(), TENS.split()
    if n >= 1000:
        return f"{_say(n // 1000)} thousand" + (f" {_say(n % 1000)}" if n % 1000 else "")
    if n >= 100:
        return f"{ones[n // 100]} hundred" + (f" {_say(n % 100)}" if n % 100 else "")
    if n >= 20:
        return tens[n // 10 - 2] + (f"-{ones[n % 10]}" if n % 10 else "")
    return ones[n]
