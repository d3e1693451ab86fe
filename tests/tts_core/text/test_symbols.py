"""Folding keeps offsets; signs are named or dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.normaliser import normalise_text
from tts_core.text.symbols import MASK, fold


@given(st.text())
def test_fold_keeps_the_length_and_is_stable(text: str) -> None:
    once = fold(text)
    assert len(once) == len(text)
    assert MASK not in once
    assert fold(once) == once


def test_fold() -> None:
    assert fold("٣３\u00a0‑”’") == "33 -\"'"


def test_signs() -> None:
    assert normalise_text("a\u200bb") == "ab" or normalise_text("a\u200bb") == "a b"
    assert normalise_text("salt & pepper") == "salt and pepper"
    assert normalise_text("5 🎉 items") == "five items"
    assert normalise_text("one | two") == "one, two"
    assert normalise_text("snake_case") == "snake case"
    for c in "[]{}<>^~`*":
        assert c not in normalise_text(f"say {c} this{c}")
