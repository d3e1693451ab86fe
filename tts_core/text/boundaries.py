# ruff: noqa: PLR0911 - a rule is easiest to check as a list of cases, each with its answer
"""Where running text may be cut: the rules on a prefix of it.

``decide`` looks at clean text from the start of the present segment. It answers with a cut, or asks for more
text; an answer never changes with the text that follows. Every rule looks ahead only to the end of the next
word, at most ``LOOKAHEAD`` characters. White space in the text is single; a line feed stands for one that
ends a short line.

A cut at a sentence end needs white space after the full stop and its closing quotes, so nothing is ever cut
inside a number, price, decimal, version, time, URL, e-mail address or an abbreviation with inner dots.
Abbreviations, initials and list numbers are told from sentence ends by ``lexicon``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from . import lexicon
from .characters import extends
from .lexicon import is_abbreviation

LOOKAHEAD = 32
"""Upper bound on how far past a candidate any rule looks."""
SLACK = 24
"""A sentence may be this much longer than the limit before it is cut inside."""
MIN_FIRST_WORDS = 2
"""Words of a first clause that needs no sentence opener."""
LONG_FIRST_WORDS = 8
"""Words after which a first clause may also end before a conjunction, without a comma."""
HARD_FACTOR = 4
"""A text without any safe place is cut at this multiple of the limit."""
_NEXT_WORD = 16
_CLOSERS = 8


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


_CONJUNCTION = (
    r"(?:because|although|though|but|while|which|whereas|unless"
    r"|(?:and|or|so) (?:then|that|there|I|you|he|she|it|we|they|your|our)(?:['’]\w{1,3})?)(?= )"
)
_CANDIDATE = re.compile(r"[.!?…。！？\n]")
_FIRST_CANDIDATE = re.compile(rf"[.!?…。！？\n,;:—–]| -(?= )|(?<= ){_CONJUNCTION}")
_TERMINATORS = re.compile(r"[.!?…。！？]{1,16}")
_CLOSING = re.compile(rf"[\"'”’»)\]}}」』]{{0,{_CLOSERS}}}")
_OPENING = re.compile(r"[\"'“‘«(\[{¿¡「『]{0,8}")
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_NEXT = re.compile(rf"[A-Za-z'’.]{{1,{_NEXT_WORD}}}")
_INITIAL = re.compile(r"[A-Z](?:\.-?[A-Z])*")
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_LIST_NUMBER = re.compile(r"\d{1,3}|[A-Za-z]|[ivxIVX]{2,4}")
_PLAIN_WORD = re.compile(r"[A-Za-z'’]+")
_NEW_SENTENCE = re.compile(r"(?:[A-Z][a-z]+|[AI])(?=[\s,'’])")
_STATE = re.compile(r"[A-Z]{2}")
_DIGIT_END = re.compile(r"\d[)%]?$")


def decide(
    text: str,
    scan: int,
    *,
    first: bool,
    final: bool,
    limit: int,
    shields: list[tuple[int, int]],
) -> Cut | Wait:
    """The first cut in ``text``, looked for from ``scan`` on.

    ``first``: nothing was spoken yet, so a clause will do. ``final``: the text ends here. ``limit``: length
    above which a text without a sentence end is cut at the best place. ``shields``: no cut inside these.
    """
    pattern = _FIRST_CANDIDATE if first else _CANDIDATE
    at = scan
    end = limit + SLACK
    while at <= end:
        m = pattern.search(text, at)
        if m is None or m.start() >= end:
            break
        if any(a <= m.start() < b for a, b in shields):
            at = m.end()
            continue
        verdict = _judge(text, m, first=first, final=final)
        if verdict is _MORE:
            return Wait(m.start(), eager=True)
        if isinstance(verdict, Cut) and _speaks(text, verdict.at):
            return verdict
        at = m.end()
    if len(text) > end and (final or len(text) >= end + LOOKAHEAD):
        best = _within(text, limit, final, shields) if at <= end else 0
        if best:
            return Cut(best, Reason.LENGTH)
        return _beyond(text, max(at, end + 1), limit, final, shields)
    return Wait(max(at, min(end, len(text)) - (LOOKAHEAD if first else 0)))


def ends_sentence(text: str) -> bool:
    """Whether text that stands alone is complete, rather than stopped after a comma or the like."""
    return not text.rstrip(" \n\"'”’»)]}").endswith((",", ";", ":", "—", "–", " -"))


def releasable(text: str) -> bool:
    """Whether a text that paused here may be spoken: it ends in a full sentence or clause.

    A full stop after a number counts ("It costs 3."), one after a title or single letter does not, nor a
    comma after a digit.
    """
    body = text.rstrip(" \n")
    bare = body.rstrip("\"'”’»)]}」』")
    if not bare or not _speaks(bare, len(bare)):
        return False
    sign = bare[-1]
    if sign in "!?…。！？":
        return True
    if sign == ".":
        if bare.endswith(".."):
            return True
        word, start = _word_before(bare, len(bare) - 1)
        kind = _class_of(bare, word, start)
        if is_abbreviation(word, lexicon.BEFORE_NUMBER) and not (word == "No" and not start):
            return word.lower() in lexicon.ALSO_WORDS and word.islower()
        if len(word) == 1 and word.isalpha():
            return word == "I"
        return kind in (_PLAIN, _MAYBE)
    if sign in ",;:—":
        before = bare[-2:-1]
        return not before.isdigit() and (_count_words(bare) >= MIN_FIRST_WORDS or _is_opener(bare[:-1]))
    return False


class _Verdict(Enum):
    MORE = 1
    NO = 2


_MORE = _Verdict.MORE
_NO = _Verdict.NO
_Answer = Cut | _Verdict


def _judge(text: str, m: re.Match[str], *, first: bool, final: bool) -> _Answer:
    sign = m[0]
    at = m.start()
    if sign == "\n":
        return _line_end(text, at)
    if sign[0] in ".!?…。！？":
        answer = _sentence(text, at, final)
        if answer is _NO and first and (sign == "…" or text.startswith("...", at)):
            return _ellipsis_clause(text, at)
        return answer
    if not first:
        return _NO
    if sign in ",;:":
        return _clause(text, at, final)
    if sign in "—–" or sign == " -":
        return _dash(text, m, final)
    if _count_words(text[:at]) >= LONG_FIRST_WORDS and text.count("(", 0, at) <= text.count(")", 0, at):
        return Cut(at, Reason.CLAUSE)
    return _NO


# -- sentences -------------------------------------------------------------------------------------


def _sentence(text: str, at: int, final: bool) -> _Answer:
    run = _TERMINATORS.match(text, at)
    assert run is not None
    if at > 0 and text[at - 1] in ".!?…。！？":
        return _NO  # inside a run that was judged already
    after = run.end()
    closing = _CLOSING.match(text, after)
    assert closing is not None
    end = closing.end()
    if end >= len(text):
        return Cut(end, Reason.SENTENCE) if final else _MORE
    if run[0][-1] in "。！？":
        return _NO if extends(text[end]) else Cut(end, Reason.SENTENCE)
    closed = end > after
    if text[end] not in " \n":
        return _without_space(text, at, run[0], after, final) if not closed else _NO
    opening = _OPENING.match(text, end + 1)
    assert opening is not None
    nxt = opening.end()
    if nxt >= len(text):
        return Cut(end, Reason.SENTENCE) if final else _MORE
    new_line = text[end] == "\n"
    if run[0] == ".":
        return _full_stop(text, at, end, nxt, closed=closed, new_line=new_line, final=final)
    char = text[nxt]
    if "!" in run[0] or "?" in run[0]:
        return _NO if closed and char.islower() else Cut(end, Reason.SENTENCE)
    return Cut(end, Reason.SENTENCE) if char.isupper() or new_line else _NO


def _full_stop(
    text: str, at: int, end: int, nxt: int, *, closed: bool, new_line: bool, final: bool
) -> _Answer:
    cut = Cut(end, Reason.SENTENCE)
    char = text[nxt]
    word, start = _word_before(text, at)
    kind = _class_of(text, word, start)
    if not word:
        # A dot that stands alone: part of " . . . ", or a full stop after a blank.
        return cut if char.isupper() and text[max(0, at - 2) : at] != ". " else _NO
    if kind is _LISTED:
        return _NO
    if new_line and kind is not _GLUED and not char.islower():
        return cut
    if kind is _GLUED:
        return _NO
    if is_abbreviation(word, lexicon.BEFORE_NUMBER) and (char.isdigit() or char == "#"):
        return _NO
    if kind is _MAYBE or kind is _LETTER:
        return _if_starter(text, nxt, cut, word, final) if char.isupper() or char.isdigit() else _NO
    if char.isdigit():
        # "3. 50" may be a price that a client broke; a year or a code is whole.
        return _NO if word[-1].isdigit() and not re.fullmatch(r"\d{4,}", word) else cut
    if char.islower():
        camel = re.compile(r"[a-z]{1,3}[A-Z]").match(text, nxt)
        if camel:
            return cut
        if nxt + 4 >= len(text) and not final and text[nxt:].isalpha():
            return _MORE
        return cut if not closed and text[:1].islower() and len(word) > 1 and word.isalpha() else _NO
    return _NO if char in ".,;:!?)" else cut


def _if_starter(text: str, nxt: int, cut: Cut, word: str, final: bool) -> _Answer:
    """After what may be an abbreviation: a new sentence only if the next word often begins one."""
    m = _NEXT.match(text, nxt)
    if m is None:
        return _NO
    if m.end() >= len(text) and len(m[0]) < _NEXT_WORD and not final:
        return _MORE
    low = m[0].strip(".'’").replace("’", "'").lower()
    if len(word) == 1:
        if word == "I":
            return _NO if _INITIAL.fullmatch(m[0].rstrip(".")) and m[0] != "I" and "." in m[0] else cut
        if low in lexicon.NOT_AFTER_INITIAL:
            return _NO
    if m[0].endswith(".") and len(low) == 1:
        return _NO
    return cut if low in lexicon.STARTERS else _NO


def _without_space(text: str, at: int, run: str, after: int, final: bool) -> _Answer:
    """Clients may join sentences without the blank, as in "How are you?I'm fine"."""
    if len(run) != 1 or run == "…":
        return _NO
    if not text[after].isupper():
        return _NO
    word, _ = _word_before(text, at)
    if run == ".":
        if not re.fullmatch(r"[a-z]{2,}|\d{4,}", word):
            return _NO
    elif not _PLAIN_WORD.fullmatch(word):
        return _NO
    m = _NEW_SENTENCE.match(text, after)
    if m is None:
        tail = text[after : after + _NEXT_WORD]
        if not final and after + _NEXT_WORD > len(text) and re.fullmatch(r"[A-Z][a-z]*", tail):
            return _MORE
        return _NO
    if len(m[0]) > _NEXT_WORD or m[0].lower() in lexicon.TOP_LEVEL_DOMAINS:
        return _NO
    return Cut(after, Reason.SENTENCE)


def _line_end(text: str, at: int) -> _Answer:
    """A short line ends a sentence unless the next goes on in lower case or it stopped after a comma."""
    opening = _OPENING.match(text, at + 1)
    assert opening is not None
    if opening.end() >= len(text):
        return _MORE
    char = text[opening.end()]
    if (
        text[at - 1 : at] in {",", "-", "–", "—", "&"}
        or char.islower()
        or not (char.isalnum() or char in "$€£#+-")
    ):
        return _NO
    word, start = _word_before(text, at - 1) if text[at - 1 : at] == "." else ("", 0)
    if word and _class_of(text, word, start) in (_GLUED, _LISTED):
        return _NO
    return Cut(at, Reason.CLAUSE if text[at - 1 : at] == ":" else Reason.SENTENCE)


# -- clauses ---------------------------------------------------------------------------------------


def _clause(text: str, at: int, final: bool) -> _Answer:
    """After a comma, semicolon or colon, if enough was said and what follows is no part of it."""
    closing = _CLOSING.match(text, at + 1)
    assert closing is not None
    end = closing.end()
    if end >= len(text):
        return _NO if final else _MORE
    if text[end] not in " \n":
        return _NO
    head = text[:at]
    if _count_words(head) < MIN_FIRST_WORDS and not _is_opener(head):
        return _NO
    if head.count("(") > head.count(")") or head.count("“") > head.count("”") + (end > at + 1):
        return _NO
    opening = _OPENING.match(text, end + 1)
    assert opening is not None
    nxt = opening.end()
    if nxt >= len(text):
        return _NO if final else _MORE
    char = text[nxt]
    cut = Cut(end, Reason.CLAUSE)
    if char.isdigit():
        last = _WORD.findall(head)[-1:]
        dated = bool(last) and last[0].lower() in lexicon.MONTHS
        return _NO if text[at] != ":" and (_DIGIT_END.search(head) or dated) else cut
    if char.isupper() or (nxt == end + 1 and char.islower()):
        return _unless_suffix(text, nxt, cut, final)
    return _NO if char in ",;:.!?" else cut


def _unless_suffix(text: str, nxt: int, cut: Cut, final: bool) -> _Answer:
    """Not before ", Jr.", ", TX 78701", ", Apt. 4"."""
    m = _NEXT.match(text, nxt)
    if m is None:
        return cut
    if m.end() >= len(text) and len(m[0]) < _NEXT_WORD and not final:
        low = m[0].rstrip(".'’").lower()
        might = (len(low) < 3 and m[0].isupper()) or any(s.startswith(low) for s in lexicon.SUFFIXES)
        return _MORE if might else cut
    low = m[0].rstrip(".'’").lower()
    if low in lexicon.SUFFIXES or (_STATE.fullmatch(m[0]) and m[0] not in {"OK", "TV", "PM", "AM"}):
        return _NO
    return cut


def _dash(text: str, m: re.Match[str], final: bool) -> _Answer:
    """After a dash between words; not in a range or a compound."""
    at, end = m.start(), m.end()
    if end >= len(text):
        return _NO if final else _MORE
    spaced = text[end] in " \n"
    if not spaced and (m[0] != "—" or extends(text[end])):
        return _NO
    if m[0] == "–" and text[at - 1 : at] not in {" ", "\n"}:
        return _NO
    nxt = end + spaced
    if nxt >= len(text):
        return _NO if final else _MORE
    head = text[:at].rstrip(" \n")
    if _count_words(head) < MIN_FIRST_WORDS and not _is_opener(head):
        return _NO
    if head.count("(") > head.count(")") or not (text[nxt].isalpha() or (spaced and text[nxt] in "\"'“‘$€£")):
        return _NO
    return Cut(end, Reason.CLAUSE)


def _ellipsis_clause(text: str, at: int) -> _Answer:
    run = _TERMINATORS.match(text, at)
    assert run is not None
    end = run.end()
    if end >= len(text) or text[end] != " " or _count_words(text[:at]) < MIN_FIRST_WORDS:
        return _NO
    return Cut(end, Reason.CLAUSE)


def _is_opener(head: str) -> bool:
    return head.strip(" \n\"'“”‘’").lower() in lexicon.OPENERS


# -- words -----------------------------------------------------------------------------------------


class _Kind(Enum):
    PLAIN = 0  # a word or number like any other
    GLUED = 1  # an abbreviation that something must follow
    MAYBE = 2  # an abbreviation that may end a sentence
    LETTER = 3  # an initial
    LISTED = 4  # the number of a list item


_GLUED, _MAYBE, _LETTER, _LISTED, _PLAIN = _Kind.GLUED, _Kind.MAYBE, _Kind.LETTER, _Kind.LISTED, _Kind.PLAIN


def _word_before(text: str, at: int) -> tuple[str, int]:
    """The word that ends at ``at``, without opening quotes, and its start; at most 64 characters back."""
    low = max(0, at - 64)
    start = max(text.rfind(" ", low, at), text.rfind("\n", low, at), low - 1) + 1
    word = text[start:at]
    bare = word.lstrip("\"'“‘«([{¿¡")
    return bare, start + len(word) - len(bare)


def _class_of(text: str, word: str, start: int) -> _Kind:
    """What the full stop after ``word`` (which begins at ``start``) may mean."""
    if not text[:start].strip() and _LIST_NUMBER.fullmatch(word):
        return _LISTED
    if is_abbreviation(word, lexicon.TITLES) or is_abbreviation(word, lexicon.NEVER_LAST):
        return _GLUED
    if word in {"St", "Ste", "st"} and not _after_name(text, start):
        return _GLUED
    if len(word) == 1 and word.isalpha() and word.isupper():
        return _LETTER
    if is_abbreviation(word, lexicon.MAY_END) or _DOTTED.fullmatch(word):
        return _MAYBE
    return _PLAIN


def _after_name(text: str, start: int) -> bool:
    """Tell "Main St.", which ends an address, from "Go to St.", which begins a name."""
    before, _ = _word_before(text, max(0, start - 1))
    if not before or before[-1] in ".,;:!?":
        return False
    if before[0].isdigit() and before[-1].isalpha():
        return True
    return before[0].isupper() and before.lower() not in lexicon.STARTERS


def _count_words(text: str) -> int:
    return len(_WORD.findall(text))


def _speaks(text: str, end: int) -> bool:
    return any(c.isalnum() for c in text[:end])


# -- length ----------------------------------------------------------------------------------------

_LONG_CANDIDATE = re.compile(rf"[,;:—–]| -(?= )|(?<= ){_CONJUNCTION}")


def _within(text: str, limit: int, final: bool, shields: list[tuple[int, int]]) -> int:
    """The best place up to ``limit``: a strong clause end, a comma, a conjunction, a word end; 0 for none."""
    strong = comma = conjunction = 0
    for m in _LONG_CANDIDATE.finditer(text, limit // 4, limit + 1):
        if any(a <= m.start() < b for a, b in shields):
            continue
        if m[0][-1].isalpha() or m[0][-1] in "'’":
            conjunction = m.start()
            continue
        clause = _clause(text, m.start(), final) if m[0] in ",;:" else _dash(text, m, final)
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


def _beyond(text: str, at: int, limit: int, final: bool, shields: list[tuple[int, int]]) -> Cut | Wait:
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
    if before.isdigit() and re.compile(r"[ap]\.?m\b|[A-Z]{2}\b", re.IGNORECASE).match(text, at + 1):
        return False
    if before == ".":
        word, start = _word_before(text, at - 1)
        return _class_of(text, word, start) is _PLAIN and not is_abbreviation(word, lexicon.BEFORE_NUMBER)
    return before.isalnum() or before in ",;:!?)\"'”’%"
