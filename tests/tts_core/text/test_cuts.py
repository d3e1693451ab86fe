from __future__ import annotations

import pytest

from tts_core.text.cuts import CLOSING, NEXT, OPENING, TERMINATORS, Cut, Reason, Wait


def test_answers_are_values() -> None:
    assert Cut(3, Reason.CLAUSE) == Cut(3, Reason.CLAUSE) != Cut(3, Reason.SENTENCE)
    assert Wait(3) == Wait(3, eager=False) != Wait(3, eager=True)


@pytest.mark.parametrize(
    ("pattern", "text", "taken"),
    [
        (TERMINATORS, "?!.. a", "?!.."),
        (TERMINATORS, "." * 40, "." * 16),
        (CLOSING, "\")' a", "\")'"),
        (CLOSING, "a", ""),
        (OPENING, "(“a", "(“"),
        (NEXT, "p.m. on", "p.m."),
        (NEXT, "x" * 40, "x" * 16),
    ],
)
def test_patterns_take_what_they_should_and_no_more(pattern: object, text: str, taken: str) -> None:
    m = pattern.match(text)  # type: ignore[attr-defined]
    assert m is not None
    assert m[0] == taken
