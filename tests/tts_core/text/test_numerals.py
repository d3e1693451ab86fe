"""Number words, checked by reading them back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tts_core.text import numerals as n

_VALUE = {w: i for i, w in enumerate(n.ONES)} | {w: 10 * i for i, w in enumerate(n.TENS) if w}
_DIGITS = st.text("0123456789", min_size=1, max_size=40)


def value(words: str) -> int:
    total = part = 0
    for w in words.split():
        if w == "hundred":
            part *= 100
        elif w in n.SCALES:
            total, part = total + part * 1000 ** n.SCALES.index(w), 0
        else:
            part += _VALUE[w]
    return total + part


def figures(words: str) -> str:
    return "".join(str(n.ONES.index(w)) for w in words.replace(",", "").split())


@given(st.integers(0, 10**15 - 1))
def test_cardinal_reads_back(k: int) -> None:
    assert value(n.cardinal(k)) == k


def test_cardinal_edges() -> None:
    assert n.cardinal(-5) == "minus five"
    assert n.cardinal(10**15).count("zero") == 15


@given(st.integers(0, 10**9))
def test_ordinal_differs_in_its_last_word_only(k: int) -> None:
    card, ordi = n.cardinal(k).split(), n.ordinal(k).split()
    assert card[:-1] == ordi[:-1]
    assert ordi[-1] in {"first", "second", "third"} or ordi[-1].endswith("th")


@given(_DIGITS)
def test_digits_keep_every_zero(d: str) -> None:
    assert figures(n.digit_words(d)) == d
    assert figures(n.spoken_digits(d)) == d
    assert "".join(n.groups(d)) == d
    assert all(2 <= len(g) <= 5 for g in n.groups(d)) or len(d) == 1


@given(st.integers(1000, 2099))
def test_year_and_pairs_read_back(y: int) -> None:
    def back(words: str) -> int:
        head, oh, tail = words.partition(" oh ")
        if oh:
            return value(head) * 100 + value(tail)
        if "thousand" in words or words.endswith("hundred"):
            return value(words)
        parts = words.split()
        for i in range(1, len(parts)):
            high, low = value(" ".join(parts[:i])), value(" ".join(parts[i:]))
            if 10 <= high <= 99 and low >= 10 and high * 100 + low == y:
                return y
        return -1

    assert back(n.year(y)) == y
    assert back(n.pairs(str(y))) == y


@given(st.text("ABCXYZ0123456789-", min_size=1, max_size=30))
def test_code_reads_back(text: str) -> None:
    said = re.sub(r"[,.]", "", n.code(text)).split()
    back = "".join(w if len(w) == 1 else str(n.ONES.index(w)) for w in said)
    assert back == text.replace("-", "")


def test_number() -> None:
    assert n.number("-1,249.05") == "minus one thousand two hundred forty nine point zero five"
    assert n.number(".5") == "zero point five"
    assert n.number("+007") == "plus zero zero seven"
    assert n.number("9" * 20) == n.spoken_digits("9" * 20)


@given(st.integers(1, 3999))
def test_roman_reads_back(k: int) -> None:
    out, rest = "", k
    for v, s in zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        while rest >= v:
            out, rest = out + s, rest - v
    assert n.roman(out) == k


def test_not_roman() -> None:
    assert n.roman("IIX") is None and n.roman("") is None and n.roman("VX") is None


def test_plural_and_letters() -> None:
    assert [n.plural(w) for w in ("twenty", "six", "five")] == ["twenties", "sixes", "fives"]
    assert n.letters("abc") == "A. B C"
