"""Readings of dates, times of day, time zones, years and decades.

US conventions: month before day in all-digit dates, day ordinals ("March fifth"), years in pairs ("twenty
twenty four"), 12-hour clock as written. ISO 8601 dates and times are recognised.
"""

from __future__ import annotations

import re

from .claims import DASH, Claim, Rule, alternatives, at_end, rule
from .numerals import cardinal, letters, ordinal, plural, year

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_MONTH_OF = (
    {m: i + 1 for i, m in enumerate(MONTHS)} | {m[:3]: i + 1 for i, m in enumerate(MONTHS)} | {"Sept": 9}
)
_MONTH_OF |= {m.upper(): i for m, i in _MONTH_OF.items()}
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Weds": "Wednesday",
    "Thu": "Thursday", "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday",
    "Sun": "Sunday",
}  # fmt: skip
ZONES = {
    "EST": "Eastern Standard Time", "EDT": "Eastern Daylight Time", "ET": "Eastern Time",
    "CST": "Central Standard Time", "CDT": "Central Daylight Time", "CT": "Central Time",
    "MST": "Mountain Standard Time", "MDT": "Mountain Daylight Time", "MT": "Mountain Time",
    "PST": "Pacific Standard Time", "PDT": "Pacific Daylight Time", "PT": "Pacific Time",
    "GMT": "GMT", "UTC": "UTC", "BST": "BST", "CET": "CET", "CEST": "CEST", "IST": "IST",
    "AKST": "Alaska Time",
    "HST": "Hawaii Time", "Z": "UTC",
}  # fmt: skip
_M = alternatives(_MONTH_OF)
_D = alternatives(_DAYS)
_Z = alternatives(z for z in ZONES if z != "Z")
_NOT_AFTER = r"(?<![\w.,/$£€:-])"
_Y = r"(?:1[0-9]{3}|20[0-9]{2}|21[0-9]{2})(?![\w])(?!,[0-9]|\.[0-9])"
_AP = r"(?:[AaPp]\.?[Mm](?:\.|(?![\w])))"


def _full_year(text: str) -> int:
    n = int(text)
    return n if len(text) == 4 else (1900 if n > 50 else 2000) + n


def _date(month: int, day: int, y: str | None) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    spoken = f"{MONTHS[month - 1]} {ordinal(day)}"
    return f"{spoken}, {year(_full_year(y))}" if y else spoken


def _iso(m: re.Match[str]) -> list[Claim] | None:
    y, mo, d = m.group("y"), int(m.group("mo")), int(m.group("d"))
    spoken = _date(mo, d, y)
    if spoken is None:
        return None
    if m.group("h"):
        hour, minute = int(m.group("h")), int(m.group("mi"))
        if hour > 24 or minute > 59:
            return None
        spoken += " at " + clock(hour, minute, None, bare=True)
        if m.group("z"):
            spoken += " UTC"
    return [Claim(m.start(), m.end(), spoken)]


def _numeric(m: re.Match[str]) -> str | None:
    a, b = int(m.group("a")), int(m.group("b"))
    if a > 12 and b <= 12:  # day first, where month first is impossible
        a, b = b, a
    return _date(a, b, m.group("y"))


def _cued_numeric(m: re.Match[str]) -> list[Claim] | None:
    spoken = _date(int(m.group("a")), int(m.group("b")), None)
    return [Claim(m.start("a"), m.end("b"), spoken)] if spoken else None


def _month_name(text: str) -> str:
    return MONTHS[_MONTH_OF[text] - 1]


def _month_day(m: re.Match[str]) -> list[Claim] | None:
    """Month first ("March 5", "Dec 20th-24th", "March 5th, 2024"): each part keeps its place."""
    day = int(m.group("d"))
    if not 1 <= day <= 31:
        return None
    out = [
        Claim(m.start("m"), m.start("d") if m.string[m.start("d") - 1] != " " else m.start("d") - 1,
              _month_name(m.group("m")))
    ]  # fmt: skip
    spoken, end = ordinal(day), m.end("day")
    if m.group("d2"):
        last = int(m.group("d2"))
        if not day < last <= 31:
            return None
        spoken, end = f"{spoken} to {ordinal(last)}", m.end("day2")
    if m.group("y"):
        out.append(Claim(m.start("d"), end, spoken + ("" if m.string[end] == "," else ",")))
        out.append(Claim(m.start("y"), m.end("y"), year(int(m.group("y")))))
    else:
        out.append(Claim(m.start("d"), end, spoken))
    return out


def _day_month(m: re.Match[str]) -> str | None:
    day = int(m.group("d"))
    if not 1 <= day <= 31:
        return None
    the = "" if re.search(r"(?i)\bthe $", m.string[max(0, m.start() - 5) : m.start()]) else "the "
    spoken = f"{the}{ordinal(day)} of {_month_name(m.group('m'))}"
    return f"{spoken}, {year(int(m.group('y')))}" if m.group("y") else spoken


def _month_year(m: re.Match[str]) -> list[Claim]:
    return [
        Claim(m.start("m"), m.end("dot"), _month_name(m.group("m"))),
        Claim(m.start("y"), m.end("y"), year(int(m.group("y")))),
    ]


def _month_alone(m: re.Match[str]) -> list[Claim]:
    end = m.end()
    if m.string[end - 1] == "." and at_end(m.string, end):
        end -= 1
    return [Claim(m.start(), end, _month_name(m.group(1)))]


def _weekday(m: re.Match[str]) -> list[Claim]:
    end = m.end()
    if m.string[end - 1] == "." and at_end(m.string, end):
        end -= 1
    return [Claim(m.start(), end, _DAYS[m.group(1)])]


def _weekday_range(m: re.Match[str]) -> str:
    return f"{_DAYS[m.group(1)]} to {_DAYS[m.group(2)]}"


def clock(hour: int, minute: int, second: int | None, *, bare: bool) -> str:
    """Read 2:05 as "two oh five". ``bare``: no AM or PM follows, so a full hour is "o'clock" or "hundred"."""
    if hour == 0 and minute == 0 and second is None and bare:
        return "midnight"
    words = cardinal(hour)
    if minute == 0:
        if bare:
            words += " o'clock" if 1 <= hour <= 12 and second is None else " hundred"
    elif minute < 10:
        words += " oh " + cardinal(minute)
    else:
        words += " " + cardinal(minute)
    if second is not None:
        words += f" and {cardinal(second)} second" + ("" if second == 1 else "s")
    return words


def _half(text: str) -> str:
    return "AM" if text[0] in "Aa" else "PM"


def _time(m: re.Match[str]) -> list[Claim] | None:
    hour, minute = int(m.group("h")), int(m.group("mi"))
    second = int(m.group("s")) if m.group("s") else None
    if hour > 24 or minute > 59 or (second or 0) > 59:
        return None
    half = m.group("ap")
    out = [Claim(m.start(), m.end("clock"), clock(hour, minute, second, bare=not half))]
    if half:
        out.append(_half_claim(m))
    return out


def _half_claim(m: re.Match[str]) -> Claim:
    end = m.end("ap")
    if m.string[end - 1] == "." and at_end(m.string, end):
        end -= 1
    return Claim(m.start("ap"), end, _half(m.group("ap")))


def _hour(m: re.Match[str]) -> list[Claim] | None:
    hour = int(m.group("h"))
    if not 1 <= hour <= 12:
        return None
    return [Claim(m.start(), m.end("h"), cardinal(hour)), _half_claim(m)]


def _span(text: str, ap: str | None, *, alone: bool) -> str | None:
    h, _, mi = text.partition(":")
    hour, minute = int(h), int(mi or 0)
    if hour > 24 or minute > 59 or (not mi and not 1 <= hour <= 12):
        return None
    spoken = clock(hour, minute, None, bare=alone and bool(mi))
    return f"{spoken} {_half(ap)}" if ap else spoken


def _time_range(m: re.Match[str]) -> list[Claim] | None:
    first, second, ap1, ap2 = m.group("t1", "t2", "ap1", "ap2")
    if not (ap1 or ap2 or (":" in first and ":" in second)):
        return None
    one = _span(first, ap1, alone=not (ap1 or ap2))
    two = _span(second, ap2, alone=not ap2)
    if one is None or two is None:
        return None
    end = m.end()
    if m.string[end - 1] == "." and at_end(m.string, end):
        end -= 1
    return [Claim(m.start(), end, f"{one} to {two}")]


def _zone(m: re.Match[str]) -> list[Claim]:
    end = m.end()
    spoken = ZONES[m.group(1)]
    if spoken.endswith(" Time") and re.match(r"(?i) time\b", m.string[end:]):
        spoken = spoken[:-5]
    return [Claim(m.start(1), end, spoken)]


_DECADE_CUE = re.compile(r"(?i)\b(?:the|early|mid|late|his|her|their|my|your|our|low|high|upper|lower)[ -]$")


def _decade(m: re.Match[str]) -> str:
    text = m.group("n")
    n = int(text)
    if len(text) == 2 and m.group(0)[0] == text[0] and not _DECADE_CUE.search(m.string[: m.start()]):
        return f"{cardinal(n)} seconds"
    if len(text) == 2:
        return plural(cardinal(n)) if n else "two thousands"
    high, low = divmod(n, 100)
    if n % 1000 == 0:
        return plural(cardinal(n))
    head = cardinal(high)
    return head + (" hundreds" if low == 0 else " " + plural(cardinal(low)))


def _year_range(m: re.Match[str]) -> str:
    second = m.group("b")
    last = cardinal(int(second)) if len(second) == 2 and second[0] != "0" else year(_full_year(second))
    return f"{year(int(m.group('a')))} to {last}"


_YEAR_CUE = (
    r"(?i:\b(?:in|since|by|year|until|till|before|after|during|from|of|circa|early|late|mid|around"
    r"|for|spring|"
    r"summer|fall|autumn|winter|class of|copyright|fiscal|FY|Q[1-4])[ -])"
)


def _year_alone(m: re.Match[str]) -> list[Claim] | None:
    """A bare 4-digit number: 1900-2099 unless it counts things; 1000-1899 only after a cue ("in 1776")."""
    n = int(m.group("y"))
    after = m.string[m.end() :]
    counts = re.match(
        r" (?!(?:was|is|has|this|as|taxes|sales|results|elections|levels|us)\b)[a-z-]+s\b| people\b", after
    )
    if not m.group("cue") and not 1900 <= n <= 2099:
        return None
    if counts:
        return None
    return [Claim(m.start("y"), m.end("y"), year(n))]


def _military(m: re.Match[str]) -> str:
    hour, minute = m.group("h", "mi")
    first = ("zero " if hour[0] == "0" and hour != "00" else "") + cardinal(int(hour))
    return (
        f"{first} hundred"
        if minute == "00"
        else f"{first} {'oh ' if minute[0] == '0' else ''}{cardinal(int(minute))}"
    )


def _fiscal(m: re.Match[str]) -> str:
    y = m.group("y")
    return f"{letters(m.group('f'))} {year(int(y)) if len(y) == 4 else cardinal(int(y))}"


def _era(m: re.Match[str]) -> str:
    n = int(m.group(1))
    return f"{year(n) if n >= 1000 else cardinal(n)} {m.group(2)}"


_DATE_CUE = (
    r"(?i:\b(?:on|by|due|dated|until|till|from|since|between|before|after|for|of|date|dates|and|to"
    r"|through|starting|"
    r"ending|arrives?|expires?|expiring|born|dob)(?:[ ](?:is|was|the))?[:]?[ ])"
)
_DAY = r"(?P<d>[0-9]{1,2})(?:st|nd|rd|th)?"

NUMERIC: tuple[Rule, ...] = (
    rule(
        "iso date",
        rf"{_NOT_AFTER}(?P<y>[12][0-9]{{3}})-(?P<mo>[01][0-9])-(?P<d>[0-3][0-9])"
        r"(?:[T ](?P<h>[0-2][0-9]):(?P<mi>[0-5][0-9])(?::[0-5][0-9](?:\.[0-9]{1,6})?)?(?P<z>Z"
        r"|\+00:00)?(?![\w]))?"
        r"(?![\w])(?!-[0-9])",
        _iso,
        "-",
    ),
    rule(
        "date",
        rf"{_NOT_AFTER}(?P<a>[0-9]{{1,2}})(?P<s>[/.-])(?P<b>[0-9]{{1,2}})(?P=s)(?P<y>(?:19|20)[0-9]{{2}})"
        r"(?![\w])(?![/-][0-9])",
        _numeric,
        "/.-",
    ),
    rule(
        "date",
        rf"{_NOT_AFTER}(?P<a>[0-9]{{1,2}})/(?P<b>[0-9]{{1,2}})/(?P<y>[0-9]{{2}})(?![\w])(?![/-][0-9])",
        _numeric,
        "/",
    ),
)

NAMED: tuple[Rule, ...] = (
    rule("weekday range", rf"(?<![\w])({_D})\.?[ ]?{DASH}[ ]?({_D})(?![\w])", _weekday_range, "-–—"),
    rule(
        "weekday",
        rf"(?<![\w])(?:({_D}))(?:\.(?![\w])|(?=,[ ](?:{_M}|the|[0-9])|[ ](?:{_M})\.?[ ][0-9]|[ ][0-9]))",
        _weekday,
        ".,",
    ),
    rule(
        "month day",
        rf"(?<![\w])(?P<m>{_M})\.?[ ]?(?P<day>{_DAY})(?![\w:%/])(?![.,][0-9])"
        rf"(?:[ ]?{DASH}[ ]?(?P<day2>(?P<d2>[0-9]{{1,2}})(?:st|nd|rd|th)?)(?![\w:%/]))?"
        rf"(?:,?[ ](?P<y>{_Y})(?![ ]?(?:%|°)))?",
        _month_day,
        "0",
    ),
    rule(
        "day month",
        rf"{_NOT_AFTER}{_DAY}[ ](?:of[ ])?(?P<m>{_M})(?![\w])\.?(?:,?[ ](?P<y>{_Y}))?",
        _day_month,
        "0",
    ),
    rule("month year", rf"(?<![\w])(?P<m>{_M})(?P<dot>\.?),?[ ](?P<y>{_Y})", _month_year, "0"),
    rule(
        "cued date",
        rf"{_DATE_CUE}(?P<a>1[0-2]|0?[1-9])/(?P<b>3[01]|[12][0-9]|0?[1-9])(?![\w/])(?!\.[0-9])",
        _cued_numeric,
        "/",
    ),
    rule(
        "time range",
        rf"{_NOT_AFTER}(?P<t1>[0-9]{{1,2}}(?::[0-9]{{2}})?)[ ]?(?P<ap1>{_AP})?[ ]?{DASH}[ ]?"
        rf"(?P<t2>[0-9]{{1,2}}(?::[0-9]{{2}})?)(?:[ ]?(?P<ap2>{_AP}))?(?![\w:%])(?![.,/-][0-9])",
        _time_range,
        "-–—",
    ),
    rule(
        "time",
        r"(?<![\w.,/$£€-])(?<![\w]:)(?P<clock>(?P<h>[0-9]{1,2}):(?P<mi>[0-9]{2})(?::(?P<s>[0-9]{2}))?)"
        rf"(?:[ ]?(?P<ap>{_AP}))?(?![\w])(?![:][0-9])",
        _time,
        ":",
    ),
    rule("hour", rf"(?<![\w.,/$£€:])(?P<h>[0-9]{{1,2}})[ ]?(?P<ap>{_AP})(?![\w])", _hour, "0"),
    rule(
        "military",
        r"(?<![\w.,/$£€:-])(?P<h>[0-2][0-9])(?P<mi>[0-5][0-9])(?= (?:hours|hrs)\b)",
        _military,
        "0",
    ),
    rule("fiscal", r"(?<![\w])(?P<f>FY|CY)[ ]?'?(?P<y>20[0-9]{2}|[0-9]{2})(?![\w])", _fiscal, "0"),
    rule(
        "season",
        r"(?<![\w.,/$£€:-])(?P<a>(?:19|20)[0-9]{2})/(?P<b>[0-9]{2})(?![\w/])",
        lambda m: f"{year(int(m.group('a')))} slash {cardinal(int(m.group('b')))}",
        "/",
    ),
    rule("era", r"(?<![\w.,/$£€-])([0-9]{1,4})[ ](AD|BC|BCE|CE)(?![\w])", _era, "0"),
    rule(
        "decade", r"(?<![\w.,/$£€])(?<![0-9]-)['’‘]?(?P<n>[12][0-9][0-9]0|[0-9]0)['’]?s(?![\w])", _decade, "0"
    ),
    rule(
        "short year",
        r"(?<![\w])['’‘](?P<n>[0-9]{2})(?![\w'’\"])",
        lambda m: (
            cardinal(int(m.group("n"))) if m.group("n")[0] != "0" else "oh " + cardinal(int(m.group("n")))
        ),
        "'’‘",
    ),
    rule(
        "year range",
        rf"{_NOT_AFTER}(?P<a>1[5-9][0-9]{{2}}|20[0-9]{{2}})[ ]?{DASH}[ ]?"
        r"(?P<b>1[5-9][0-9]{2}|20[0-9]{2}|[0-9]{2})(?![\w])(?![.,:/-][0-9])",
        _year_range,
        "-–—",
    ),
    rule(
        "month",
        r"(?<![\w])(Jan|Feb|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?:\.(?![\w])|(?=[ ][0-9\ue000]))",
        _month_alone,
    ),
)

ZONE = rule("zone", rf"(?<=[ ])(?<=[\ue000M][ ])({_Z})(?![\w])", _zone)
YEARS: tuple[Rule, ...] = (
    rule(
        "year",
        rf"(?P<cue>{_YEAR_CUE})?(?<![\w.,/$£€-])(?<![0-9]:)(?P<y>[12][0-9]{{3}})(?![\w%°])(?![.,:/-][0-9])"
        r"(?![ ]?(?:%|°))",
        _year_alone,
        "0",
    ),
)
