"""Readings of phone numbers, cards, PINs, ZIP codes, and ids of orders, accounts, parcels, bookings.

Everything here is read character by character: on a phone call a wrong id is worse than a slow one. Every
zero is kept, groups are parted by a comma (a short pause). Phone formats: NANP (area code, exchange, line)
and ITU-T E.164/E.123 for "+".
"""

from __future__ import annotations

import re

from .claims import Claim, Rule, rule
from .numerals import ONES, cardinal, code, digit_words, letter, letters, pairs, spoken_digits
from .web import word

# Words after which digits are an id. STRONG: any three digits or more; WEAK: four or more.
_STRONG = (
    "pin|passcode|pass code|password|otp|code|codes|id|ids|ext|extension|cvv|cvc|ssn|serial|vin|npi|ein|"
    "error|routing|confirmation|tracking|reference|ref|verification|pnr|locator|record locator|postcode|zip|"
    "account number|order number|card number|policy number|member number|case number|ticket number|"
    "phone number|invoice number|model number|part number|license plate|plate"
)
_WEAK = (
    "account|acct|order|orders|ticket|case|claim|policy|member|membership|invoice|booking|reservation"
    "|card|number|"
    "license|licence|loan|customer|security|transaction|shipment|parcel|package|patient|request|incident|"
    "model|part|sku|item|ticket|job|lot|batch|document|permit|registration|contract|docket|phone"
    "|mobile|cell|fax"
)
_CUE_REACH = 40
_LINK = (
    r"(?:[ ]?(?:number|numbers|no\.|num\.?|id|code|ending|ends|starting|beginning|in|with|is|are|was"
    r"|as|of|to|"
    r"the|your|called|named|for|this|that|it|it's|now|one-time|six-digit|four-digit)(?=[ :,#=]))*"
)
_ID_FORM = r"[A-Z0-9]+(?:[-‐][A-Z0-9]+)*"


def _local(digits: str) -> str:
    """Area codes and toll-free prefixes: "800" -> "eight hundred", else digit by digit."""
    return ONES[int(digits[0])] + " hundred" if digits in ("800", "900") else digit_words(digits)


def _parts(m: re.Match[str], names: tuple[str, ...]) -> list[Claim]:
    """One claim per digit group, so that each keeps its own place in the source; commas part them."""
    out: list[Claim] = []
    found = [g for g in names if m.group(g)]
    for i, group in enumerate(found):
        start, end = m.span(group)
        spoken = _local(m.group(group)) if group == "area" else digit_words(m.group(group))
        if group == "country":
            spoken = ("plus " if m.string[start - 1 : start] == "+" else "") + spoken
            start -= m.string[start - 1 : start] == "+"
        if group == "ext":
            start, spoken = m.start("extword"), "extension " + spoken
        if i + 1 < len(found):
            spoken += ","
        out.append(Claim(start, end, spoken))
    return _stretch(m, out)


def _stretch(m: re.Match[str], parts: list[Claim]) -> list[Claim]:
    """Let each claim take the separators up to the next blank, so that nothing is left to be read."""
    text = m.string
    out: list[Claim] = []
    at = m.start()
    for i, part in enumerate(parts):
        limit = parts[i + 1].start if i + 1 < len(parts) else m.end()
        end = part.end
        while end < limit and not text[end].isspace():
            end += 1
        start = at if text[at : part.start].strip() != "" or at == part.start else part.start
        while start < part.start and text[start].isspace():
            start += 1
        out.append(Claim(start, end, part.spoken))
        at = end
    return out


def _phone(m: re.Match[str]) -> list[Claim] | None:
    return _parts(m, ("country", "area", "exchange", "line", "ext"))


_CALL = re.compile(r"(?i)\b(?:call|phone|dial|text|number|reach|fax|cell|mobile|tel)\b")


def _local_phone(m: re.Match[str]) -> list[Claim] | None:
    if not _CALL.search(m.string[max(0, m.start() - _CUE_REACH) : m.start()]):
        return None
    return _parts(m, ("exchange", "line"))


def _bare_phone(m: re.Match[str]) -> str:
    digits = m.group("digits")
    plus = ""
    if m.group("plus"):
        plus = "plus "
        size = 1 if digits[0] in "17" else 2
        return plus + digit_words(digits[:size]) + ", " + spoken_digits(digits[size:])
    if len(digits) == 11 and digits[0] == "1":
        return f"one, {_local(digits[1:4])}, {digit_words(digits[4:7])}, {digit_words(digits[7:])}"
    return plus + spoken_digits(digits)


def _international(m: re.Match[str]) -> list[Claim]:
    out = []
    found = list(re.finditer(r"[0-9]+", m.group(0)))
    for i, part in enumerate(found):
        spoken = (
            ("plus " if i == 0 else "") + spoken_digits(part.group(0)) + ("," if i + 1 < len(found) else "")
        )
        out.append(Claim(m.start() + part.start() - (i == 0), m.start() + part.end(), spoken))
    return _stretch(m, out)


def _vanity(m: re.Match[str]) -> str:
    said = [_local(m.group("area"))]
    if m.group("one"):
        said.insert(0, "one")
    for part in re.split(r"[-. ]", m.group("words")):
        said.append(
            digit_words(part) if part.isdigit() else word(part.lower()) if part.isalpha() else code(part)
        )
    return ", ".join(said)


def _dashed(m: re.Match[str]) -> list[Claim]:
    """Digit groups with dashes or blanks: cards, SSNs, ISBNs."""
    found = list(re.finditer(r"[0-9Xx]+", m.group(0)))
    out = [
        Claim(
            m.start() + p.start(),
            m.start() + p.end(),
            " ".join(letter(c) if c in "xX" else ONES[int(c)] for c in p.group(0))
            + ("," if i + 1 < len(found) else ""),
        )
        for i, p in enumerate(found)
    ]
    return _stretch(m, out)


def _masked(m: re.Match[str]) -> str:
    return "ending in " + digit_words(m.group("digits"))


def _digits(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start("digits"), m.end("digits"), spoken_digits(m.group("digits")))]


STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "DC": "DC", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii",
    "ID": "Idaho", "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky",
    "LA": "Louisiana", "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan",
    "MN": "Minnesota", "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska",
    "NV": "Nevada",
    "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina",
    "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania",
    "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas",
    "UT": "Utah", "VT": "Vermont", "VA": "Virginia", "WA": "Washington", "WV": "West Virginia",
    "WI": "Wisconsin", "WY": "Wyoming", "PR": "Puerto Rico",
}  # fmt: skip
_CLEAR_STATES = [
    "AZ",
    "CA",
    "CT",
    "FL",
    "GA",
    "IL",
    "KS",
    "KY",
    "MN",
    "NC",
    "ND",
    "NE",
    "NH",
    "NJ",
    "NM",
    "NV",
    "NY",
    "RI",
    "SC",
    "SD",
    "TN",
    "TX",
    "UT",
    "VA",
    "VT",
    "WA",
    "WI",
    "WV",
    "WY",
]


def _zip(m: re.Match[str]) -> list[Claim]:
    out = []
    state = m.group("state")
    if state in STATES:
        out.append(Claim(m.start("state"), m.end("state"), STATES[state]))
    spoken = spoken_digits(m.group("zip"))
    if m.group("four"):
        spoken += ", " + digit_words(m.group("four"))
    out.append(Claim(m.start("zip"), m.end("four") if m.group("four") else m.end("zip"), spoken))
    return out


def _zip_plus_four(m: re.Match[str]) -> str:
    return f"{spoken_digits(m.group(1))}, {digit_words(m.group(2))}"


def _state(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(1), m.end(1), STATES[m.group(1)])]


_UNIT_AFTER = re.compile(
    r"[ ]?(?:%|°|percent|dollars?|cents?|euros?|pounds?|USD|EUR|GBP|(?:km|kg|mg|cm|mm|mi|ft|lbs?|oz"
    r"|mph|MB|GB|TB|KB|kWh)\b)"
)
_COUNT_AFTER = re.compile(
    r" (?!(?:is|was|has|as|this|ships?|arrives|comes|goes|expires|starts|ends|closes|opens|shows|works|"
    r"always|yes|it's|that's|there's|what's|does|plus|minus|times|needs|looks|covers|includes|belongs|"
    r"matches|fails|appears|exists|contains|requires|remains|says)\b)(?:[a-z]+ )?(?:[a-z-]+s|people"
    r"|men|women|children)\b"
)


def cued(m: re.Match[str]) -> list[Claim] | None:
    """Digits or an alphanumeric token right after a cue word ("order 00123", "code: B7K29")."""
    token = m.group("token")
    figures = sum(c.isdigit() for c in token)
    if not figures or re.fullmatch(r"[A-Z]{4,}-?[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[A-Z]?", token):
        return None if not token.startswith("0") or len(token) < 2 else [_claim(m, token)]
    explicit = bool(re.search(r"\b(?:number|#|no|id|code)\b|#", m.group("link") or "", re.IGNORECASE))
    minimum = 3 if m.group("strong") or explicit or token[0] == "0" or figures < len(token) else 4
    if len(token) < minimum or _UNIT_AFTER.match(m.string, m.end("token")):
        return None
    if (
        not (m.group("strong") or explicit)
        and token.isdigit()
        and _COUNT_AFTER.match(m.string, m.end("token"))
    ):
        return None
    return [_claim(m, token)]


def _claim(m: re.Match[str], token: str) -> Claim:
    start = m.start("token")
    spoken = spoken_digits(token) if token.isdigit() else code(token)
    if m.string[start - 1 : start] == "#":
        # "order #123" is "order one two three"; "order number #123" has said it already.
        start -= 1
        if not re.search(r"(?:number|no\.|num\.?|id|code)[ :]*$", m.string[:start], re.IGNORECASE):
            spoken = "number " + spoken
    return Claim(start, m.end("token"), spoken)


def _hash_id(m: re.Match[str]) -> str | None:
    token = m.group("token")
    if not any(c.isdigit() for c in token):
        return None
    if token.isdigit():
        spoken = cardinal(int(token)) if len(token) < 4 and token[0] != "0" else spoken_digits(token)
    else:
        spoken = code(token)
    before = m.string[: m.start()].rstrip()
    return (
        spoken if re.search(r"(?:number|numbers|no\.|num\.?)$", before, re.IGNORECASE) else "number " + spoken
    )


_WORDLIKE = frozenset(
    ["COVID", "MP", "FORMULA", "PS", "WIN", "UTF", "SHA", "AES", "RTX", "GTX", "CORE", "WEB", "TYPE"]
)


def alphanumeric(m: re.Match[str]) -> str | None:
    """A token of capitals and digits: character by character; short names ("B12", "Q3") as a number."""
    token = m.group(0)
    short = re.fullmatch(r"([A-Z]{1,3})-?([1-9][0-9]?)", token)
    if short:
        return f"{letters(short.group(1))} {cardinal(int(short.group(2)))}"
    seat = re.fullmatch(r"([1-9][0-9]?)-?([A-Z])", token)
    if seat:
        return f"{cardinal(int(seat.group(1)))} {letter(seat.group(2))}"
    head = re.fullmatch(r"([A-Z]+)-?([0-9]{1,2})", token)
    if head and (head.group(1) in _WORDLIKE or len(head.group(1)) > 4):
        return f"{head.group(1)} {cardinal(int(head.group(2)))}"
    b2b = re.fullmatch(r"([A-Z])([24])([A-Z])", token)
    if b2b:
        return f"{letter(b2b.group(1))} {'to' if b2b.group(2) == '2' else 'four'} {letter(b2b.group(3))}"
    return code(token)


def _mixed(m: re.Match[str]) -> str | None:
    """Lower-case tokens with digits: "win32" -> "win three two", "a1b2c3" -> spelled."""
    token = m.group(0)
    wordy = re.fullmatch(r"([A-Za-z][a-z]{2,})-?([0-9]+)", token)
    if wordy:
        tail = wordy.group(2)
        said = cardinal(int(tail)) if len(tail) < 3 and tail[0] != "0" else spoken_digits(tail)
        return f"{word(wordy.group(1))} {said}"
    if re.fullmatch(r"[0-9]+-[a-z-]+", token):
        return None
    if len(re.findall(r"[A-Za-z]+", token)) == 1 and re.search(r"[a-z]{3}", token):
        return " ".join(
            spoken_digits(p) if p.isdigit() else word(p) for p in re.findall(r"[A-Za-z]+|[0-9]+", token)
        )
    return code(token)


def _plain_long(m: re.Match[str]) -> str | None:
    """Five digits and more without commas: an id, unless it is round or counts something."""
    token = m.group(0)
    if token[0] != "0" and (
        token.endswith("000") or (len(token) < 8 and _COUNT_AFTER.match(m.string, m.end()))
    ):
        return None
    return spoken_digits(token)


_CUE_BEFORE = re.compile(rf"\b(?:{_STRONG})\b", re.IGNORECASE)


def _near_cue(m: re.Match[str]) -> str | None:
    """Four digits within a short reach behind a strong cue: "the code I sent you is 4821"."""
    before = m.string[max(0, m.start() - _CUE_REACH) : m.start()]
    if not _CUE_BEFORE.search(before):
        return None
    if re.search(r"\b(?:in|since|by|year|until|from) $", before) and m.group(0)[:2] in ("19", "20"):
        return None
    if _COUNT_AFTER.match(m.string, m.end()) or _UNIT_AFTER.match(m.string, m.end()):
        return None
    return spoken_digits(m.group(0))


def _emergency(m: re.Match[str]) -> str:
    return digit_words(m.group(0))


_SEP = r"[-. ‐]"
_EXT = r"(?:,?[ ]?(?P<extword>ext\.?|extension|x)[ ]?(?P<ext>[0-9]{1,6}))?"

EARLY: tuple[Rule, ...] = (
    rule(
        "phone",
        rf"(?<![\w.-])(?:\+?(?P<country>1){_SEP}?[ ]?)?(?:\((?P<area>[0-9]{{3}})\){_SEP}?)"
        rf"(?P<exchange>[0-9]{{3}}){_SEP}?(?P<line>[0-9]{{4}})(?![0-9])(?!-[0-9]){_EXT}",
        _phone,
        "(",
        re.IGNORECASE,
    ),
    rule(
        "phone",
        rf"(?<![\w.,-])(?<![0-9] )(?:\+?(?P<country>1){_SEP})?(?P<area>[0-9]{{3}})(?P<sep>{_SEP})"
        rf"(?P<exchange>[0-9]{{3}})(?P=sep)(?P<line>[0-9]{{4}})(?![0-9])(?!-[0-9]){_EXT}",
        _phone,
        "-. ‐",
        re.IGNORECASE,
    ),
    rule(
        "vanity",
        r"(?<![\w.-])(?:(?P<one>1)[- ])?(?P<area>8[0-9]{2})(?:-|(?<=1 ...) )(?P<words>[0-9]{0,3}-?[A-Z]{2,8}"
        r"(?:-[A-Z0-9]{1,8})*)(?![\w])",
        _vanity,
        "0",
    ),
    rule(
        "international",
        r"(?<![\w+])\+[0-9]{1,3}(?:[-. ]?\([0-9]{1,4}\))?(?:[-. ][0-9]{1,5}){2,5}(?![\w])",
        _international,
        "+",
    ),
    rule("e164", r"(?<![\w+])(?P<plus>\+)(?P<digits>[0-9]{8,15})(?![\w])", _bare_phone, "+"),
    rule(
        "e164",
        r"(?<![\w.,:/$£€-])(?P<plus>)(?P<digits>1[2-9][0-9]{2}[2-9][0-9]{6})(?![\w])(?![.,-][0-9])",
        _bare_phone,
        "0",
    ),
    rule(
        "masked", r"(?<![\w*])(?:[*xX•·.#]{3,}[- ]?){1,4}(?P<digits>[0-9]{2,6})(?![\w])", _masked, "*xX•·.#"
    ),
    rule(
        "card",
        r"(?<![\w.-])[0-9]{4}(?P<s>[- ])[0-9]{4}(?:(?P=s)[0-9]{4}){0,5}(?P=s)[0-9]{1,7}(?![\w-])",
        _dashed,
        "0",
    ),
    rule(
        "key",
        r"(?i:(?<=press )|(?<=dial )|(?<=enter )|(?<=hit )|(?<=by )|(?<=or ))(?P<key>[*#])"
        r"(?P<digits>[0-9]{0,4})(?![\w])",
        lambda m: (
            ("star" if m.group("key") == "*" else "pound")
            + (" " + digit_words(m.group("digits")) if m.group("digits") else "")
        ),
        "*#",
    ),
    rule(
        "plan",
        r"(?<![\w])(?P<n>401|403|529)(?:\((?P<a>[kb])\)|(?P<b>[kb](?![\w])))",
        lambda m: f"{pairs(m.group('n'))} {letter(m.group('a') or m.group('b'))}",
        "0",
    ),
    rule("card", r"(?<![\w.-])3[47][0-9]{2}(?P<s>[- ])[0-9]{6}(?P=s)[0-9]{5}(?![\w-])", _dashed, "0"),
    rule("isbn", r"(?<![\w.-])97[89]-[0-9]{1,5}-[0-9]{1,7}-[0-9]{1,7}-[0-9](?![\w-])", _dashed, "-"),
    rule("isbn", r"(?<=ISBN )(?:[0-9]{1,7}-){3}[0-9X](?![\w-])", _dashed, "-"),
    rule("ssn", r"(?<![\w.-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![\w-])", _dashed, "-"),
    rule("ssn", r"(?<![\w.-])[0-9]{2}-[0-9]{7}(?![\w-])", _dashed, "-"),
    rule(
        "ending",
        r"\b(?:ending|ends|ended|starting|starts|beginning|begins)[ ](?:in|with|on)[ ]"
        r"(?:the[ ]digits[ ])?#?(?P<digits>[0-9]{2,8})(?![\w])(?![.,:/-][0-9])",
        _digits,
        "0",
        re.IGNORECASE,
    ),
    rule(
        "last four",
        r"\blast[ ](?:four|4|two|2|three|3|five|5|six|6)(?:[ ]digits)?(?:[ ](?:of[ ][a-z ]{1,30})?)?"
        r"(?:(?:is|are|being)[ ]?|[:,]?[ ])*(?P<digits>[0-9]{2,6})(?![\w])(?![.,:/-][0-9])",
        _digits,
        "0",
        re.IGNORECASE,
    ),
    rule(
        "zip",
        rf"(?<![\w])(?P<state>{'|'.join(STATES)})\.?,?[ ]{{1,2}}(?P<zip>[0-9]{{5}})(?:-(?P<four>[0-9]{{4}}))?"
        r"(?![\w-])",
        _zip,
        "0",
    ),
    rule("zip+4", r"(?<![\w.-])([0-9]{5})-([0-9]{4})(?![\w-])", _zip_plus_four, "-"),
    rule(
        "trunk phone",
        r"(?<![\w.,/$£€-])0[0-9]{2,4}(?:[- ][0-9]{3,4}){1,2}(?![\w])(?![.,:/-][0-9])",
        _dashed,
        "0",
    ),
    rule(
        "local phone",
        r"(?<![\w.,-])(?P<exchange>[2-9][0-9]{2})[. ](?P<line>[0-9]{4})(?![\w])(?![.,:/-][0-9])",
        _local_phone,
        ". ",
    ),
    rule(
        "local phone",
        r"(?<![\w.,-])(?P<exchange>[0-9]{3})-(?P<line>[0-9]{4})(?![\w-])(?P<area>)(?P<country>)"
        r"(?P<extword>)(?P<ext>)",
        lambda m: _parts(m, ("exchange", "line")),
        "-",
    ),
    rule("emergency", r"(?<![\w.,:/$£€#-])911(?![\w])(?![.,:/%-][0-9%])(?![ ]?%)", _emergency, "9"),
    rule(
        "service code",
        r"(?<=(?:ial|all|ext) )(?:[2-9]11|988|999|112)(?![\w])(?![.,:/-][0-9])",
        _emergency,
        "0",
    ),
    rule(
        "cued id",
        rf"\b(?:(?P<strong>(?i:{_STRONG}))|(?i:{_WEAK}))(?P<link>(?i:{_LINK}))[ ]?[:=,]?[ ]?[\"'“(]?"
        rf"(?:#[ ]?)?"
        rf"(?P<token>{_ID_FORM})(?![\w])(?![.,:/][0-9])",
        cued,
        "0",
    ),
    rule("hash id", rf"(?<![\w&#])#[ ]?(?P<token>{_ID_FORM})(?![\w])", _hash_id, "#"),
)

LATE: tuple[Rule, ...] = (
    rule(
        "token",
        r"(?<![\w.,/$£€'’-])(?=[A-Z-]*[0-9])(?=[0-9-]*[A-Z])[A-Z0-9]+(?:-[A-Z0-9]+)*(?![\w])(?!-[A-Za-z0-9])",
        alphanumeric,
        "0",
    ),
    rule("dashed digits", r"(?<![\w.,/$£€-])[0-9]+(?:-[0-9]+){2,}(?![\w-])", _dashed, "-"),
    rule(
        "mixed",
        r"(?<![\w.,/$£€'’-])(?=[A-Za-z]+-?[0-9]|[0-9]+[A-Za-z]+[0-9])[A-Za-z0-9]+(?:-[0-9]+)?(?![\w])",
        _mixed,
        "0",
    ),
    rule("long", r"(?<![\w.,/$£€-])(?:0[0-9]+|[0-9]{5,})(?![\w])(?![.,:/-][0-9])", _plain_long, "0"),
    rule("near cue", r"(?<![\w.,/$£€-])[0-9]{4}(?![\w])(?![.,:/-][0-9])", _near_cue, "0"),
    rule("state", rf"(?<=[a-z], )({'|'.join(_CLEAR_STATES)})(?![\w])", _state),
)
