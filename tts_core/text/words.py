"""Words at a boundary: what a full stop after one may mean, and whether anything is said at all."""

from __future__ import annotations

import re
from enum import Enum

from . import lexicon
from .lexicon import is_abbreviation

_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_LIST_NUMBER = re.compile(r"\d{1,3}|[A-Za-z]|[ivxIVX]{2,4}")


class Kind(Enum):
    """What a full stop after a word may mean."""

    PLAIN = 0  # a word or number like any other
    GLUED = 1  # an abbreviation that something must follow
    MAYBE = 2  # an abbreviation that may end a sentence
    LETTER = 3  # an initial
    LISTED = 4  # the number of a list item


def word_before(text: str, at: int) -> tuple[str, int]:
    """The word that ends at ``at``, without opening quotes, and its start; at most 64 characters back."""
    low = max(0, at - 64)
    start = max(text.rfind(" ", low, at), text.rfind("\n", low, at), low - 1) + 1
    word = text[start:at]
    bare = word.lstrip("\"'“‘«([{¿¡")
    return bare, start + len(word) - len(bare)


def kind_of(text: str, word: str, start: int) -> Kind:
    """What the full stop after ``word`` (which begins at ``start``) may mean."""
    if not text[:start].strip() and _LIST_NUMBER.fullmatch(word):
        return Kind.LISTED
    if is_abbreviation(word, lexicon.TITLES) or is_abbreviation(word, lexicon.NEVER_LAST):
        return Kind.GLUED
    if word in {"St", "Ste", "st"} and not _after_name(text, start):
        return Kind.GLUED
    if len(word) == 1 and word.isalpha() and word.isupper():
        return Kind.LETTER
    if is_abbreviation(word, lexicon.MAY_END) or _DOTTED.fullmatch(word):
        return Kind.MAYBE
    return Kind.PLAIN


def _after_name(text: str, start: int) -> bool:
    """Tell "Main St.", which ends an address, from "Go to St.", which begins a name."""
    before, _ = word_before(text, max(0, start - 1))
    if not before or before[-1] in ".,;:!?":
        return False
    if before[0].isdigit() and before[-1].isalpha():
        return True
    return before[0].isupper() and before.lower() not in lexicon.STARTERS


def count_words(text: str) -> int:
    """Words in the text; "o'clock", "5.50" and "555-0132" are one each."""
    return len(_WORD.findall(text))


def speaks(text: str, end: int) -> bool:
    """Whether anything is said before ``end``: a letter or digit of any script."""
    return any(c.isalnum() for c in text[:end])


def is_opener(head: str) -> bool:
    """Whether the text is one word that may stand alone before a comma ("Sure, ...")."""
    return head.strip(" \n\"'“”‘’").lower() in lexicon.OPENERS
