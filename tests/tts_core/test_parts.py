"""Where a long text is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tts_core.parts import FIRST, PART, SLACK, parts

SENTENCE = "I can help you with that order right now, just one moment please. "


@given(st.text(st.characters(codec="utf-8"), max_size=3000) | st.text("ab ,.\n", max_size=3000))
def test_parts_have_everything_but_the_space_between_them(text: str) -> None:
    found = parts(text)
    assert found[0][0] == 0
    assert found[-1][1] == len(text)
    for (_, end), (start, _) in pairwise(found):
        assert not text[end:start].strip()
    for start, end in found:
        assert end - start <= PART + SLACK
        assert start < end or not text.strip()


def test_an_ordinary_sentence_is_one_part() -> None:
    assert parts("") == [(0, 0)]
    assert parts(SENTENCE * 4) == [(0, len(SENTENCE) * 4)]
    assert len(SENTENCE * 4) < PART + SLACK


def test_the_first_part_is_short_and_all_end_after_a_clause() -> None:
    text = SENTENCE * 12
    found = parts(text)
    assert found[0] == (0, text.index(",", FIRST - 40) + 1)
    for start, end in found:
        assert text[end - 1] in ",.  "
        assert text[start] != " "


def test_without_a_clause_it_is_cut_between_words_and_without_words_anywhere() -> None:
    assert all(("nine " * 200)[end - 1 : end] == "e" for _, end in parts("nine " * 200)[:-1])
    assert [end - start for start, end in parts("x" * 700)] == [FIRST, PART, PART, 700 - FIRST - 2 * PART]
