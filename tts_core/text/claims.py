"""What a pre-pass rule is: a pattern that claims a typed span of text and gives its spoken form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """``text[start:end]`` is spoken as ``spoken`` ("" = not spoken at all).

    ``rest``: ``spoken`` is only our best guess, a general library may know better.
    """

    start: int
    end: int
    spoken: str
    rest: bool = False


Handler = Callable[[re.Match[str]], str | Sequence[Claim] | None]
"""Gives the spoken form of the whole match, or claims of parts of it, or None where it does not apply."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One class of written form.

    ``needs``: the rule is tried only on text that holds one of these characters ("0" stands for any ASCII
    digit); empty means always. Patterns must be linear in the length of the text.
    """

    name: str
    pattern: re.Pattern[str]
    handler: Handler
    needs: frozenset[str] = frozenset()


def rule(name: str, pattern: str, handler: Handler, needs: str = "", flags: int = 0) -> Rule:
    """Compile a rule; blanks and comments in ``pattern`` count (no verbose mode)."""
    return Rule(name, re.compile(pattern, flags), handler, frozenset(needs))


def alternatives(words: Iterable[str]) -> str:
    """A regex alternation of literal words, longest first."""
    return "|".join(re.escape(w) for w in sorted(words, key=lambda w: (-len(w), w)))


_TAIL = re.compile(r"[\s\"')\]”’]*$")


def at_end(text: str, offset: int) -> bool:
    """True where only closing quotes, brackets and blanks follow ``offset``."""
    return _TAIL.match(text, offset) is not None


def end_without_stop(m: re.Match[str], group: int | str = 0) -> int:
    """End of an abbreviation's match, less its dot where that dot also ends the sentence."""
    end = m.end(group)
    text = m.string
    return end - 1 if text[end - 1] == "." and at_end(text, end) else end


# Written numbers. The lookbehind keeps a pattern from starting inside a number, word or decimal.
NUM = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
NOT_INSIDE = r"(?<![\w.,])(?<![\w][-/:])"
START = r"(?<![\w.])(?<![0-9][,:/])"
END = r"(?![\w])(?![.,:/-][0-9])"
DASH = r"[-–—]"
