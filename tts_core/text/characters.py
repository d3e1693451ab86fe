"""Which characters of an untrusted text may reach a voice.

Sources: Unicode general categories (UAX #44), canonical composition (UAX #15: only marks and Hangul vowel or
final jamo ever compose with the character before them), emoji blocks of UTS #51.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_MARKS = 30
"""Combining marks kept on one base: the stream-safe limit of UAX #15; more are stacked noise."""

# Characters that mean nothing to markdown or markup, need no look at their neighbours but for combining
# marks, and are their own NFC form. ``!`` is left out because of ``![image]``.
_ORDINARY = (
    "\"#$%'()+,\\-./0-9:;=>?@A-Z^a-z{|}"
    "\u00a1-\u00ac\u00ae-\u02ff\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481"
    "\u2010-\u2015\u2018-\u201e\u2026\u20ac\u3001\u3002\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
)
ORDINARY = re.compile(f"[{_ORDINARY}]+(?: [{_ORDINARY}]+)*")
"""A run of ordinary characters with single spaces inside: the fast path of the cleaner."""

_PICTURES = (
    (0x2190, 0x21FF),  # arrows
    (0x2300, 0x23FF),  # technical: watches, media keys
    (0x2500, 0x27BF),  # boxes, shapes, symbols, dingbats
    (0x2800, 0x28FF),  # braille patterns, used as spinners
    (0x2900, 0x297F),  # arrows
    (0x2B00, 0x2BFF),  # arrows, stars
    (0xFE00, 0xFE0F),  # variation selectors
    (0x1F000, 0x1FAFF),  # emoji proper, flags, skin tones
)
_PICTURE_SINGLES = frozenset("\u20e3\u2139\u3030\u303d\u3297\u3299\ufffc\ufffd")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SPACES = frozenset({"Zs", "Zl", "Zp"})


@lru_cache(maxsize=4096)
def extends(char: str) -> bool:
    """Whether the character may compose with, or sit on, the one before it."""
    if char < "\u0300":
        return False
    return unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff"


@lru_cache(maxsize=4096)
def is_hidden(char: str) -> bool:
    """Control, bidi, zero-width, surrogate, private or unassigned: never spoken, whatever the options."""
    return unicodedata.category(char) in _HIDDEN


@lru_cache(maxsize=4096)
def is_space(char: str) -> bool:
    """Any white space, wide and exotic kinds included; line feeds count too."""
    return char in "\t\n\v\f\r \x85" or unicodedata.category(char) in _SPACES


@lru_cache(maxsize=4096)
def is_picture(char: str) -> bool:
    """Emoji and the parts they are made of, dingbats, arrows, box drawing."""
    code = ord(char)
    return char in _PICTURE_SINGLES or any(low <= code <= high for low, high in _PICTURES)


def compose(text: str) -> str:
    """NFC form of one base with its marks."""
    return unicodedata.normalize("NFC", text)
