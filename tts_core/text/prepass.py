"""The pre-pass: ordered rules claim typed spans of a written text, each with its spoken form.

A later rule sees what earlier ones claimed only as a mask character, so claims never overlap, and the order
of the families below is the order of certainty: what can only be one thing (an e-mail address) before what
is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from . import identifiers, measures, money, symbols, titles, web, when
from .claims import Claim, Rule
from .numerals import ONES, letter

_CLASSES: tuple[Rule, ...] = (
    *web.RULES,
    *when.NUMERIC,
    *identifiers.EARLY,
    *measures.EARLY,
    *when.NAMED,
    *money.RULES,
    *symbols.FORMULAS,
    *titles.ADDRESS,
    *measures.RULES,
    *identifiers.LATE,
    *when.YEARS,
    *measures.NUMBERS,
    *titles.RULES,
    when.ZONE,
)
_SIGNS: tuple[Rule, ...] = symbols.RULES

_PLAIN = re.compile(
    r"[^A-Za-z\s,;:!?'\".()“”‘’…—–éèñüöäç-]|[A-Za-z]-?[A-Z]|\.[A-Za-z]|(?<![A-Za-z])[b-hj-zB-HJ-Z]"
    r"(?![A-Za-z'’])|--"
    rf"|\b(?:{titles.TRIGGERS})\b|\b[Nn]os?\.|(?<=[a-z]) I(?![\w'’ ])|\b(?:sq ft)\b|\b(?:Mon|Tue|Tues"
    rf"|Wed|Thu|Thur|Thurs|Fri|Sat|Sun|Jan|Feb|Apr|Jun|Jul|Aug|"
    r"Sept?|Oct|Nov|Dec|Mar)\b[.,]|(?i:\b(?:letter|grade|plan|gate|row|zone|vitamin|section|part"
    r"|option|terminal|type))"
    r" A\b"
)


def is_plain(text: str) -> bool:
    """True where nothing in ``text`` is read differently from how it is written."""
    return _PLAIN.search(text) is None


_SPELLED_SIGNS = {
    "-": "dash", "–": "dash", "—": "dash", ".": "dot", "@": "at", "_": "underscore", "/": "slash",
    "\\": "backslash",
    "+": "plus", "#": "hash", "&": "and", "*": "star", ":": "colon", "=": "equals", "%": "percent",
    "$": "dollar",
    "'": "apostrophe", "!": "exclamation mark", "?": "question mark", "(": "open parenthesis",
    ")": "close parenthesis", "~": "tilde", "^": "caret", "€": "euro", "£": "pound",
}  # fmt: skip


def spell_out(text: str) -> str:
    """Letters and digits one at a time: "AB-1.x" -> "A. B dash one dot X"; blanks and commas are pauses."""
    out: list[str] = []
    run = 0
    for c in symbols.fold(text):
        if c.isspace() or c in ",;":
            if out and not out[-1].endswith(","):
                out[-1] += ","
            run = 0
            continue
        if c.isascii() and c.isdigit():
            said = ONES[int(c)]
        elif c.isalpha():
            said = letter(c) if c.isascii() else c.upper()
        else:
            said = _SPELLED_SIGNS.get(c, "")
        if not said:
            continue
        # A short pause in long runs keeps them followable.
        run = run + 1 if c.isalnum() else 0
        if run > 4 and run % 4 == 1 and not out[-1].endswith(","):
            out[-1] += ","
        out.append(said)
    return " ".join(out).rstrip(",")


def claims(text: str, spell: Iterable[tuple[int, int]] = ()) -> tuple[str, list[Claim]]:
    """Claim all that a voice would read wrong.

    Args:
        text: written text of any kind; long text is the caller's to cut (cost grows with length).
        spell: ranges of ``text`` to be spelled out; they are claimed before anything else.

    Returns:
        The folded text (same length) and its claims in order, none overlapping.
    """
    folded = symbols.fold(text)
    work = folded
    found: list[Claim] = []
    at = 0
    for first, past in sorted(spell):
        start, end = max(first, at), min(past, len(text))
        if start < end:
            found.append(Claim(start, end, spell_out(text[start:end])))
            work = _mask(work, start, end)
            at = end
    for rules in (_CLASSES, _SIGNS):
        present = _present(work)
        for r in rules:
            if r.needs and r.needs.isdisjoint(present):
                continue
            new: list[Claim] = []
            for m in r.pattern.finditer(work):
                got = r.handler(m)
                if got is None:
                    continue
                new.extend((Claim(m.start(), m.end(), got),) if isinstance(got, str) else _joined(got))
            for claim in new:
                if claim.start < claim.end and symbols.MASK not in work[claim.start : claim.end]:
                    found.append(claim)
                    work = _mask(work, claim.start, claim.end)
    found.sort(key=lambda c: c.start)
    return folded, found


def _joined(parts: Sequence[Claim]) -> list[Claim]:
    """Neighbours of one match that no blank parts become one claim: they are one word of the source."""
    out: list[Claim] = []
    for part in parts:
        if out and out[-1].end == part.start:
            part = Claim(out[-1].start, part.end, f"{out.pop().spoken} {part.spoken}")  # noqa: PLW2901
        out.append(part)
    return out


def _mask(text: str, start: int, end: int) -> str:
    return text[:start] + symbols.MASK * (end - start) + text[end:]


def _present(text: str) -> frozenset[str]:
    chars = set(text)
    if not chars.isdisjoint("0123456789"):
        chars.add("0")
    return frozenset(chars)
