# ruff: noqa: PLR0911 - a rule is easiest to check as a list of cases, each with its answer
"""Where a sentence may be cut inside: a first clause, or a sentence that is too long."""

from __future__ import annotations

import re

from . import lexicon
from .characters import extends
from .cuts import CLOSING, MORE, NEXT, NEXT_WORD, NO, OPENING, TERMINATORS, Answer, Cut, Reason, Wait
from .lexicon import is_abbreviation
from .words import Kind, count_words, is_opener, kind_of, word_before

LOOKAHEAD = 32
"""Upper bound on how far past a candidate any rule looks."""
MIN_FIRST_WORDS = 2
"""Words of a first clause that needs no sentence opener."""
HARD_FACTOR = 4
"""A text without any safe place is cut at this multiple of the limit."""

CONJUNCTION = (
    r"(?:because|although|though|but|while|which|whereas|unless"
    r"|(?:and|or|so) (?:then|that|there|I|you|he|she|it|we|they|your|our)(?:['’]\w{1,3})?)(?= )"
)
"""A conjunction that begins a clause of its own."""
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_STATE = re.compile(r"[A-Z]{2}")
_DIGIT_END = re.compile(r"\d[)%]?$")
_AFTER_NUMBER = re.compile(r"[ap]\.?m\b|[A-Z]{2}\b", re.IGNORECASE)
_CANDIDATE = re.compile(rf"[,;:—–]| -(?= )|(?<= ){CONJUNCTION}")


def after_mark(text: str, at: int, final: bool) -> Answer:
    """After a comma, semicolon or colon, if enough was said and what follows is no part of it."""
    closing = CLOSING.match(text, at + 1)
    assert closing is not None
    end = closing.end()
    if end >= len(text):
        return NO if final else MORE
    if text[end] not in " \n":
        return NO
    head = text[:at]
    if count_words(head) < MIN_FIRST_WORDS and not is_opener(head):
        return NO
    if head.count("(") > head.count(")") or head.count("“") > head.count("”") + (end > at + 1):
        return NO
    opening = OPENING.match(text, end + 1)
    assert opening is not None
    nxt = opening.end()
    if nxt >= len(text):
        return NO if final else MORE
    char = text[nxt]
    cut = Cut(end, Reason.CLAUSE)
    if char.isdigit():
        last = _WORD.findall(head)[-1:]
        dated = bool(last) and last[0].lower() in lexicon.MONTHS
        return NO if text[at] != ":" and (_DIGIT_END.search(head) or dated) else cut
    if char.isupper() or (nxt == end + 1 and char.islower()):
        return _unless_bound(text, nxt, cut, final)
    return NO if char in ",;:.!?" else cut


def _unless_bound(text: str, nxt: int, cut: Cut, final: bool) -> Answer:
    """Not before ", Jr.", ", TX 78701", ", Apt. 4"; nor where only ", please." would be left."""
    m = NEXT.match(text, nxt)
    if m is None:
        return cut
    low = m[0].rstrip(".'’").lower()
    after = text[m.end() : m.end() + 1]
    if not after and len(m[0]) < NEXT_WORD and not final:
        state = len(low) < 3 and m[0].isupper()
        might = state or any(w.startswith(low) for w in lexicon.SUFFIXES | lexicon.TAILS)
        return MORE if might else cut
    if low in lexicon.SUFFIXES or (_STATE.fullmatch(m[0]) and m[0] not in {"OK", "TV", "PM", "AM"}):
        return NO
    return NO if low in lexicon.TAILS and (m[0][-1] == "." or after in ".!?,;…") else cut


def after_dash(text: str, at: int, end: int, final: bool) -> Answer:
    """After the dash ``text[at:end]`` between words; not in a range or a compound."""
    sign = text[at:end]
    if end >= len(text):
        return NO if final else MORE
    spaced = text[end] in " \n"
    if not spaced and (sign != "—" or extends(text[end])):
        return NO
    if sign == "–" and text[at - 1 : at] not in {" ", "\n"}:
        return NO
    nxt = end + spaced
    if nxt >= len(text):
        return NO if final else MORE
    head = text[:at].rstrip(" \n")
    if count_words(head) < MIN_FIRST_WORDS and not is_opener(head):
        return NO
    if head.count("(") > head.count(")") or not (text[nxt].isalpha() or (spaced and text[nxt] in "\"'“‘$€£")):
        return NO
    return Cut(end, Reason.CLAUSE)


def after_dots(text: str, at: int) -> Answer:
    """After an ellipsis that a sentence goes on behind ("Let me see... there it is")."""
    run = TERMINATORS.match(text, at)
    assert run is not None
    end = run.end()
    if end >= len(text) or text[end] != " " or count_words(text[:at]) < MIN_FIRST_WORDS:
        return NO
    return Cut(end, Reason.CLAUSE)


def within(text: str, limit: int, final: bool, shields: list[tuple[int, int]]) -> int:
    """The best place up to ``limit``: a strong clause end, a comma, a conjunction, a word end; 0 for none."""
    strong = comma = conjunction = 0
    for m in _CANDIDATE.finditer(text, limit // 4, limit + 1):
        if any(a <= m.start() < b for a, b in shields):
            continue
        if m[0][-1].isalpha() or m[0][-1] in "'’":
            conjunction = m.start()
            continue
        if m[0] in ",;:":
            clause = after_mark(text, m.start(), final)
        else:
            clause = after_dash(text, m.start(), m.end(), final)
        if not isinstance(clause, Cut) or clause.at > limit:
            continue
        if m[0] == ",":
            comma = clause.at
        elif clause.at >= limit // 2:
            strong = clause.at
    return strong or comma or conjunction or _last_blank(text, limit, shields)


def _last_blank(text: str, limit: int, shields: list[tuple[int, int]]) -> int:
    at = text.rfind(" ", 1, limit + 1)
    while at > 0 and not _parts(text, at, shields):
        at = text.rfind(" ", 1, at)
    return max(at, 0)


def beyond(text: str, at: int, limit: int, final: bool, shields: list[tuple[int, int]]) -> Cut | Wait:
    """The first word end from ``at`` on; from ``HARD_FACTOR`` times the limit on, between any characters."""
    hard = limit * HARD_FACTOR
    blank = text.find(" ", at, hard)
    while blank >= 0:
        if blank + LOOKAHEAD > len(text) and not final:
            return Wait(blank)
        if _parts(text, blank, shields):
            return Cut(blank, Reason.LENGTH)
        blank = text.find(" ", blank + 1, hard)
    if len(text) < hard + LOOKAHEAD:
        return Wait(min(len(text), hard))
    at = limit
    while at < hard and extends(text[at]):
        at += 1
    return Cut(at, Reason.LENGTH)


def _parts(text: str, at: int, shields: list[tuple[int, int]]) -> bool:
    """Whether the blank at ``at`` parts two words that may be said apart."""
    if any(a <= at < b for a, b in shields):
        return False
    before, after = text[at - 1], text[at + 1 : at + 2]
    if after.isdigit() or (before.isdigit() and not after.isalpha()):
        return False
    if before.isdigit() and _AFTER_NUMBER.match(text, at + 1):
        return False
    if before == ".":
        word, start = word_before(text, at - 1)
        return kind_of(text, word, start) is Kind.PLAIN and not is_abbreviation(word, lexicon.BEFORE_NUMBER)
    return before.isalnum() or before in ",;:!?)\"'”’%"
