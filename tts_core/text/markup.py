"""Markup between angle brackets: what is a tag, what it asks for, what is only a sign.

Clients pass Cartesia's inline tags (``<break>``, ``<spell>``, ``<speed>``, ``<volume>``, ``<emotion>``,
``<<ph|ph>>``), SSML (``<prosody>``, ``<say-as>``), HTML out of a language model, and now and then a control
token of that model (``<|im_end|>``). A tag may be cut anywhere by message borders, is held until it is whole
(at most ``MAX_TAG`` characters), and is never spoken. "3 < 5 and x > 2" holds no tag: one needs a letter,
``/``, ``!`` or ``?`` right after the bracket.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import Enum


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_TAG = 200
MAX_COMMENT = 2000
MAX_LOOSE = 60
"""Length of a tag that has an attribute without ``=``: longer ones are taken for prose."""
MAX_PAUSE_MS = 5000
"""Cap of one pause (several breaks in a row make one pause)."""
MAX_TOTAL_PAUSE_MS = 60_000
"""Cap of all pauses that one context may ask for."""
SPEED_RANGE = (0.5, 2.0)
VOLUME_RANGE = (0.0, 2.0)

SPEECH_TAGS = _words("""
    break spell speed volume emotion prosody speak say-as sub phoneme emphasis voice lang audio mark p s w
    token par seq media desc lexicon metadata meta
    """)
"""Cartesia's tags and SSML: known markup even where cleaning is off."""
BLOCK_TAGS = _words("""
    p s div li ul ol dl dt dd tr table thead tbody h1 h2 h3 h4 h5 h6 blockquote hr pre section article header
    footer nav aside main form
    """)
"""Tags at which a sentence ends."""
INLINE_TAGS = _words("""
    b i u a em strong span small big font mark code kbd samp var sup sub ins del strike tt abbr cite q dfn
    time data wbr phoneme emphasis say-as spell w token
    """)
"""Tags that may stand in the middle of a word."""
_OTHER_TAGS = _words("br img input button label select option textarea html head body title link svg path")
KNOWN_TAGS = SPEECH_TAGS | BLOCK_TAGS | INLINE_TAGS | _OTHER_TAGS

_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>]+?))(?=\s|/?>|$)""")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(\s[^<>]*?)?\s*(/?)\s*>")
_OPEN_TAG = re.compile(r"</?(?:[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?\s*)?")
_DECLARATION = re.compile(r"<[!?][^<>]*>")
_AUTOLINK = re.compile(r"<(?:(?:https?://|mailto:|www\.)[^\s<>]+|[\w.+-]{1,64}@[^\s<>@]+\.[^\s<>@]+)>")
_OPEN_AUTOLINK = re.compile(r"<(?:(?:[A-Za-z]+:|www\.)[^\s<>]*|[\w.+-]{1,64}(?:@[^\s<>@]*)?)")
_CONTROL = re.compile(r"<[|｜][^<>|｜]{0,80}[|｜]>")
_OPEN_CONTROL = re.compile(r"<[|｜][^<>|｜]{0,80}[|｜]?")
_PHONEMES = re.compile(r"<<[^\s<>][^<>\n]{0,196}>>")
_OPEN_PHONEMES = re.compile(r"<<(?:[^\s<>][^<>\n]{0,196}>?)?")


class Kind(Enum):
    """What a bracket turned out to be."""

    MORE = "more"  # cannot be told yet
    LITERAL = "literal"  # a sign
    DROP = "drop"  # not to be spoken
    AUTOLINK = "autolink"  # brackets around an address
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag with its lower-case name and attributes."""

    name: str
    closing: bool = False
    empty: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The verdict on a bracket: it takes up the text to ``end`` (for MORE and LITERAL: nothing)."""

    kind: Kind
    end: int = 0
    tag: Tag | None = None


_MORE = Found(Kind.MORE)
_LITERAL = Found(Kind.LITERAL)


def scan(text: str, at: int, *, closed: bool) -> Found:
    """Judge the ``<`` at ``text[at]``.

    ``closed``: no more text will come. The verdict never changes with text that follows; MORE is the answer
    as long as it might. The rest of a text is dropped when it ends inside what looks like a tag.
    """
    if at + 1 >= len(text):
        return _LITERAL if closed else _MORE
    after = text[at + 1]
    if after in "|｜":
        return _bounded(text, at, closed, _CONTROL, _OPEN_CONTROL)
    if after == "<":
        found = _bounded(text, at, closed, _PHONEMES, _OPEN_PHONEMES)
        return _LITERAL if found.kind is Kind.DROP and found.end <= at + 2 else found
    if after == "!" and text.startswith("<!--"[: len(text) - at], at):
        return _comment(text, at, closed)
    if not (after in "/!?" or (after.isascii() and after.isalpha())):
        return _LITERAL
    return _tag(text, at, closed)


def _bounded(text: str, at: int, closed: bool, whole: re.Pattern[str], start: re.Pattern[str]) -> Found:
    """A token that must match ``whole``; its opening two characters are dropped when it does not."""
    if m := whole.match(text, at):
        return Found(Kind.DROP, m.end())
    if start.fullmatch(text, at):
        return Found(Kind.DROP, len(text)) if closed else _MORE
    return Found(Kind.DROP, at + 2)


def _comment(text: str, at: int, closed: bool) -> Found:
    end = text.find("-->", at + 4, at + MAX_COMMENT)
    if end >= 0:
        return Found(Kind.DROP, end + 3)
    if len(text) - at >= MAX_COMMENT:
        return Found(Kind.DROP, at + 4)
    return Found(Kind.DROP, len(text)) if closed else _MORE


def _tag(text: str, at: int, closed: bool) -> Found:
    limit = at + MAX_TAG
    end = text.find(">", at, limit)
    part = text[at : end + 1 if end >= 0 else limit]
    if "<" in part[1:] or "\n\n" in part or _is_prose(part):
        return _LITERAL
    if end < 0:
        return _unfinished(part, len(text), closed)
    if _AUTOLINK.fullmatch(part):
        return Found(Kind.AUTOLINK, end + 1)
    if _DECLARATION.fullmatch(part):
        return Found(Kind.DROP, end + 1)
    m = _TAG.fullmatch(part)
    if m is None:
        return _LITERAL
    attributes = {
        a[1].lower(): next((v for v in a.groups()[1:] if v is not None), "").strip(" “”‘’")
        for a in _ATTRIBUTE.finditer(m[3] or "")
    }
    return Found(Kind.TAG, end + 1, Tag(m[2].lower(), bool(m[1]), bool(m[4]), attributes))


def _unfinished(part: str, end: int, closed: bool) -> Found:
    if len(part) >= MAX_TAG:
        return _LITERAL
    if part[1] not in "!?" and not _OPEN_TAG.fullmatch(part) and not _OPEN_AUTOLINK.fullmatch(part):
        return _LITERAL
    if not closed:
        return _MORE
    name = re.match(r"</?([\w:.-]*)", part)
    stem = name[1].lower() if name else ""
    if "=" in part or part[1] in "/!?" or any(known.startswith(stem) for known in KNOWN_TAGS):
        return Found(Kind.DROP, end)
    return _LITERAL


def _is_prose(part: str) -> bool:
    """A run of words too long for a tag without any ``=``; judged by its beginning alone."""
    head = part[: MAX_LOOSE + 1]
    return len(head) > MAX_LOOSE and "=" not in head and any(c.isspace() for c in head)


_STRENGTHS = {"none": 0, "x-weak": 100, "weak": 250, "medium": 500, "strong": 1000, "x-strong": 1500}
_RATES = {
    "x-slow": 0.6,
    "slow": 0.8,
    "medium": 1.0,
    "default": 1.0,
    "normal": 1.0,
    "fast": 1.2,
    "x-fast": 1.5,
}
_LOUDNESS = {
    "silent": 0.0,
    "x-soft": 0.5,
    "soft": 0.7,
    "medium": 1.0,
    "default": 1.0,
    "loud": 1.4,
    "x-loud": 2.0,
}
_DURATION = re.compile(r"\s*\+?(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})\s*(ms|s|)\s*", re.IGNORECASE)
_FACTOR = re.compile(r"\s*([+-]?)(\d{1,4}(?:\.\d{0,6})?|\.\d{1,6})\s*(%|x|dB|)\s*", re.IGNORECASE)


def pause_ms(tag: Tag) -> int:
    """Length of a ``<break>`` in milliseconds, 0 to ``MAX_PAUSE_MS`` (SSML 1.1, 3.2.3; bare means medium).

    A time without a unit is in seconds up to 20, in milliseconds above.
    """
    value = tag.attributes.get("time", tag.attributes.get("duration"))
    if value is not None and (m := _DURATION.fullmatch(value)):
        number, unit = float(m[1]), m[2].lower()
        scale = 1 if unit == "ms" or (not unit and number > 20) else 1000
        return min(MAX_PAUSE_MS, round(number * scale))
    return _STRENGTHS.get(tag.attributes.get("strength", "medium").lower(), _STRENGTHS["medium"])


def speed_of(tag: Tag) -> float | None:
    """Speed factor that the tag asks for, within ``SPEED_RANGE``; None if it asks for none."""
    return _factor(tag, "speed", "rate", _RATES, SPEED_RANGE)


def volume_of(tag: Tag) -> float | None:
    """Volume factor that the tag asks for, within ``VOLUME_RANGE``; None if it asks for none."""
    return _factor(tag, "volume", "volume", _LOUDNESS, VOLUME_RANGE)


def _factor(
    tag: Tag, own: str, in_prosody: str, words: dict[str, float], limits: tuple[float, float]
) -> float | None:
    if tag.name == own:
        value = next(
            (tag.attributes[k] for k in ("ratio", "value", "rate", "level") if k in tag.attributes), None
        )
    elif tag.name == "prosody":
        value = tag.attributes.get(in_prosody)
    else:
        return None
    if value is None:
        return None
    if (word := words.get(value.strip().lower())) is not None:
        return word
    m = _FACTOR.fullmatch(value)
    if m is None:
        return None
    sign, number, unit = m[1], float(m[2]), m[3].lower()
    if unit == "db":
        factor = math.pow(10.0, (-number if sign == "-" else min(number, 40.0)) / 20)
    elif unit == "%":
        factor = number / 100 if not sign else 1 + (number if sign == "+" else -number) / 100
    else:
        factor = number if sign != "-" else 1.0
    return min(limits[1], max(limits[0], factor))


def spells(tag: Tag) -> bool:
    """Whether the content is to be read out sign by sign."""
    if tag.name == "spell":
        return True
    reading = tag.attributes.get("interpret-as", "").lower()
    return tag.name == "say-as" and reading in {"characters", "spell-out", "verbatim"}
