"""What digits a transcript says, in whatever way the listener wrote them down.

"$347.89", "three hundred forty-seven dollars and eighty nine cents" and "347 dollars 89" are the same digits
in the same order: ``34789``. Fair: only the way of writing is evened out. Strict: a digit counts where it is
written as a digit or as its number word, nothing that merely sounds like one ("for", "to", "won") is taken,
every further number in the text counts too, and names of months beside a number stay, in their place.

``canonical("March 15th, 2027") == canonical("3/15/2027") == "march152027"``
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONES = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_MONTHS = "january february march april may june july august september october november december"
ONES = {w: i for i, w in enumerate(_ONES.split())}
TEENS = {w: i for i, w in enumerate(_TEENS.split(), 10)}
TENS = {w: i * 10 for i, w in enumerate(_TENS.split(), 2)}
IRREGULAR = {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
ORDINALS = (
    IRREGULAR
    | {f"{w}th": n for w, n in (ONES | TEENS).items() if n not in (0, 1, 2, 3, 5, 8, 9, 12)}
    | {f"{w[:-1]}ieth": n for w, n in TENS.items()}
)
SCALES = {"thousand": 1000, "million": 1_000_000}
MONTHS = _MONTHS.split()
SHORT = {m[:3]: m for m in MONTHS} | {"sept": "september"} | {m: m for m in MONTHS}

_DATE = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])", re.ASCII)
_ON_THE_HOUR = re.compile(r"(?<![\d:.])(\d{1,2}):00\b", re.ASCII)
_NO_CENTS = re.compile(r"(\$ ?\d[\d,]*)\.00\b", re.ASCII)
_TOKEN = re.compile(r"\d(?:[\d,.:/-]*\d)?(?:st|nd|rd|th)?\b|\d+|[a-z']+|[$,.;:!?]", re.ASCII)


@dataclass(frozen=True)
class _Number:
    """Digits as they are to be read; ``end``: the token after it."""

    digits: str
    end: int


def canonical(text: str) -> str:
    """The digits that ``text`` says, with the months beside them."""
    text = text.lower().replace("’", "'").replace("–", "-")
    text = _DATE.sub(_month_first, text)
    text = _NO_CENTS.sub(r"\1", _ON_THE_HOUR.sub(r"\1", text))
    tokens = _TOKEN.findall(re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text))
    out: list[str] = []
    at = 0
    while at < len(tokens):
        number = _number(tokens, at)
        if number is not None:
            digits = number.digits
            if (
                number.end < len(tokens)
                and tokens[number.end] in ("cent", "cents")
                and _after_dollars(tokens, at)
            ):
                digits = digits.zfill(2)
            out.append(digits)
            at = number.end
            continue
        month = SHORT.get(tokens[at])
        if month is not None and (_beside(tokens, at + 1, 1) or _beside(tokens, at - 1, -1)):
            out.append(month)
        elif tokens[at] in ("oh", "o") and at and _beside(tokens, at + 1, 1) and _beside(tokens, at - 1, -1):
            out.append("0")
        at += 1
    return "".join(out)


def _month_first(m: re.Match[str]) -> str:
    month = int(m[1])
    return f"{MONTHS[month - 1]} {m[2]} {m[3]}" if 1 <= month <= 12 else m[0]


def _says_number(token: str) -> bool:
    return token[0].isdigit() or token in ONES or token in TEENS or token in TENS or token in ORDINALS


def _beside(tokens: list[str], at: int, step: int) -> bool:
    """Whether the next word in that direction, without ``the``, ``of``, ``oh`` and stops, is a number."""
    while 0 <= at < len(tokens) and tokens[at] in ("the", "of", ",", ".", "oh", "o"):
        at += step
    return 0 <= at < len(tokens) and _says_number(tokens[at])


def _after_dollars(tokens: list[str], at: int) -> bool:
    """Whether an amount in dollars stands before the number at ``at``."""
    before = tokens[max(0, at - 3) : at]
    return bool(before) and (
        before[-1] in ("dollar", "dollars")
        or (before[-1] in ("and", ",") and any(t in ("dollar", "dollars", "$") for t in before[:-1]))
    )


def _number(tokens: list[str], at: int) -> _Number | None:
    token = tokens[at]
    if token[0].isdigit():
        digits = re.sub(r"\D", "", token)
        # "5 hundred", "2 thousand": written half and half.
        if (
            at + 1 < len(tokens)
            and digits == token
            and (tokens[at + 1] in SCALES or tokens[at + 1] == "hundred")
        ):
            return _words(tokens, at)
        return _Number(digits, at + 1)
    return _words(tokens, at)


def _words(tokens: list[str], at: int) -> _Number | None:
    """A number in words, as long as it can be read as one: "twenty twenty six" is two."""
    group = _below_thousand(tokens, at)
    if group is None:
        if tokens[at] in ORDINALS:
            return _Number(str(ORDINALS[tokens[at]]), at + 1)
        return None
    value, at, ordinal = group
    total, smallest = 0, 1_000_000_000
    while not ordinal and at < len(tokens) and SCALES.get(tokens[at], smallest) < smallest:
        smallest = SCALES[tokens[at]]
        total += value * smallest
        value, at = 0, at + 1
        following = at + (at < len(tokens) and tokens[at] in (",", "and"))
        rest = _below_thousand(tokens, following) if following < len(tokens) else None
        if rest is None or rest[0] == 0:
            break
        value, at, ordinal = rest
    return _Number(str(total + value), at)


def _below_thousand(tokens: list[str], at: int) -> tuple[int, int, bool] | None:
    """Value, end and whether it ended in an ordinal."""
    head = _below_hundred(tokens, at)
    if (
        head is None
        and tokens[at] == "a"
        and at + 1 < len(tokens)
        and tokens[at + 1] in ("hundred", "thousand")
    ):
        head = (1, at + 1, False)
    if head is None and tokens[at].isdigit() and at + 1 < len(tokens):
        head = (int(tokens[at]), at + 1, False)
    if head is None:
        return None
    value, at, ordinal = head
    if ordinal or not value or at >= len(tokens) or tokens[at] not in ("hundred", "hundredth"):
        return head
    value *= 100
    at += 1
    following = at + (at < len(tokens) and tokens[at] == "and")
    rest = _below_hundred(tokens, following) if following < len(tokens) else None
    if rest is None or rest[0] == 0:
        return value, at, False
    return value + rest[0], rest[1], rest[2]


def _below_hundred(tokens: list[str], at: int) -> tuple[int, int, bool] | None:
    word = tokens[at]
    if word in ONES or word in TEENS:
        return (ONES | TEENS)[word], at + 1, False
    if word not in TENS:
        return (ORDINALS[word], at + 1, True) if word in ORDINALS else None
    follows = tokens[at + 1] if at + 1 < len(tokens) else ""
    if ONES.get(follows, 0) > 0:
        return TENS[word] + ONES[follows], at + 2, False
    if 0 < ORDINALS.get(follows, 0) < 10:
        return TENS[word] + ORDINALS[follows], at + 2, True
    return TENS[word], at + 1, False
