"""English number words: cardinals, ordinals, years, pairs and digit strings.

Words are joined by single spaces with neither "and" nor hyphens ("one hundred twenty three"): the forms
that the embedded voice reads evenly and that US speakers use on the phone. Digits say "zero", never "oh",
so that a listener (or a recogniser) can write an id down; "oh" is kept for years, times and house numbers.
"""

from __future__ import annotations

import re

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = ["", "thousand", "million", "billion", "trillion", "quadrillion"]
_IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MAX_CARDINAL_DIGITS = 15
"""Longer digit strings are read digit by digit: no listener follows a cardinal beyond trillions."""

_VOWEL_A = "A."
"""How the letter A is written when spelled: a bare "A" is read by voices as the article."""


def cardinal(n: int) -> str:
    """``1249`` -> "one thousand two hundred forty nine". Beyond 15 digits: digit by digit."""
    if n < 0:
        return "minus " + cardinal(-n)
    if n >= 10**MAX_CARDINAL_DIGITS:
        return spoken_digits(str(n))
    if n < 20:
        return ONES[n]
    words: list[str] = []
    scale = 0
    while n:
        n, part = divmod(n, 1000)
        if part:
            words[:0] = _below_thousand(part) + ([SCALES[scale]] if scale else [])
        scale += 1
    return " ".join(words)


def _below_thousand(n: int) -> list[str]:
    words: list[str] = []
    if n >= 100:
        words += [ONES[n // 100], "hundred"]
        n %= 100
    if n >= 20:
        words.append(TENS[n // 10])
        n %= 10
    if n:
        words.append(ONES[n])
    return words


def ordinal(n: int) -> str:
    """``23`` -> "twenty third"."""
    head, _, last = cardinal(n).rpartition(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return f"{head} {last}" if head else last


def plural(word: str) -> str:
    """Plural of a number word: "twenty" -> "twenties", "six" -> "sixes", "five" -> "fives"."""
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith("x") else "s")


def digit_words(digits: str) -> str:
    """``"0042"`` -> "zero zero four two"; other characters are left out."""
    return " ".join(ONES[ord(c) - 48] for c in digits if "0" <= c <= "9")


def groups(digits: str) -> list[str]:
    """Cut digits as people dictate them: up to 4 whole, 2-3, 3-3, 3-4, 4-4, 3-3-3, 3-3-4, then fours.

    Five in a row without a pause lose one over a telephone line: "four one zero" is heard as "four zero".
    """
    n = len(digits)
    if n <= 4:
        return [digits]
    sizes = {5: (2, 3), 6: (3, 3), 7: (3, 4), 8: (4, 4), 9: (3, 3, 3), 10: (3, 3, 4)}.get(n)
    if sizes is None:
        full, rest = divmod(n, 4)
        tail = {0: [], 1: [3, 2], 2: [3, 3], 3: [3]}[rest]
        sizes = tuple([4] * (full - (1 if rest in (1, 2) else 0)) + tail)
    out, at = [], 0
    for size in sizes:
        out.append(digits[at : at + size])
        at += size
    return out


def spoken_digits(digits: str) -> str:
    """Digit by digit with a comma (a short pause) between groups; every zero is kept."""
    return ", ".join(digit_words(g) for g in groups(digits))


def year(n: int) -> str:
    """``2024`` -> "twenty twenty four", ``1905`` -> "nineteen oh five", ``2005`` -> "two thousand five"."""
    if not 1000 <= n <= 9999 or n % 1000 < 10:
        return cardinal(n)
    high, low = divmod(n, 100)
    if low == 0:
        return cardinal(high) + " hundred"
    if low < 10:
        return f"{cardinal(high)} oh {ONES[low]}"
    return f"{cardinal(high)} {cardinal(low)}"


def pairs(digits: str) -> str:
    """House, room and flight numbers: "1205" -> "twelve oh five", "221" -> "two twenty one".

    Five digits and more, or a leading zero, are read digit by digit.
    """
    if digits.startswith("0") or len(digits) > 4:
        return spoken_digits(digits)
    n = int(digits)
    if len(digits) < 3 or n % 1000 == 0:
        return cardinal(n)
    high, low = divmod(n, 100)
    if low == 0:
        return cardinal(high) + " hundred"
    return f"{cardinal(high)} oh {ONES[low]}" if low < 10 else f"{cardinal(high)} {cardinal(low)}"


def number(text: str) -> str:
    """A written number with optional sign, thousands commas and decimals: "-1,249.05", ".5", "007"."""
    sign = ""
    if text[:1] in "+-":
        sign = "minus " if text[0] == "-" else "plus "
        text = text[1:]
    whole, dot, fraction = text.replace(",", "").partition(".")
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > MAX_CARDINAL_DIGITS:
        spoken = spoken_digits(whole)
    else:
        spoken = cardinal(int(whole or "0"))
    if dot and fraction:
        spoken += " point " + spoken_digits(fraction)
    return sign + spoken


def letter(c: str) -> str:
    """The written form of one spelled letter; voices read a lone "A" as the article, "A." as the letter."""
    return _VOWEL_A if c in "Aa" else c.upper()


def letters(text: str) -> str:
    """``"abc"`` -> "A. B C"."""
    return " ".join(letter(c) for c in text)


_RUNS = re.compile(r"[A-Za-z]+|[0-9]+")


def code(text: str) -> str:
    """An id one character at a time: "ORD-24589" -> "O R D, two four, five eight nine".

    Separators become pauses. Runs are joined while a group is short and cut with a comma once it has three
    characters, and digit runs are grouped as in ``groups``.
    """
    out: list[str] = []
    for part in re.split(r"[^A-Za-z0-9]+", text):
        if not part:
            continue
        current: list[str] = []
        size = 0
        whole = len(part) <= 5 and not part.isdigit()
        for run in _RUNS.findall(part):
            for i, piece in enumerate(groups(run)):
                if current and not whole and (i or size >= 3):
                    out.append(" ".join(current))
                    current, size = [], 0
                current.append(digit_words(piece) if piece[0].isdigit() else letters(piece))
                size += len(piece)
        if current:
            out.append(" ".join(current))
    return ", ".join(out)


ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def roman(text: str) -> int | None:
    """Value of a well-formed roman numeral, else None."""
    if not text or not ROMAN.fullmatch(text):
        return None
    total = 0
    values = [_ROMAN_VALUES[c] for c in text]
    for value, following in zip(values, [*values[1:], 0], strict=True):
        total += -value if value < following else value
    return total
