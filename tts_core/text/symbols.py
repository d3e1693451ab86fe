"""Folding of look-alike characters, and the last readings: signs that no class has claimed.

Folding keeps lengths, so that offsets stay true.
"""

from __future__ import annotations

import re
import unicodedata

from .claims import Claim, Rule, rule
from .numerals import cardinal, digit_words, letter, letters

MASK = "\ue000"
"""Stands in the working text where a rule has claimed (private use, so no pattern takes it for a letter)."""

_FOLDS = {
    "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ", "\u2002": " ", "\u2003": " ",
    "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2212": "-", "\ufe63": "-", "\u2043": "-",
    "\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u2032": "'", "\u2033": '"', "\u201c": '"', "\u201d": '"',
    "\u00b5": "µ", "\u03bc": "µ", "\u2126": "Ω", "\u2044": "/", "\u2215": "/", "\u2217": "*", "\u00b7": "·",
    "\u223c": "~", "\uff5e": "~", "\u00ba": "°", "\u02da": "°", "\u2028": " ", "\u2029": " ", MASK: " ",
}  # fmt: skip
_KEEP = frozenset("…™℠ªº²³¹")


def _fold(c: str) -> str:
    found = _FOLDS.get(c)
    if found is not None:
        return found
    decimal = unicodedata.decimal(c, None)
    if decimal is not None:
        return str(decimal)
    if c in _KEEP or unicodedata.category(c) == "No":
        return c
    compatible = unicodedata.normalize("NFKC", c)
    return compatible if len(compatible) == 1 else c


def fold(text: str) -> str:
    """Non-ASCII digits, full-width forms, odd blanks, dashes and quotes to plain ones; the length is kept."""
    return text if text.isascii() else "".join(c if c < "\x80" else _fold(c) for c in text)


_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "λ": "lambda",
    "π": "pi",
    "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega", "Δ": "delta", "Ω": "ohm", "Σ": "sigma", "Π": "pi",
    "µ": "mu",
}  # fmt: skip
_NAMES = {
    "&": "and", "+": "plus", "=": "equals", "@": "at", "%": "percent", "°": "degrees", "€": "euros",
    "£": "pounds",
    "¥": "yen", "$": "dollars", "¢": "cents", "§": "section", "¶": "paragraph", "©": "copyright", "→": "to",
    "←": "from", "↔": "to and from", "⇒": "means", "±": "plus or minus", "×": "times", "÷": "divided by",
    "≈": "about", "≠": "is not equal to", "≤": "is at most", "≥": "is at least", "∞": "infinity",
    "√": "square root of",
    "№": "number", "‰": "per mille", "²": "squared", "³": "cubed", "℃": "degrees Celsius",
    "℉": "degrees Fahrenheit",
}  # fmt: skip
_PAUSES = frozenset("|•·◦‣▪●■—–")


def _sign(m: re.Match[str]) -> list[Claim]:
    """A run of one sign is named once."""
    return [Claim(m.start(), m.end(), _NAMES[m.group(0)[0]])]


def _slash(m: re.Match[str]) -> list[Claim]:
    left, right = m.group("l"), m.group("r")
    said = "" if left.isupper() and right.isupper() else "or" if left.islower() or right.islower() else ""
    start, end = m.start("s"), m.end("s")
    return [Claim(start, end, f" {said} " if said else " ")]


def _suffix(m: re.Match[str]) -> list[Claim]:
    said = {"#": "sharp", "++": "plus plus", "+": "plus"}[m.group("s")]
    base = m.group("b")
    return [Claim(m.start("b"), m.end("s"), f"{letter(base) if len(base) == 1 else base} {said}")]


def _subscript(m: re.Match[str]) -> str:
    parts = re.findall(r"[A-Z][a-z]?|[₀-₉]+|[0-9]+", m.group(0))
    out = []
    for p in parts:
        digits = "".join(str(unicodedata.digit(c)) for c in p) if not p[0].isalpha() else ""
        out.append(
            letters(p) if not digits else digit_words(digits) if len(digits) > 4 else cardinal(int(digits))
        )
    return " ".join(out)


def _pause(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), ", ")]


def _space(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), " ")]


def _numeric(m: re.Match[str]) -> str | None:
    """Circled figures and roman-numeral characters by their Unicode value."""
    value = unicodedata.numeric(m.group(0), None)
    return cardinal(int(value)) if value is not None and value == int(value) and value < 10**6 else ""


def _other(m: re.Match[str]) -> str | None:
    """Anything that is neither letter, blank nor punctuation (emoji, dingbats, box drawing) is not spoken."""
    text = m.group(0)
    return "" if all(unicodedata.category(c) in _UNSPEAKABLE for c in text) else None


_UNSPEAKABLE = frozenset({"So", "Sk", "Sm", "Sc", "Cf", "Cn", "Co", "Cs", "Cc"})


def _drop(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), "")]


FORMULAS: tuple[Rule, ...] = (
    rule(
        "formula",
        r"(?<![\w])(?:[A-Z][a-z]?[₀-₉]{0,3}){1,8}(?<=[₀-₉])(?:[A-Z][a-z]?[₀-₉]{0,3}){0,8}(?![\w])",
        _subscript,
        "₀₁₂₃₄₅₆₇₈₉",
    ),
    rule("formula", r"(?<![\w-])(?:H2O|CO2|O2|H2SO4|N2O|CH4|NH3|H2O2|SO2|NO2)(?![\w-])", _subscript, "0"),
    rule("suffix", r"(?<![\w])(?P<b>[A-Z]|[A-Za-z]{4,})(?P<s>\+\+|\+|#)(?![\w+#])", _suffix, "+#"),
)

RULES: tuple[Rule, ...] = (
    rule("slash", r"(?P<l>[A-Za-z]{1,20})(?P<s>[ ]?/[ ]?)(?P<r>[A-Za-z]{1,20})", _slash, "/"),
    rule(
        "hash",
        rf"#(?=([\w{MASK}]))",
        lambda m: [Claim(m.start(), m.end(), "number" if m.group(1) == MASK else "hashtag")],
        "#",
    ),
    rule("dash", r"(?<=\w)--+(?=\w)|(?<=\s)--+(?=\s)", lambda m: [Claim(m.start(), m.end(), "—")], "-"),
    rule("sign", r"([&+=@%°€£¥$¢§¶©→←↔⇒±×÷≈≠≤≥∞√№‰²³℃℉])\1*", _sign, "&+=@%°€£¥$¢§¶©→←↔⇒±×÷≈≠≤≥∞√№‰²³℃℉"),
    rule(
        "greek",
        rf"(?<![^\W\d_])[{''.join(_GREEK)}](?![^\W\d_])",
        lambda m: [Claim(m.start(), m.end(), _GREEK[m.group(0)])],
        "".join(_GREEK),
    ),
    rule("pause", r"[ ]?[|•·◦‣▪●■]+[ ]?", _pause, "|•·◦‣▪●■"),
    rule("space", r"[_/\\]+|(?<=\w)[*~^](?=\w)", _space, "_/\\*~^"),
    # Square brackets and braces open inline phonemes or control words in some voices: never hand them on.
    rule(
        "drop",
        r"[\[\]{}<>*#~^`™®\u200b-\u200f\u2060\ufeff\u00ad]+",
        _drop,
        "[]{}<>*#~^`™®\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad",
    ),
    rule("numeric", r"[\u2150-\u218f\u2460-\u24ff\u2776-\u2793\u3220-\u33ff⁰-₉]", _numeric),
    rule("other", rf"[^\x00-\x7f\w\s{MASK}]", _other),
    rule("control", r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+", _space),
)
