# ruff: noqa: PLR0911 - a rule is easiest to check as a list of cases, each with its answer
"""Markdown in running text: what is a mark and what is a sign to be read.

Pure rules on a text and a position in it, after CommonMark 0.31 and GitHub's tables and task lists, as
language models write them: only what is not spoken is recognised, and laxer than in the standard. Every rule
looks ahead a bounded way, says so when the text ends too early (MORE, None), and never changes its verdict
with the text that follows.
"""

from __future__ import annotations

import re
from enum import Enum

from .items import Level

MAX_RUN = 64
"""Longest run of one mark that is looked at as a whole."""
_MAX_RULE = 200
_MAX_INFO = 100
_MAX_LINK = 2000
_MAX_ROW = 500

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
OPEN_ENTITY = re.compile(r"&(?:#\d{0,7}|#[xX][0-9A-Fa-f]{0,6}|[A-Za-z][A-Za-z0-9]{0,30})?")
ESCAPABLE = frozenset("!\"#$%'()*+,-./:;=>?@[\\]^_`{|}~")
"""Signs that a backslash protects. Not ``<`` and ``&``: a backslash must not let a tag through."""

_BULLETS = frozenset("-*+•‣◦▪●–—·")
_INDENT = re.compile(r"[ \t\r\f\v]*")
_HASHES = re.compile(r"#{1,6}")
_RULE = re.compile(r"[-*_=:|+ \t]+")
_ORDER = re.compile(r"\d{1,3}")
_TASK = re.compile(r"\[[ xX]\][ \t]")
_CITATION = re.compile(r"\[(?:\d{1,3}|\^[^\]\[\s]{1,20})\]|【[^】\n]{0,60}】")
_OPEN_CITATION = re.compile(r"\[(?:\d{0,3}|\^[^\]\[\s]{0,20})|【[^】\n]{0,60}")
_TARGET = (
    r"\([ \t]*<?[^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*>?"
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)"""
)
_OPEN_TARGET = (
    r"\([ \t]*<?[^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*(?:\([^()\s]*)?>?"
    r"""(?:[ \t]+(?:"[^"\n]*"?|'[^'\n]*'?)?)?[ \t]*"""
)
_LINK_END = re.compile(rf"\](?:{_TARGET}|\[[^\]\[\s]{{0,60}}\])")
_OPEN_LINK_END = re.compile(rf"\](?:{_OPEN_TARGET}|\[[^\]\[\s]{{0,60}})?")
_IMAGE = re.compile(rf"!\[[^\]\[\n]{{0,300}}\]{_TARGET}")
_OPEN_IMAGE = re.compile(rf"!(?:\[[^\]\[\n]{{0,300}}(?:\](?:{_OPEN_TARGET})?)?)?")


class Block(Enum):
    """What begins a line."""

    MORE = "more"  # cannot be told yet
    PLAIN = "plain"  # running text
    SKIP = "skip"  # a mark to drop, after which the line begins anew
    HEADING = "heading"
    ITEM = "item"
    RULE = "rule"
    DELIMITER = "delimiter"  # the line under the head of a table
    ROW = "row"
    FENCE = "fence"


Verdict = tuple[Block, int]
"""The kind, and up to where it is dropped."""


def run(text: str, at: int) -> int:
    """End of the run of the same character that begins at ``at``, at most ``MAX_RUN`` long."""
    end = at
    limit = min(len(text), at + MAX_RUN)
    while end < limit and text[end] == text[at]:
        end += 1
    return end


def may_grow(text: str, at: int, end: int) -> bool:
    """Whether text that follows could make the run longer."""
    return end == len(text) and end - at < MAX_RUN


def is_sign(char: str, length: int, before: str, after: str) -> bool:
    """Whether ``*``, ``_`` or ``~`` is to be read: "3 * 4", "2*3", "snake_case", "~5"; or marks words."""
    if char == "*":
        product = length <= 2 and before.isdigit() and after.isdigit()
        return product or (length == 1 and before == " " and after == " ")
    if char == "_":
        return length < 3 and before.isalnum() and after.isalnum()
    return length == 1


def bracket(text: str, at: int, *, after_word: bool) -> int | None:
    """End of what to drop at ``[``, ``]``, ``!`` or ``【``; 0 for nothing, None if it cannot be told yet.

    Of a link only its text is left (the single brackets are no matter of this rule); images, footnotes and
    citations after a word ("2020[1]") go.
    """
    char = text[at]
    if char == "!":
        whole, part = _IMAGE, _OPEN_IMAGE
    elif char == "]":
        whole, part = _LINK_END, _OPEN_LINK_END
    else:
        whole, part = _CITATION, _OPEN_CITATION
    m = whole.match(text, at, at + _MAX_LINK)
    if m is not None:
        return m.end() if char != "[" or m[0][1] == "^" or after_word else 0
    return None if len(text) < at + _MAX_LINK and part.fullmatch(text, at) else 0


def block(text: str, at: int, level: Level, *, table: bool) -> Verdict:
    """Judge the first visible character of a line, at ``at``; ``table``: the line before was of a table."""
    final = level >= Level.FLUSH
    char = text[at]
    if char == "|":
        return Block.ROW, at
    if table and (verdict := _loose_row(text, at, final)):
        return verdict
    if char == "#":
        return _heading(text, at, final)
    if char == ">":
        after = text[at + 1 : at + 2]
        return _if(Block.SKIP, at + 1, after, " >\n", final)
    if char in "`~":
        return fence(text, at, level)
    if char in "-*_=:+":
        return _rule_or_item(text, at, final)
    if char in _BULLETS:
        return _if(Block.ITEM, at + 2, text[at + 1 : at + 2], " \t\u00a0", final)
    if char.isascii() and char.isdigit():
        return _ordered(text, at, level)
    return Block.PLAIN, at


def _if(kind: Block, end: int, after: str, wanted: str, final: bool) -> Verdict:
    """``kind`` if the next character is one of ``wanted``."""
    if after:
        return (kind, end) if after in wanted else (Block.PLAIN, end)
    return (Block.PLAIN if final else Block.MORE), end


def _heading(text: str, at: int, final: bool) -> Verdict:
    m = _HASHES.match(text, at)
    assert m is not None
    return _if(Block.HEADING, m.end() + 1, text[m.end() : m.end() + 1], " \t", final)


def _rule_or_item(text: str, at: int, final: bool) -> Verdict:
    """A thematic break, the underline of a heading, a delimiter row, or a bullet."""
    m = _RULE.match(text, at, at + _MAX_RULE)
    assert m is not None
    end = m.end()
    if end - at == _MAX_RULE:
        return Block.SKIP, end
    if end == len(text) and not final:
        return Block.MORE, at
    bullet = text[at] in "-*+" and text[at + 1 : at + 2] in {" ", "\t"}
    if end == len(text) or text[end] == "\n":
        marks = m[0].strip()
        if "|" in marks:
            return Block.DELIMITER, end
        if bullet or marks in _BULLETS or sum(marks.count(c) for c in "-*_=") >= 3:
            return Block.RULE, end
        return Block.PLAIN, at
    if not bullet:
        return Block.PLAIN, at
    if text[end] == "[":
        if task := _TASK.match(text, end):
            return Block.ITEM, task.end()
        if len(text) - end < 4 and not final:
            return Block.MORE, at
    return Block.ITEM, at + 2


def _ordered(text: str, at: int, level: Level) -> Verdict:
    """The number of "1. Item" stays: it is said. A pause after "3." means that it is no list."""
    m = _ORDER.match(text, at)
    assert m is not None
    end = m.end()
    head = text[end : end + 2]
    if len(head) < 2 and head in {"", ".", ")"}:
        return (Block.MORE if level is Level.MORE else Block.PLAIN), at
    return (Block.ITEM if head[0] in ".)" and head[1:] in {" ", "\t"} else Block.PLAIN), at


def _loose_row(text: str, at: int, final: bool) -> Verdict | None:
    """A line without an outer bar is of the table if it has a bar inside; None if it has none."""
    end = text.find("\n", at, at + _MAX_ROW)
    if text.find("|", at, end if end >= 0 else at + _MAX_ROW) >= 0:
        return Block.ROW, at
    if end < 0 and len(text) - at < _MAX_ROW and not final:
        return Block.MORE, at
    return None


def fence(text: str, at: int, level: Level) -> Verdict:
    """Three or more backticks (or tildes) with no more of them on the line open a code block."""
    final = level >= Level.FLUSH
    end = run(text, at)
    if may_grow(text, at, end) and not final:
        return Block.MORE, at
    if end - at < 3:
        return Block.PLAIN, at
    limit = end + _MAX_INFO
    line = text.find("\n", end, limit)
    if text.find(text[at], end, line if line >= 0 else limit) >= 0:
        return Block.PLAIN, at
    if line >= 0:
        return Block.FENCE, line
    if len(text) >= limit:
        return Block.PLAIN, at
    return (Block.FENCE, len(text)) if final else (Block.MORE, at)


def fence_end(text: str, at: int, opened: str, level: Level) -> tuple[bool | None, int]:
    """Whether the line that begins at ``at`` closes the block that ``opened`` (None: not known yet)."""
    m = _INDENT.match(text, at, at + MAX_RUN)
    assert m is not None
    start = m.end()
    if start == len(text):
        return (None, start) if start - at < MAX_RUN else (False, start)
    end = run(text, start) if text[start] == opened[0] else start
    enough = end - start >= len(opened)
    if end == len(text) and not (enough and level >= Level.FLUSH) and end - start < MAX_RUN:
        return None, end
    return enough and (end == len(text) or text[end].isspace()), end
