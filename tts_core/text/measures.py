"""Readings of units, percentages, fractions, ranges, dimensions, versions, arithmetic and plain numbers."""

from __future__ import annotations

import re
from pathlib import Path

from .claims import DASH, NUM, Claim, Rule, alternatives, rule
from .numerals import cardinal, code, letters, number, ordinal, pairs, plural, spoken_digits
from .when import MONTHS


def _read_units() -> dict[str, tuple[str, str]]:
    """``units.tsv``: symbol, singular, plural."""
    lines = Path(__file__).with_name("units.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {symbol: (one, many) for symbol, one, many in (line.split("\t") for line in lines)}


UNITS = _read_units()
# Units that are also words or letters: only right after the number ("5in" but not "5 in the morning").
_TIGHT = frozenset(
    {"in", "A", "B", "d", "h", "s", "m", "N", "J", "W", "V", "MP", "ac", "ct", "pt", "g", "L", "l"}
)
_LOOSE_OK = frozenset({"g", "m", "L", "l", "V", "W", "A"})
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "bn": "billion", "T": "trillion"}
_HALVES = {2: ("half", "halves"), 4: ("quarter", "quarters")}
VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
    "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
_V = "".join(VULGAR)
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_S = r"(?<![\w.,/:])(?<![0-9]-)"
_SIGN = r"(?P<sign>(?<![\w)\ue000])[-−])?"
_UNIT_CONTEXT = re.compile(
    r"\s*(?:$|[.,;:!?)]|(?:of|and|or|away|wide|long|tall|deep|high|thick|from|per|at|supply|outlet)\b)"
)
_U = alternatives(u for u in UNITS)


def fraction(a: int, b: int) -> str:
    """``(3, 4)`` -> "three quarters", ``(1, 2)`` -> "one half", ``(2, 27)`` -> "two over twenty seven"."""
    if b < 2 or b > 100 or (b > 20 and b not in (32, 64, 100)):
        return f"{cardinal(a)} over {cardinal(b)}"
    one, many = _HALVES.get(b) or (ordinal(b), ordinal(b) + "s")
    return f"{cardinal(a)} {one if a == 1 else many}"


def _sign(m: re.Match[str]) -> str:
    return "minus " if m.group("sign") else ""


def _n(text: str) -> str:
    return number(text)


def _unit_words(n: str, unit: str) -> str:
    return UNITS[unit][0 if n in ("1", "1.0") else 1]


def _unit(m: re.Match[str]) -> list[Claim] | None:
    unit, gap = m.group("u"), m.group("gap")
    if unit == "A" and not gap:  # "seat 12A"
        return None
    inches = gap and unit == "in" and m.string[m.end() : m.end() + 1] == "."
    loose = unit in _LOOSE_OK and _UNIT_CONTEXT.match(m.string, m.end())
    if gap and unit in _TIGHT and not inches and not loose:
        return None
    n = m.group("n")
    adjective = gap == "-"
    said = UNITS[unit][0] if adjective else _unit_words(n, unit)
    end = m.end()
    if m.string[end : end + 1] == "." and re.match(r"\.[ ][a-z]", m.string[end:]):
        end += 1
    first = _sign(m) + _n(n)
    if gap == " ":
        return [Claim(m.start(), m.end("n"), first), Claim(m.start("u"), end, said)]
    return [Claim(m.start(), end, f"{first} {said}")]


def _compound(m: re.Match[str]) -> list[Claim] | None:
    """Compound units ("5 kg/m³"): known parts joined by "per"; unknown ones are left to the library."""
    n, parts = m.group("n"), m.group("u").split("/")
    if not any((p in UNITS and p not in _TIGHT) or re.search(r"[²³µΩ·]", p) for p in parts):
        return None
    said = []
    for i, part in enumerate(parts):
        factors = [f for f in re.split("·", part) if f]
        words = [
            UNITS[f][1 if i == 0 and f is factors[-1] and n != "1" else 0] for f in factors if f in UNITS
        ]
        if len(words) < len(factors):
            guess = f"{_sign(m)}{_n(n)} " + " per ".join(_spelled_unit(p) for p in parts)
            return [Claim(m.start(), m.end(), guess, rest=True)]
        said.append(" ".join(words))
    return [Claim(m.start(), m.end(), f"{_sign(m)}{_n(n)} " + " per ".join(said))]


def _spelled_unit(text: str) -> str:
    if text in UNITS:
        return UNITS[text][0]
    power = {"²": " squared", "³": " cubed"}.get(text[-1:], "")
    return letters("".join(c for c in text if c.isascii() and c.isalpha())) + power


def _unknown_unit(m: re.Match[str]) -> list[Claim]:
    guess = f"{_sign(m)}{_n(m.group('n'))} {letters(m.group('u'))}"
    return [Claim(m.start(), m.end(), guess, rest=True)]


def _unit_range(m: re.Match[str]) -> str | None:
    unit = m.group("u")
    if m.group("gap") and unit in _TIGHT and unit not in _LOOSE_OK:
        return None
    return f"{_n(m.group('a'))} to {_n(m.group('b'))} {_unit_words(m.group('b'), unit)}"


def _degrees(m: re.Match[str]) -> str:
    n = m.group("n")
    said = f"{_sign(m)}{_n(n)} degree" + ("" if n == "1" else "s")
    scale = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin"}.get((m.group("scale") or "").upper(), "")
    return said + scale


def _degree_range(m: re.Match[str]) -> str:
    scale = {"C": " Celsius", "F": " Fahrenheit"}.get((m.group("scale") or "").upper(), "")
    return f"{_n(m.group('a'))} to {_n(m.group('b'))} degrees{scale}"


def _percent(m: re.Match[str]) -> str:
    n = m.group("n")
    sign = {"-": "minus ", "+": "plus "}.get(m.group("sign") or "", "")
    return f"{sign}{_n(n)} percent"


def _percent_range(m: re.Match[str]) -> str:
    return f"{_n(m.group('a'))} to {_n(m.group('b'))} percent"


def _scaled(m: re.Match[str]) -> str:
    n, scale = m.group("n", "scale")
    if scale == "K" and len(n) == 1:  # "4K video", "a 5K run"
        return f"{_n(n)} K"
    return f"{_sign(m)}{_n(n)} {_SCALES[scale]}" + (" plus" if m.group("plus") else "")


def _times(m: re.Match[str]) -> str:
    return f"{_n(m.group('n'))} times" if m.group("n") != "1" else "one time"


def _dimensions(m: re.Match[str]) -> str | None:
    parts = re.split(r"[ ]?[x×X][ ]?", m.group("dims"))
    if any(len(p) > 1 and p[0] == "0" and "." not in p for p in parts):
        return None
    if re.match(r"[ ]?=", m.string[m.end() :]):
        return " times ".join(_n(p) for p in parts)
    said = " by ".join(pairs(p) if len(p) == 4 and p.isdigit() else _n(p) for p in parts)
    unit = m.group("u")
    return f"{said} {UNITS[unit][1]}" if unit else said


def _height(m: re.Match[str]) -> str | None:
    feet, inches = int(m.group("ft")), m.group("in")
    if inches is None:
        return f"{cardinal(feet)} " + ("foot" if feet == 1 else "feet")
    if float(inches) >= 12:
        return None
    return f"{cardinal(feet)} foot {number(inches)}"


def _inches(m: re.Match[str]) -> str | None:
    if m.string[: m.start()].count('"') % 2:
        return None  # the mark closes a quotation
    n = m.group("n")
    return f"{number(n)} inch" + ("" if n == "1" or re.match(" [a-z]", m.string[m.end() :]) else "es")


def _duration(m: re.Match[str]) -> str:
    out = [(m.group("a"), "hour" if m.group("u")[0] == "h" else "minute")]
    out.append((m.group("b"), "minute" if m.group("v")[0] == "m" else "second"))
    if m.group("c"):
        out.append((m.group("c"), "second"))
    return " ".join(f"{cardinal(int(n))} {unit}" + ("" if int(n) == 1 else "s") for n, unit in out)


def _mixed(m: re.Match[str]) -> str | None:
    a, b = int(m.group("a")), int(m.group("b"))
    if not 0 < a < b:
        return None
    return f"{cardinal(int(m.group('w')))} and {fraction(a, b)}"


_IDIOMS = {
    "24/7": "twenty four seven",
    "24/7/365": "twenty four seven three sixty five",
    "9/11": "nine eleven",
    "50/50": "fifty fifty",
    "50-50": "fifty fifty",
    "20/20": "twenty twenty",
    "80/20": "eighty twenty",
}


def _idiom(m: re.Match[str]) -> str:
    return _IDIOMS[m.group(0)]


def _slashed(m: re.Match[str]) -> str | None:
    """Two figures: "3/4" is a fraction, "10/12" a date, "10/10" a score, "120/80" a reading."""
    ta, tb = m.group("a"), m.group("b")
    a, b = int(ta), int(tb)
    if len(ta) > 6 or len(tb) > 6:
        return f"{spoken_digits(ta)} slash {spoken_digits(tb)}"
    if ta[0] == "0" and len(ta) > 1:
        return None
    if a == b:
        return f"{cardinal(a)} out of {cardinal(b)}"
    if 0 < a < b and b in (2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 32, 64, 100):
        return fraction(a, b)
    if 1 <= a <= 12 and 10 < b <= 31:
        return f"{MONTHS[a - 1]} {ordinal(b)}"
    return f"{cardinal(a)} over {cardinal(b)}"


def _zero_date(m: re.Match[str]) -> str | None:
    a, b = int(m.group("a")), int(m.group("b"))
    if not (1 <= a <= 12 and 1 <= b <= 31):
        return f"{spoken_digits(m.group('a'))} slash {spoken_digits(m.group('b'))}"
    return f"{MONTHS[a - 1]} {ordinal(b)}"


def _vulgar(m: re.Match[str]) -> str:
    said = fraction(*VULGAR[m.group("v")])
    whole = m.group("w")
    return f"{number(whole)} and {said}" if whole else said


def _range(m: re.Match[str]) -> str | None:
    a, b = m.group("a", "b")
    spaced = " " in m.group("dash")
    if spaced and re.search(r"[=+×÷*]", m.string):
        return None
    if any(len(p) > 1 and p[0] == "0" and "." not in p for p in (a, b)):
        return code(m.group(0))
    return f"{_n(a)} to {_n(b)}"


def _version(m: re.Match[str]) -> list[Claim]:
    start = m.start("n")
    said = " point ".join(_component(p) for p in re.split(r"\.", m.group("n")))
    if m.group("tail"):
        tail = re.findall(r"[a-z]+|[0-9]{1,6}", m.group("tail"))
        said += " " + " ".join(
            cardinal(int(t)) if t.isdigit() else t if len(t) > 2 else letters(t) for t in tail
        )
    if m.group("letter"):
        start = m.start("letter")
        said = said if start > m.start() else "version " + said
    return [Claim(start, m.end(), said)]


def _component(p: str) -> str:
    return spoken_digits(p) if (p[0] == "0" and len(p) > 1) or len(p) > 4 else cardinal(int(p))


def _dotted(m: re.Match[str]) -> str:
    return " point ".join(_component(p) for p in m.group(0).split("."))


def _scientific(m: re.Match[str]) -> str:
    exponent = m.group("e").lstrip("+")
    digits = exponent.lstrip("-")
    power = spoken_digits(digits) if len(digits) > 4 else cardinal(int(digits))
    return (
        f"{_sign(m)}{_n(m.group('n'))} times ten to the " + ("minus " if exponent[0] == "-" else "") + power
    )


def _power(m: re.Match[str]) -> str:
    exponent = m.group("e").translate(_SUPER)
    said = {"2": "squared", "3": "cubed"}.get(exponent)
    if said is None:
        said = "to the " + ("minus " if exponent[0] == "-" else "") + number(exponent.strip("-") or "0")
    base = m.group("b")
    return f"{number(base) if base[0].isdigit() else letters(base)} {said}"


def _caret(m: re.Match[str]) -> str:
    e = m.group("e")
    said = {"2": "squared", "3": "cubed"}.get(e, f"to the {number(e)}")
    base = m.group("b")
    return f"{number(base) if base[0].isdigit() else letters(base)} {said}"


_OPERATORS = {
    "+": "plus", "-": "minus", "−": "minus", "×": "times", "*": "times", "x": "times", "/": "divided by",
    "÷": "divided by", "=": "equals", "<": "is less than", ">": "is greater than", "≤": "is at most",
    "≥": "is at least", "≠": "is not equal to", "≈": "is about", "±": "plus or minus", "^": "to the power of",
    "<=": "is at most", ">=": "is at least", "==": "equals", "!=": "is not equal to",
}  # fmt: skip


def _operator(m: re.Match[str]) -> list[Claim] | None:
    sign = m.group("op")
    if sign == "-" and not re.search(r"[=+×÷*]", m.string):
        return None
    if sign == "x" and not re.search(r"=", m.string):
        return [Claim(m.start("op"), m.end("op"), "by")]
    return [Claim(m.start("op"), m.end("op"), _OPERATORS[sign])]


def _ordinal(m: re.Match[str]) -> str:
    return (
        ordinal(int(m.group("n").replace(",", ""))) if len(m.group("n")) < 16 else spoken_digits(m.group("n"))
    )


def _suffix_s(m: re.Match[str]) -> str:
    return plural(cardinal(int(m.group("n"))))


def _number(m: re.Match[str]) -> str:
    sign = {"-": "minus ", "−": "minus ", "+": "plus "}.get(m.group("sign") or "", "")
    return sign + number(m.group("n")) + (" plus" if m.group("plus") else "")


def _leading(m: re.Match[str]) -> str:
    return {"~": "about ", "≈": "about ", "<": "less than ", ">": "more than ", "≤": "at most ",
    "≥": "at least ",
            "±": "plus or minus ", "<=": "at most ", ">=": "at least "}[m.group(1)].strip()  # fmt: skip


_VTAIL = r"(?P<tail>-?(?:rc|beta|alpha|b|a)\.?[0-9]*)?(?![\w])(?!\.[0-9])"

EARLY: tuple[Rule, ...] = (
    rule(
        "idiom", r"(?<![\w./])(?:24/7/365|24/7|9/11|50[/-]50|20/20|80/20)(?![\w/])(?![.][0-9])", _idiom, "/-"
    ),
    rule(
        "version",
        rf"(?i:\b(?:version|release|build|firmware|ver\.|iOS|Android|macOS|Windows|Python|Ubuntu|Node|Chrome|"
        rf"Firefox|Java)) (?P<letter>[vV])?(?P<n>[0-9]+(?:\.[0-9]+)*){_VTAIL}",
        _version,
        "0",
    ),
    rule("version", rf"(?<![\w.-])(?P<letter>[vV])(?P<n>[0-9]+(?:\.[0-9]+)*){_VTAIL}", _version, "0"),
    rule("dotted", r"(?<![\w.,/$£€-])[0-9]{1,6}(?:\.[0-9]{1,6}){2,5}(?![\w])(?!\.[0-9])", _dotted, "."),
    rule(
        "scientific",
        rf"{_S}{_SIGN}(?P<n>[0-9]{{1,12}}(?:\.[0-9]{{1,12}})?)[eE](?P<e>[+-]?[0-9]{{1,6}})(?![\w])",
        _scientific,
        "eE",
    ),
)

RULES: tuple[Rule, ...] = (
    rule(
        "height",
        r"(?<![\w.])(?P<ft>[0-9]{1,2})['’′][ ]?(?:(?P<in>[0-9]{1,2}(?:\.[0-9])?)(?:[\"”″]|'')?)?(?![\w])",
        _height,
        "'’′",
    ),
    rule(
        "height",
        r"(?<![\w.])(?P<ft>[0-9]{1,3})[ -]?(?:ft|feet|foot)\.?[ ,]{1,2}(?P<in>[0-9]{1,2})[ -]?(?:in"
        r"|inches)(?![\w])",
        lambda m: f"{cardinal(int(m.group('ft')))} feet {cardinal(int(m.group('in')))} inches",
        "0",
    ),
    rule(
        "inch fraction",
        r"(?<![\w.,/:])(?:(?P<w>[0-9]{1,3})[ -])?(?P<a>[0-9]{1,2})/(?P<b>2|4|8|16|32|64)(?:\"|”|″"
        r"|-inch\b| inch\b)",
        lambda m: (
            (f"{cardinal(int(m.group('w')))} and " if m.group("w") else "")
            + fraction(int(m.group("a")), int(m.group("b")))
            + (" inches" if m.group("w") else " inch")
        ),
        "/",
    ),
    rule(
        "inch size",
        rf"(?<![\w.])(?P<a>{NUM})[\"”″] ?[x×] ?(?P<b>{NUM})[\"”″]",
        lambda m: f"{number(m.group('a'))} by {number(m.group('b'))} inches",
        '"”″',
    ),
    rule(
        "resolution",
        r"(?<![\w.,/:-])(?P<n>360|480|720|1080|1440|2160)(?P<p>[pi])(?![\w])",
        lambda m: f"{pairs(m.group('n'))} {letters(m.group('p'))}",
        "pi",
    ),
    rule(
        "duration",
        r"(?<![\w.,:/-])(?P<a>[0-9]{1,3})(?P<u>h|hr|hrs|m|min)[ ]?(?P<b>[0-9]{1,2})(?P<v>m|min|mins|s"
        r"|sec)(?![\w])"
        r"(?:[ ]?(?P<c>[0-9]{1,2})(?:s|sec)(?![\w]))?",
        _duration,
        "0",
    ),
    rule("inches", rf"(?<![\w.])(?P<n>{NUM})[\"”″](?![\w])", _inches, '"”″'),
    rule(
        "degree range",
        rf"{_S}(?P<a>{NUM})°?[ ]?{DASH}[ ]?(?P<b>{NUM})[ ]?°[ ]?(?P<scale>[CcFf](?![\w]))?",
        _degree_range,
        "°",
    ),
    rule(
        "degrees",
        rf"(?<![\w.,/:])(?<![0-9]-){_SIGN}(?P<n>{NUM})[ ]?°[ ]?(?P<scale>[CcFfK](?![\w]))?",
        _degrees,
        "°",
    ),
    rule("percent range", rf"{_S}(?P<a>{NUM})%?[ ]?(?:{DASH}|to)[ ]?(?P<b>{NUM})[ ]?%", _percent_range, "%"),
    rule("percent", rf"(?<![\w.,/:])(?<![0-9][-])(?P<sign>(?<![\w)])[-+])?(?P<n>{NUM})[ ]?%", _percent, "%"),
    rule(
        "dimensions",
        rf"{_S}(?P<dims>{NUM}(?:[ ]?[x×X][ ]?{NUM}){{1,3}})(?:[ ]?(?P<u>ft|in|cm|mm|m|px)(?![\w]))?(?![\w])",
        _dimensions,
        "x×X",
    ),
    rule(
        "mixed number",
        rf"{_S}(?P<w>[0-9]{{1,4}})[ -](?P<a>[0-9]{{1,2}})/(?P<b>[0-9]{{1,2}})(?![\w/])(?!\.[0-9])",
        _mixed,
        "/",
    ),
    rule("vulgar", rf"(?<![A-Za-z0-9.,/:])(?:(?P<w>[0-9]{{1,9}})[ ]?)?(?P<v>[{_V}])", _vulgar, _V),
    rule(
        "unit range",
        rf"{_S}(?P<a>{NUM})[ ]?{DASH}[ ]?(?P<b>{NUM})(?P<gap>[ ]?)(?P<u>{_U})(?![\w/²³])",
        _unit_range,
        "-–—",
    ),
    rule(
        "unit",
        rf"(?<![\w.,/:])(?<![0-9][-–]){_SIGN}(?P<n>{NUM})(?P<gap>[ -]?)(?P<u>{_U})(?![\w/²³·°])",
        _unit,
        "0",
    ),
    rule(
        "compound",
        rf"(?<![\w.,/:])(?<![0-9][-–]){_SIGN}(?P<n>{NUM})[ ]?(?P<u>[A-Za-zµΩ]{{1,6}}[²³]?"
        r"(?:[/·][A-Za-zµΩ]{1,6}[²³]?){1,3})(?![\w])",
        _compound,
        "/·",
    ),
    rule(
        "scaled",
        rf"(?<![\w.,/:])(?<![0-9][-–]){_SIGN}(?P<n>{NUM})[ ]?(?P<scale>bn|(?<![ ])[kKMBT])(?![\w])"
        rf"(?P<plus>\+)?",
        _scaled,
        "kKMBTb",
    ),
    rule(
        "unknown unit",
        rf"(?<![\w.,/:])(?<![0-9][-–]){_SIGN}(?P<n>{NUM})[ ]?(?P<u>(?!(?:nd|rd|th|st|hr|pm)\b)"
        r"[b-df-hj-np-tv-xz][B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]{1,4})(?![\w./'])",
        _unknown_unit,
        "0",
    ),
    rule("times", rf"(?<![\w.,/:-])(?P<n>{NUM})[x×](?![\w])", _times, "x×"),
    rule(
        "slashed", r"(?<![\w.,/:$-])(?P<a>[0-9]{1,12})/(?P<b>[0-9]{1,12})(?![\w/])(?!\.[0-9])", _slashed, "/"
    ),
    rule("zero date", r"(?<![\w.,/:$-])(?P<a>0[0-9])/(?P<b>[0-9]{1,2})(?![\w/])(?!\.[0-9])", _zero_date, "/"),
    rule(
        "ratio",
        r"(?<![\w.,/:$-])(?P<a>[0-9]{1,3}):(?P<b>[0-9]{1,3})(?![\w:])(?!\.[0-9])",
        lambda m: f"{number(m.group('a'))} to {number(m.group('b'))}",
        ":",
    ),
    rule(
        "bare unit",
        r"(?<![\w.])(?P<u>m²|km²|cm²|ft²|m³|cm³|ft³)(?![\w])",
        lambda m: UNITS[m.group("u")][1],
        "²³",
    ),
    rule(
        "power",
        r"(?<![\w.])(?P<b>[0-9]{1,9}|[A-Za-z])(?P<e>[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,6})(?![\w])",
        _power,
        "⁰¹²³⁴⁵⁶⁷⁸⁹",
    ),
    rule("power", r"(?<![\w.])(?P<b>[0-9]{1,9}|[A-Za-z])\^(?P<e>[0-9]{1,4})(?![\w])", _caret, "^"),
    rule(
        "range",
        rf"{_S}(?<![\w]-)(?P<a>{NUM})(?P<dash>[ ]?{DASH}[ ]?)(?P<b>{NUM})(?![\w])(?![.,:/-][0-9])",
        _range,
        "-–—",
    ),
    rule("operator", r"(?<=[0-9)\ue000] )(?P<op>[-−+*/x<>])(?= [(0-9$£€])", _operator, "-−+*/x<>"),
    rule(
        "operator",
        r"(?<=[0-9a-zA-Z)\ue000\]])[ ]?(?P<op><=|>=|==|!=|[=×÷±≤≥≠≈])[ ]?(?=[-+(\w$£€\ue000])",
        _operator,
        "=×÷±≤≥≠≈<>",
    ),
    rule("operator", r"(?<=[0-9a-zA-Z)])(?P<op>[+*])(?=[0-9(])", _operator, "+*"),
    rule("leading", r"(?<![\w])(<=|>=|[~≈<>≤≥±])[ ]?(?=[-+$£€¥.0-9\ue000])", _leading, "~≈<>≤≥±"),
)

NUMBERS: tuple[Rule, ...] = (
    rule(
        "ordinal",
        r"(?<![\w.,])(?P<n>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,18})(?:st|nd|rd|th|ST|ND|RD|TH)(?![\w])",
        _ordinal,
        "0",
    ),
    rule("plural", r"(?<![\w.,])(?P<n>[0-9]{1,4})['’]?s(?![\w])", _suffix_s, "0"),
    rule(
        "number",
        rf"(?P<sign>(?<![\w)\]\ue000.,])[-−+])?(?P<n>(?<![0-9][.]){NUM})(?P<plus>\+(?![\w]))?(?:-"
        rf"(?=[A-Za-z]))?",
        _number,
        "0",
    ),
)
