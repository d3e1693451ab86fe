"""Which word of the text each spoken word belongs to.

The pronouncer rewrites text before it reads it ("5 PM" becomes "five P.M.", "Apt." becomes "Apartment"), so
spoken words and the words of the request need not be the same or equally many. Both run in the same order,
though; equal words are anchors and what lies between two anchors is shared out by length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_TOKEN = re.compile(r"\S+")
_ANCHOR_LIMIT = 800
"""Words up to which anchors are searched for; the search is quadratic at worst (a text of one word repeated).
"""


def text_words(text: str) -> list[tuple[int, int]]:
    """Offsets ``[start, end)`` of the words of ``text``.

    A word is a run without white space that has a letter or a digit in it; punctuation around it is part of
    it, punctuation alone is no word.
    """
    return [m.span() for m in _TOKEN.finditer(text) if any(c.isalnum() for c in m.group())]


def _bare(word: str) -> str:
    return "".join(c for c in word.lower() if c.isalnum())


def match(spoken: Sequence[str], source: Sequence[str]) -> list[int]:
    """Index into ``source`` for every word of ``spoken``; never falls. ``[]`` where ``source`` is empty.

    Words of ``source`` that are not spoken at all (a script the voice cannot read) are not in the result.
    """
    if not source:
        return []
    a, b = [_bare(w) for w in spoken], [_bare(w) for w in source]
    if a == b:
        return list(range(len(b)))
    if max(len(a), len(b)) > _ANCHOR_LIMIT:
        return _share(a, b, 0)
    out: list[int] = []
    for op, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if op == "equal":
            out.extend(range(b1, b2))
        elif op == "replace":
            out.extend(_share(a[a1:a2], b[b1:b2], b1))
        elif op == "delete":
            # Spoken but not written, as the "and" of "&": it goes with the word before it.
            out.extend([max(0, b1 - 1)] * (a2 - a1))
    return out


def _share(spoken: Sequence[str], source: Sequence[str], base: int) -> list[int]:
    """Share ``spoken`` out over ``source`` in order: one each where they are equally many, else by length."""
    if len(spoken) == len(source):
        return list(range(base, base + len(source)))
    total = sum(max(1, len(w)) for w in spoken)
    share = sum(max(1, len(w)) for w in source)
    out, at, k, edge = [], 0.0, 0, 0.0
    edge = max(1, len(source[0])) / share
    for word in spoken:
        middle = (at + max(1, len(word)) / 2) / total
        while middle > edge and k < len(source) - 1:
            k += 1
            edge += max(1, len(source[k])) / share
        out.append(base + k)
        at += max(1, len(word))
    return out
