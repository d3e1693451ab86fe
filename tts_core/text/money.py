"""Readings of amounts of money: symbols before or after, ISO 4217 codes, magnitudes, cents, ranges, rates.

Amounts with two decimals are read as people say them: "$347.89" is "three hundred forty seven dollars and
eighty nine cents".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .claims import DASH, NUM, Claim, Rule, alternatives, rule
from .numerals import cardinal, number


@dataclass(frozen=True, slots=True)
class Currency:
    """Singular and plural of the unit and of its hundredth ("" where it has none)."""

    one: str
    many: str
    cent: str = "cent"
    cents: str = "cents"


_DOLLAR = Currency("dollar", "dollars")
_POUND = Currency("pound", "pounds", "penny", "pence")
_EURO = Currency("euro", "euros")
_YEN = Currency("yen", "yen", "", "")
_RUPEE = Currency("rupee", "rupees", "paisa", "paise")
_WON = Currency("won", "won", "", "")


def _kind(kind: str, base: Currency) -> Currency:
    return Currency(f"{kind} {base.one}", f"{kind} {base.many}", base.cent, base.cents)


_SYMBOLS: dict[str, Currency] = {
    "$": _DOLLAR,
    "US$": _kind("US", _DOLLAR),
    "CA$": _kind("Canadian", _DOLLAR),
    "C$": _kind("Canadian", _DOLLAR),
    "CAD$": _kind("Canadian", _DOLLAR),
    "A$": _kind("Australian", _DOLLAR),
    "AU$": _kind("Australian", _DOLLAR),
    "NZ$": _kind("New Zealand", _DOLLAR),
    "HK$": _kind("Hong Kong", _DOLLAR),
    "S$": _kind("Singapore", _DOLLAR),
    "MX$": Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "R$": Currency("real", "reais", "centavo", "centavos"),
    "£": _POUND,
    "€": _EURO,
    "¥": _YEN,
    "₹": _RUPEE,
    "₩": _WON,
    "₽": Currency("ruble", "rubles", "kopek", "kopeks"),
    "₺": Currency("lira", "lira", "", ""),
    "₪": Currency("shekel", "shekels", "", ""),
    "₿": Currency("bitcoin", "bitcoin", "", ""),
    "₱": Currency("peso", "pesos", "centavo", "centavos"),
    "₫": Currency("dong", "dong", "", ""),
    "₴": Currency("hryvnia", "hryvnia", "", ""),
    "₦": Currency("naira", "naira", "", ""),
    "฿": Currency("baht", "baht", "", ""),
}
_CODES: dict[str, Currency] = {
    "USD": _kind("US", _DOLLAR),
    "CAD": _kind("Canadian", _DOLLAR),
    "AUD": _kind("Australian", _DOLLAR),
    "NZD": _kind("New Zealand", _DOLLAR),
    "SGD": _kind("Singapore", _DOLLAR),
    "HKD": _kind("Hong Kong", _DOLLAR),
    "GBP": _kind("British", _POUND),
    "EUR": _EURO,
    "JPY": _YEN,
    "CNY": Currency("yuan", "yuan", "", ""),
    "RMB": Currency("yuan", "yuan", "", ""),
    "INR": _kind("Indian", _RUPEE),
    "KRW": _WON,
    "CHF": Currency("Swiss franc", "Swiss francs"),
    "SEK": Currency("Swedish krona", "Swedish kronor", "", ""),
    "NOK": Currency("Norwegian krone", "Norwegian kroner", "", ""),
    "DKK": Currency("Danish krone", "Danish kroner", "", ""),
    "MXN": Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "BRL": Currency("Brazilian real", "Brazilian reais", "centavo", "centavos"),
    "PLN": Currency("Polish zloty", "Polish zloty", "", ""),
}
_MAGNITUDES = {
    "k": "thousand", "m": "million", "mm": "million", "mn": "million", "mil": "million", "b": "billion",
    "bn": "billion", "t": "trillion", "tn": "trillion",
}  # fmt: skip
_PER = {
    "mo": "month", "month": "month", "yr": "year", "year": "year", "hr": "hour", "hour": "hour", "h": "hour",
    "day": "day", "night": "night", "wk": "week", "week": "week", "user": "user", "person": "person",
    "each": "each",
    "item": "item", "unit": "unit", "lb": "pound", "oz": "ounce", "kg": "kilogram", "gal": "gallon",
    "gallon": "gallon", "sq ft": "square foot", "min": "minute", "minute": "minute", "mile": "mile",
    "mi": "mile",
    "GB": "gigabyte", "seat": "seat", "visit": "visit", "session": "session", "share": "share",
}  # fmt: skip
_SYM = alternatives(_SYMBOLS)
_CODE = "|".join(_CODES)
_MAG = r"(?:[ ]?(?P<mag>hundred|thousand|million|billion|trillion|mil|mn|bn|tn|mm|[kKmMbBtT])(?![\w]))?"
_ADJECTIVE = re.compile(r"(?:-| )(?:bill|bills|coupon|gift|voucher|note|coin|store credit)\b")
_RATE = rf"(?P<per>[ ]?/[ ]?(?:{alternatives(_PER)})(?![\w]))?"


def amount(text: str, currency: Currency, magnitude: str = "", *, singular: bool = False) -> str:
    """Spoken amount of ``text`` ("1,249.50", unsigned); ``magnitude`` is "M", "billion" or ""."""
    plain = text.replace(",", "")
    if magnitude:
        scale = _MAGNITUDES.get(magnitude.lower(), magnitude.lower())
        return f"{number(text)} {scale} {currency.one if singular else currency.many}"
    whole, _, cents = plain.partition(".")
    units = int(whole or "0") if len(whole) <= 15 else -1
    if len(cents) == 2 and currency.cent and units >= 0:
        hundredths = int(cents)
        said = f"{cardinal(units)} {currency.one if units == 1 or singular else currency.many}"
        if not hundredths:
            return said
        small = f"{cardinal(hundredths)} {currency.cent if hundredths == 1 else currency.cents}"
        return f"{said} and {small}" if units else small
    return f"{number(text)} {currency.one if plain == '1' or singular else currency.many}"


def _rate(m: re.Match[str]) -> str:
    per = m.group("per")
    if not per:
        return ""
    said = _PER[per.strip(" /")]
    return " each" if said == "each" else f" per {said}"


def _prefixed(m: re.Match[str]) -> str:
    sign = "minus " if (m.group("sign") or m.group("sign2") or "").strip() else ""
    singular = bool(_ADJECTIVE.match(m.string, m.end()))
    said = amount(m.group("n"), _currency(m.group("cur")), m.group("mag") or "", singular=singular)
    return sign + said + ("" if not m.group("plus") else " plus") + _rate(m)


def _currency(text: str) -> Currency:
    return _SYMBOLS.get(text) or _CODES.get(text) or _DOLLAR


def _suffixed(m: re.Match[str]) -> str:
    sign = "minus " if m.group("sign") else ""
    return sign + amount(m.group("n"), _currency(m.group("cur")), m.group("mag") or "") + _rate(m)


def _both(m: re.Match[str]) -> str:
    """The code names the dollars ("$20 USD")."""
    return amount(m.group("n"), _CODES[m.group("code")], m.group("mag") or "")


def _cents(m: re.Match[str]) -> str:
    return f"{number(m.group('n'))} cent" + ("" if m.group("n") == "1" else "s")


def _range(m: re.Match[str]) -> str:
    first, second = m.group("a", "b")
    currency = _currency(m.group("cur"))
    mag = m.group("mag") or ""
    low_mag = m.group("mag1") or ""
    if not low_mag and "." not in first:
        low = number(first)
    else:
        low = amount(first, currency, low_mag) if not low_mag or m.group("cur2") else (
            f"{number(first)} {_MAGNITUDES.get(low_mag.lower(), low_mag.lower())}")  # fmt: skip
    if m.group("cur2") and not low_mag and "." not in first:
        low = amount(first, currency)
    return f"{low} to {amount(second, currency, mag)}" + _rate(m)


def _alone(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), _currency(m.group(0)).many)]


RULES: tuple[Rule, ...] = (
    rule(
        "money range",
        rf"(?<![\w.])(?P<cur>{_SYM})[ ]?(?P<a>{NUM})(?P<mag1>[kKmMbB])?[ ]?(?:{DASH}|to(?=[ ]?[$£€¥]))[ ]?"
        rf"(?P<cur2>(?P=cur))?(?P<b>{NUM}){_MAG}(?![\w])(?![.,:/-][0-9]){_RATE}",
        _range,
        "-–—t",
    ),
    rule(
        "money",
        rf"(?<![\w.])(?:[$])[ ]?(?P<n>{NUM}){_MAG}[ ](?P<code>USD|CAD|AUD|NZD|SGD|HKD|MXN)(?![\w])",
        _both,
        "$",
    ),
    rule(
        "money",
        rf"(?<![\w.])(?P<sign>(?<![\w)])-[ ]?)?(?P<cur>{_SYM})(?P<sign2>-)?[ ]?(?P<n>{NUM}){_MAG}"
        rf"(?![0-9])(?P<plus>\+)?"
        rf"{_RATE}",
        _prefixed,
        "".join({s[-1] for s in _SYMBOLS}),
    ),
    rule(
        "money",
        rf"(?<![\w])(?P<sign>)(?P<sign2>)(?P<cur>{_CODE}|Rs\.?)[ ](?P<n>{NUM}){_MAG}(?![\w])"
        rf"(?P<plus>\+)?{_RATE}",
        lambda m: (
            _prefixed(m) if m.group("cur") in _CODES else amount(m.group("n"), _RUPEE, m.group("mag") or "")
        ),
        "0",
    ),
    rule(
        "money",
        rf"(?<![\w.])(?P<sign>(?<![\w)])-)?(?P<n>{NUM}){_MAG}[ ]?(?P<cur>{_SYM}|(?:{_CODE})(?![\w])){_RATE}",
        _suffixed,
        "0",
    ),
    rule("cents", rf"(?<![\w.])(?P<n>{NUM})[ ]?¢", _cents, "¢"),
    rule("currency", rf"(?:(?<![\w])(?:{_SYM}))(?![\w$])", _alone, "".join({s[-1] for s in _SYMBOLS})),
)
