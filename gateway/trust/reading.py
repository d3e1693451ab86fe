"""How far what was heard is from the text that was to be read: in words, whatever way either is written.

"November 30th, 2026", "the thirtieth of November" and "twenty twenty-six" are written by a recogniser as it
likes. So case, punctuation, marks over letters and a few slight words are left out, numbers become digits,
a run of words that spells the same without its spaces is the same word ("vox wire", "20 26"), and a number
may be before or behind the word that it is beside. What is left is a word-level edit distance (Levenshtein,
with these as further moves).

The name of a company is no word that a recogniser knows, and some are heard as a better known one. It is
right where most of its letters are, one wrong word where another word is in its place, and two where nothing
is: it says who is consented to.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher

ALIKE = 0.6
"""Share of a name's letters, in order, by which it counts as said."""
NAME_LEFT_OUT = 2
_RUN = 8
"""Most heard words that may be one expected word or name."""
_MOST_HEARD = 400
_NAME = "\0"
_WORDS = re.compile(r"\d+(?:st|nd|rd|th)\b|\d+|[^\W\d_]+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d),(?=\d{3}\b)")

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth"
)
_UNITS = {w: n for n, w in enumerate(_ONES.split())}
_TEN = {w: 10 * n for n, w in enumerate(_TENS.split(), 2)}
_LAST = {w: n for n, w in enumerate(_ORDINALS.split(), 1)} | {f"{w[:-1]}ieth": n for w, n in _TEN.items()}


def words(text: str, slight: Collection[str] = ()) -> list[str]:
    """The words of a text in plain form, English number words as digits, without ``slight``."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in plain if not unicodedata.combining(c)).replace("'", "").replace("’", "")
    found = _WORDS.findall(_BETWEEN_DIGITS.sub("", plain))
    return _numbers([word for word in found if word not in slight])


def wrong(text: str, heard: str, *, name: slice | None = None, slight: Collection[str] = ()) -> int:
    """How many words of ``text`` were read wrong, left out or added, judged by ``heard``.

    ``name``: where in ``text`` a name is that is compared by its letters. Quadratic in the number of words;
    what was heard is cut off at 400 words.
    """
    if name is None:
        expected, letters = words(text, slight), ""
    else:
        expected = [*words(text[: name.start], slight), _NAME, *words(text[name.stop :], slight)]
        letters = "".join(words(text[name], slight))
    return _distance(expected, words(heard, slight)[:_MOST_HEARD], letters)


def _distance(expected: Sequence[str], heard: Sequence[str], name: str) -> int:
    before, row = [0], list(range(len(heard) + 1))
    for n, word in enumerate(expected):
        cost = NAME_LEFT_OUT if word == _NAME else 1
        new = [row[0] + cost]
        for at in range(1, len(heard) + 1):
            best = min(row[at] + cost, new[at - 1] + 1, row[at - 1] + 1)
            run = ""
            for first in range(at - 1, max(-1, at - 1 - _RUN), -1):
                run = heard[first] + run
                if run == word or (word == _NAME and _alike(name, run)):
                    best = min(best, row[first])
            if n and at > 1 and _turned(expected[n - 1], word, heard[at - 2], heard[at - 1]):
                best = min(best, before[at - 2])
            new.append(best)
        before, row = row, new
    return row[-1]


def _turned(first: str, second: str, heard: str, next_heard: str) -> bool:
    """Whether a word and a number were said the other way round: a day and its month."""
    return (first, second) == (next_heard, heard) and first.isdigit() != second.isdigit()


def _alike(name: str, run: str) -> bool:
    """Whether ``run`` is about as long as ``name`` and has most of its letters in order."""
    if not name or 2 * abs(len(name) - len(run)) > len(name):
        return False
    return SequenceMatcher(None, name, run, autojunk=False).ratio() >= ALIKE


def _numbers(found: Sequence[str]) -> list[str]:
    """With number words as digits: "two thousand twenty six" is 2026, "twenty twenty six" is 20 and 26."""
    out: list[str] = []
    at = 0
    while at < len(found):
        value, end = _number(found, at)
        if end > at:
            out.append(str(value))
            at = end
        else:
            word = found[at]
            out.append(word[:-2] if word[0].isdigit() and word[-1].isalpha() else word)
            at += 1
    return out


def _number(found: Sequence[str], at: int) -> tuple[int, int]:
    """The value of the longest number that begins here, and where it ends (``at`` for none)."""
    value, end, over = _hundreds(found, at)
    if end > at and not over and _word(found, end) == "thousand":
        rest, end, _ = _hundreds(found, end + 1)
        value = 1000 * value + rest
    return value, end


def _hundreds(found: Sequence[str], at: int) -> tuple[int, int, bool]:
    """A number below 10,000 ("nineteen hundred five"), its end, and whether nothing may follow it."""
    value, end, over = _below_hundred(found, at)
    if end > at and not over and _word(found, end) == "hundred":
        rest, end, over = _below_hundred(found, end + 1)
        value = 100 * value + rest
    return value, end, over


def _below_hundred(found: Sequence[str], at: int) -> tuple[int, int, bool]:
    word = _word(found, at)
    if word in _LAST:
        return _LAST[word], at + 1, True
    if word in _UNITS:
        return _UNITS[word], at + 1, False
    if word not in _TEN:
        return 0, at, False
    next_one = _word(found, at + 1)
    unit = _UNITS.get(next_one, 0) or _LAST.get(next_one, 0)
    if 0 < unit < 10:
        return _TEN[word] + unit, at + 2, next_one in _LAST
    return _TEN[word], at + 1, False


def _word(found: Sequence[str], at: int) -> str:
    return found[at] if at < len(found) else ""


__all__ = ["words", "wrong"]
