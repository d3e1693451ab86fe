"""Cuts a long text into parts that an engine is asked for one after the other.

A written segment is short, but what it says need not be: three hundred digits are a minute and a half of
speech. An engine works on a request to its end, so without a bound one such segment would hold a slot for
seconds while the listeners of others run dry.
"""

from __future__ import annotations

import re

PART = 240
"""Characters of spoken text: about fifteen seconds of speech, and half a second of one core at most."""

FIRST = 120
"""The first part is shorter: everybody who waits for a slot now may be waiting for a first sound."""

SLACK = 60
"""A text may be this much longer before it is cut, so that no scrap is left over."""

_CLAUSE = re.compile(r"[.!?;:,…]\W*\s")
_BLANK = re.compile(r"\s")


def parts(text: str) -> list[tuple[int, int]]:
    """Ranges of ``text`` in order, at least one, that leave out only white space between two of them.

    Each has at most ``PART + SLACK`` characters. They end after a clause where one ends late enough, else
    between words, else anywhere.
    """
    out: list[tuple[int, int]] = []
    at = 0
    while len(text) - at > PART + SLACK:
        end = _cut(text, at, FIRST if not out else PART)
        out.append((at, end))
        at = end
        while at < len(text) and text[at].isspace():
            at += 1
    if at < len(text) or not out:
        out.append((at, len(text)))
    return out


def _cut(text: str, at: int, limit: int) -> int:
    for mark in (_CLAUSE, _BLANK):
        ends = [m.end() for m in mark.finditer(text, at + limit // 3, at + limit)]
        if ends:
            return at + len(text[at : ends[-1]].rstrip())
    return at + limit


__all__ = ["FIRST", "PART", "SLACK", "parts"]
