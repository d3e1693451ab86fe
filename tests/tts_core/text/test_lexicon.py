from __future__ import annotations

import pytest

from tts_core.text import lexicon
from tts_core.text.lexicon import is_abbreviation


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("Dr", lexicon.TITLES),
        ("dr", lexicon.TITLES),
        ("Ft", lexicon.TITLES),
        ("e.g", lexicon.NEVER_LAST),
        ("E.g", lexicon.NEVER_LAST),
        ("vs", lexicon.NEVER_LAST),
        ("No", lexicon.BEFORE_NUMBER),
        ("no", lexicon.BEFORE_NUMBER),
        ("P.M", lexicon.MAY_END),
        ("Inc", lexicon.MAY_END),
        ("ft", lexicon.MAY_END),
        ("etc", lexicon.MAY_END),
        ("Sat", lexicon.MAY_END),
    ],
)
def test_shapes_that_count(word: str, words: frozenset[str]) -> None:
    assert is_abbreviation(word, words)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("gen", lexicon.TITLES),
        ("sat", lexicon.MAY_END),
        ("CA", lexicon.NEVER_LAST),
        ("Min", lexicon.MAY_END),
        ("Al", lexicon.MAY_END),
        ("house", lexicon.MAY_END),
        ("", lexicon.TITLES),
    ],
)
def test_shapes_that_are_words(word: str, words: frozenset[str]) -> None:
    assert not is_abbreviation(word, words)


def test_lists_are_clean() -> None:
    lists = {k: v for k, v in vars(lexicon).items() if isinstance(v, frozenset)}
    assert len(lists) > 8
    for name, words in lists.items():
        assert words, name
        assert all(w == w.lower().strip(".") for w in words), name
    assert lexicon.ALSO_WORDS <= lexicon.BEFORE_NUMBER
    assert not lexicon.TITLES & lexicon.NEVER_LAST
