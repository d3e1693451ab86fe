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

from . import lexicon
from .characters import extends
from .clauses import (
    CONJUNCTION,
    LOOKAHEAD,
    MIN_FIRST_WORDS,
    after_dash,
    after_dots,
    after_mark,
    beyond,
    within,
)
from .cuts import CLOSING, MORE, NEXT, NEXT_WORD, NO, OPENING, TERMINATORS, Answer, Cut, Reason, Wait
from .lexicon import is_abbreviation
from .words import Kind, count_words, is_opener, kind_of, speaks, word_before

SLACK = 24
"""A sentence may be this much longer than the limit before it is cut inside."""
LONG_FIRST_WORDS = 8
"""Words after which a first clause may also end before a conjunction, without a comma."""

_CANDIDATE = re.compile(r"[.!?…。！？\n]")
_FIRST_CANDIDATE = re.compile(rf"[.!?…。！？\n,;:—–]| -(?= )|(?<= ){CONJUNCTION}")
_INITIAL = re.compile(r"[A-Z](?:\.-?[A-Z])*")
_PLAIN_WORD = re.compile(r"[A-Za-z'’]+")
_NEW_SENTENCE = re.compile(r"(?:[A-Z][a-z]+|[AI])(?=[\s,'’])")
_CAMEL = re.compile(r"[a-z]{1,3}[A-Z]")


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
        if verdict is MORE:
            return Wait(m.start(), eager=True)
        if isinstance(verdict, Cut) and speaks(text, verdict.at):
            return verdict
        at = m.end()
    if len(text) > end and (final or len(text) >= end + LOOKAHEAD):
        best = within(text, limit, final, shields) if at <= end else 0
        if best:
            return Cut(best, Reason.LENGTH)
        return beyond(text, max(at, end + 1), limit, final, shields)
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
    if not bare or not speaks(bare, len(bare)):
        return False
    sign = bare[-1]
    if sign in "!?…。！？":
        return True
    if sign == ".":
        if bare.endswith(".."):
            return True
        word, start = word_before(bare, len(bare) - 1)
        kind = kind_of(bare, word, start)
        if is_abbreviation(word, lexicon.BEFORE_NUMBER) and not (word == "No" and not start):
            return word.lower() in lexicon.ALSO_WORDS and word.islower()
        if len(word) == 1 and word.isalpha():
            return word == "I"
        return kind in (Kind.PLAIN, Kind.MAYBE)
    if sign in ",;:—":
        before = bare[-2:-1]
        return not before.isdigit() and (count_words(bare) >= MIN_FIRST_WORDS or is_opener(bare[:-1]))
    return False


def _judge(text: str, m: re.Match[str], *, first: bool, final: bool) -> Answer:
    sign = m[0]
    at = m.start()
    if sign == "\n":
        return _line_end(text, at)
    if sign[0] in ".!?…。！？":
        answer = _sentence(text, at, final)
        if answer is NO and first and (sign == "…" or text.startswith("...", at)):
            return after_dots(text, at)
        return answer
    if not first:
        return NO
    if sign in ",;:":
        return after_mark(text, at, final)
    if sign in "—–" or sign == " -":
        return after_dash(text, at, m.end(), final)
    if count_words(text[:at]) >= LONG_FIRST_WORDS and text.count("(", 0, at) <= text.count(")", 0, at):
        return Cut(at, Reason.CLAUSE)
    return NO


# -- sentences -------------------------------------------------------------------------------------


def _sentence(text: str, at: int, final: bool) -> Answer:
    run = TERMINATORS.match(text, at)
    assert run is not None
    if at > 0 and text[at - 1] in ".!?…。！？":
        return NO  # inside a run that was judged already
    after = run.end()
    closing = CLOSING.match(text, after)
    assert closing is not None
    end = closing.end()
    if end >= len(text):
        return Cut(end, Reason.SENTENCE) if final else MORE
    if run[0][-1] in "。！？":
        return NO if extends(text[end]) else Cut(end, Reason.SENTENCE)
    closed = end > after
    if text[end] not in " \n":
        return _without_space(text, at, run[0], after, final) if not closed else NO
    opening = OPENING.match(text, end + 1)
    assert opening is not None
    nxt = opening.end()
    if nxt >= len(text):
        return Cut(end, Reason.SENTENCE) if final else MORE
    new_line = text[end] == "\n"
    if run[0] == ".":
        return _full_stop(text, at, end, nxt, closed=closed, new_line=new_line, final=final)
    char = text[nxt]
    if "!" in run[0] or "?" in run[0]:
        return NO if closed and char.islower() else Cut(end, Reason.SENTENCE)
    return Cut(end, Reason.SENTENCE) if char.isupper() or new_line else NO


def _full_stop(
    text: str, at: int, end: int, nxt: int, *, closed: bool, new_line: bool, final: bool
) -> Answer:
    cut = Cut(end, Reason.SENTENCE)
    char = text[nxt]
    word, start = word_before(text, at)
    kind = kind_of(text, word, start)
    if not word:
        # A dot that stands alone: part of " . . . ", or a full stop after a blank.
        return cut if char.isupper() and text[max(0, at - 2) : at] != ". " else NO
    if kind is Kind.LISTED:
        return NO
    if new_line and kind is not Kind.GLUED and not char.islower():
        return cut
    if kind is Kind.GLUED:
        return NO
    if is_abbreviation(word, lexicon.BEFORE_NUMBER) and (char.isdigit() or char == "#"):
        return NO
    if kind is Kind.MAYBE or kind is Kind.LETTER:
        return _if_starter(text, nxt, cut, word, final) if char.isupper() or char.isdigit() else NO
    if char.isdigit():
        # "3. 50" may be a price that a client broke; a year or a code is whole.
        return NO if word[-1].isdigit() and not re.fullmatch(r"\d{4,}", word) else cut
    if char.islower():
        if _CAMEL.match(text, nxt):
            return cut
        if nxt + 4 >= len(text) and not final and text[nxt:].isalpha():
            return MORE
        return cut if not closed and text[:1].islower() and len(word) > 1 and word.isalpha() else NO
    return NO if char in ".,;:!?)" else cut


def _if_starter(text: str, nxt: int, cut: Cut, word: str, final: bool) -> Answer:
    """After what may be an abbreviation: a new sentence only if the next word often begins one."""
    m = NEXT.match(text, nxt)
    if m is None:
        return NO
    if m.end() >= len(text) and len(m[0]) < NEXT_WORD and not final:
        return MORE
    low = m[0].strip(".'’").replace("’", "'").lower()
    if len(word) == 1:
        if word == "I":
            return NO if _INITIAL.fullmatch(m[0].rstrip(".")) and m[0] != "I" and "." in m[0] else cut
        if low in lexicon.NOT_AFTER_INITIAL:
            return NO
    if m[0].endswith(".") and len(low) == 1:
        return NO
    return cut if low in lexicon.STARTERS else NO


def _without_space(text: str, at: int, run: str, after: int, final: bool) -> Answer:
    """Clients may join sentences without the blank, as in "How are you?I'm fine"."""
    if len(run) != 1 or run == "…":
        return NO
    if not text[after].isupper():
        return NO
    word, _ = word_before(text, at)
    if run == ".":
        if not re.fullmatch(r"[a-z]{2,}|\d{4,}", word):
            return NO
    elif not _PLAIN_WORD.fullmatch(word):
        return NO
    m = _NEW_SENTENCE.match(text, after)
    if m is None:
        tail = text[after : after + NEXT_WORD]
        if not final and after + NEXT_WORD > len(text) and re.fullmatch(r"[A-Z][a-z]*", tail):
            return MORE
        return NO
    if len(m[0]) > NEXT_WORD or m[0].lower() in lexicon.TOP_LEVEL_DOMAINS:
        return NO
    return Cut(after, Reason.SENTENCE)


def _line_end(text: str, at: int) -> Answer:
    """A short line ends a sentence unless the next goes on in lower case or it stopped after a comma."""
    opening = OPENING.match(text, at + 1)
    assert opening is not None
    if opening.end() >= len(text):
        return MORE
    char = text[opening.end()]
    if (
        text[at - 1 : at] in {",", "-", "–", "—", "&"}
        or char.islower()
        or not (char.isalnum() or char in "$€£#+-")
    ):
        return NO
    word, start = word_before(text, at - 1) if text[at - 1 : at] == "." else ("", 0)
    if word and kind_of(text, word, start) in (Kind.GLUED, Kind.LISTED):
        return NO
    return Cut(at, Reason.CLAUSE if text[at - 1 : at] == ":" else Reason.SENTENCE)
