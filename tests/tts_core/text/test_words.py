from __future__ import annotations

import pytest

from tts_core.text.words import Kind, count_words, is_opener, kind_of, speaks, word_before


def kind(text: str) -> Kind:
    """Kind of the full stop at the end of the text."""
    word, start = word_before(text, len(text) - 1)
    return kind_of(text, word, start)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is a house.", Kind.PLAIN),
        ("It costs 3.", Kind.PLAIN),
        ("call Dr.", Kind.GLUED),
        ('call "Dr.', Kind.GLUED),
        ("fruit, e.g.", Kind.GLUED),
        ("Go to St.", Kind.GLUED),
        ("The St.", Kind.GLUED),
        ("On Main St.", Kind.MAYBE),
        ("On 5th St.", Kind.MAYBE),
        ("Here, St.", Kind.GLUED),
        ("Acme Inc.", Kind.MAYBE),
        ("at 5 p.m.", Kind.MAYBE),
        ("the U.S.", Kind.MAYBE),
        ("he met J.", Kind.LETTER),
        ("1.", Kind.LISTED),
        ("b.", Kind.LISTED),
        ("iv.", Kind.LISTED),
        ("2024.", Kind.PLAIN),
    ],
)
def test_kinds(text: str, expected: Kind) -> None:
    assert kind(text) is expected


def test_word_before_looks_back_a_bounded_way() -> None:
    assert word_before("a (word.", 7) == ("word", 3)
    assert word_before("line\nnext.", 9) == ("next", 5)
    assert word_before("x" * 200 + ".", 200) == ("x" * 64, 136)
    assert word_before(" .", 1) == ("", 1)


def test_counting() -> None:
    assert count_words("It's 5 o'clock, 5.50 or 555-0132!") == 6
    assert count_words("... - !") == 0


def test_speaking() -> None:
    assert speaks("... a", 5)
    assert not speaks("... a", 4)
    assert speaks("你", 1)


def test_openers() -> None:
    assert is_opener(' "Sure')
    assert not is_opener("Sure thing")
    assert not is_opener("Apples")
