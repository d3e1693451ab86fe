"""What the rules on boundaries answer, and the patterns they share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

NEXT_WORD = 16
"""Longest next word that is looked at."""
TERMINATORS = re.compile(r"[.!?…。！？]{1,16}")
"""A run of signs that end sentences."""
CLOSING = re.compile(r"[\"'”’»)\]}」』]{0,8}")
"""Quotes and brackets that close after them."""
OPENING = re.compile(r"[\"'“‘«(\[{¿¡「『]{0,8}")
"""Quotes and brackets that open before a word."""
NEXT = re.compile(rf"[A-Za-z'’.]{{1,{NEXT_WORD}}}")
"""The next word with its full stops."""


class Reason(Enum):
    """Why text ends where it is cut."""

    SENTENCE = "sentence"
    CLAUSE = "clause"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut after ``at`` characters."""

    at: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Undecided; look again from ``scan`` when there is more text.

    ``eager``: the very next character may decide; otherwise not before the end of a word.
    """

    scan: int
    eager: bool = False


class Verdict(Enum):
    """No cut here; or not to be told yet."""

    MORE = 1
    NO = 2


MORE = Verdict.MORE
NO = Verdict.NO
Answer = Cut | Verdict
