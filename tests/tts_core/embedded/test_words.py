from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tts_core.embedded.words import match, text_words

words = st.lists(st.text(alphabet="abcAB15'-.,&", min_size=1, max_size=6), max_size=30)


@given(spoken=words, source=words)
def test_every_spoken_word_has_an_owner_and_owners_never_fall(spoken: list[str], source: list[str]) -> None:
    owners = match(spoken, source)
    if not source:
        assert owners == []
        return
    assert len(owners) == len(spoken)
    assert owners == sorted(owners)
    assert all(0 <= owner < len(source) for owner in owners)


@given(source=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=30))
def test_equal_words_own_themselves(source: list[str]) -> None:
    assert match([w.upper() + "," for w in source], source) == list(range(len(source)))


def test_an_expansion_goes_to_the_word_it_came_from() -> None:
    spoken = ["Meet", "me", "at", "five", "thirty", "P.M", "on", "March", "fourth"]
    source = ["Meet", "me", "at", "5:30", "PM", "on", "3/4."]
    assert match(spoken, source) == [0, 1, 2, 3, 3, 4, 5, 6, 6]


def test_a_word_that_is_only_spoken_goes_with_the_one_before() -> None:
    assert match(["cats", "and", "dogs"], ["cats", "dogs"]) == [0, 0, 1]
    assert match(["and", "dogs"], ["dogs"]) == [0, 0]


def test_a_word_that_is_not_spoken_owns_nothing() -> None:
    assert match(["hello", "friend"], ["hello", "你好", "friend"]) == [0, 2]


def test_a_very_long_repetition_is_matched_in_time() -> None:
    owners = match(["la"] * 3000, ["lala"] * 1500)
    assert owners == sorted(owners)
    assert set(owners) == set(range(1500))


@given(st.text(max_size=60))
def test_text_words_are_the_runs_with_a_letter_or_digit(text: str) -> None:
    got = [text[a:b] for a, b in text_words(text)]
    assert got == [t for t in text.split() if any(c.isalnum() for c in t)] or "\x1c" <= min(text) <= "\x1f"


def test_punctuation_alone_is_no_word() -> None:
    assert text_words("well — ... I, “do”!") == [(0, 4), (11, 13), (14, 19)]
