"""Readings of titles, abbreviations, street addresses, roman numerals, flights, highways and acronyms."""

from __future__ import annotations

import re
from pathlib import Path

from .claims import Claim, Rule, alternatives, at_end, end_without_stop, rule
from .identifiers import STATES
from .numerals import cardinal, letter, letters, ordinal, pairs, roman


def _read_tables() -> dict[str, dict[str, str]]:
    """``abbreviations.tsv`` by kind.

    Kinds: ``title`` (before a name), ``street`` (after one), ``dotted`` (with a dot), ``bare`` (also
    without),    ``slashed``, ``acronym`` (those that voices read wrong), ``reference`` (before a number).
    """
    tables: dict[str, dict[str, str]] = {}
    lines = Path(__file__).with_name("abbreviations.tsv").read_text(encoding="utf-8").splitlines()[1:]
    for kind, written, spoken in (line.split("\t") for line in lines):
        tables.setdefault(kind, {})[written] = spoken
    return tables


_TABLES = _read_tables()
TITLES = _TABLES["title"]
STREETS = _TABLES["street"]
_STREET_WORDS = frozenset((*STREETS, *STREETS.values(), "Way", "Broadway", "Loop", "Row", "Walk"))
_DOTTED = _TABLES["dotted"]
# Written without a dot as well.
_BARE = _TABLES["bare"]
_SLASHED = _TABLES["slashed"]
# Acronyms that voices read wrong: as another word, or as a word where letters are said.
_ACRONYMS = _TABLES["acronym"]
# Function words in capitals ("THIS IS ON") would be spelled.
_CAPS = [
    "AM",
    "AN",
    "AS",
    "AT",
    "BE",
    "BY",
    "CAN",
    "DO",
    "GO",
    "HE",
    "IF",
    "IN",
    "IS",
    "IT",
    "ME",
    "MY",
    "NO",
    "OF",
    "ON",
    "OR",
    "SO",
    "TO",
    "UP",
    "US",
    "WE",
    "ALL",
    "AND",
    "ANY",
    "ARE",
    "BUT",
    "DID",
    "FOR",
    "GET",
    "HAS",
    "HAD",
    "HER",
    "HIM",
    "HIS",
    "HOW",
    "ITS",
    "LET",
    "MAY",
    "NEW",
    "NOT",
    "NOW",
    "OFF",
    "OLD",
    "ONE",
    "OUR",
    "OUT",
    "OWN",
    "SAY",
    "SEE",
    "SHE",
    "THE",
    "TOO",
    "TWO",
    "USE",
    "WAS",
    "WAY",
    "WHO",
    "WHY",
    "YES",
    "YOU",
    "YOUR",
]
_CAPS_ALWAYS = frozenset(
    [
        "AN",
        "AS",
        "AT",
        "BE",
        "BY",
        "DO",
        "GO",
        "IF",
        "IS",
        "MY",
        "OF",
        "ON",
        "SO",
        "TO",
        "UP",
        "WE",
        "CAN",
        "AND",
        "ARE",
        "BUT",
        "THE",
        "NOT",
        "YOU",
    ]
)
_REGNAL = (
    "Henry|Louis|George|Edward|Charles|James|William|Richard|John|Paul|Pius|Elizabeth|Philip|Francis"
    "|Frederick|"
    "Alexander|Benedict|Catherine|Mary|Nicholas|Napoleon|Leo|Gregory|Clement|Innocent|Ivan|Peter|Robert|Otto|"
    "Ferdinand|Leopold|Albert|Gustav|Christian|Harald|Umberto|Boniface|Urban|Julius|Ramses|Ramesses|Ptolemy|"
    "Cleopatra|Xerxes|Darius|Margaret|Victor|Carl|Felipe|Alfonso|Wilhelm"
)
_NUMBERED = (
    "Chapter|Part|Section|Book|Volume|Act|Scene|Article|Title|Phase|Type|Class|Level|Stage|Tier|Grade"
    "|Unit|Appendix|"
    "Episode|Season|Round|Figure|Table|War|Bowl|Rocky|Fantasy|Formula|Apollo|Rome|Vatican|Schedule"
    "|Category|Factor|"
    "Module|Exhibit|Amendment|chapter|part|section|volume|act|phase|type|class|level|stage|tier|Saturn|Mark"
)
_ROM = r"(?P<r>(?=[IVXLC])(?:X{0,3}L?X{0,3}|XC)(?:IX|IV|V?I{0,3}))"
_SUFFIXED_NAME = r"(?<=[a-z] )"
_DIRECTIONS = {
    "N": "North", "S": "South", "E": "East", "W": "West", "NE": "Northeast", "NW": "Northwest",
    "SE": "Southeast",
    "SW": "Southwest",
}  # fmt: skip
_AIRLINES = (
    "AA|AC|AF|AI|AS|AV|AZ|BA|B6|CX|CZ|DL|EI|EK|EY|F9|FR|G4|HA|IB|JL|KE|KL|LA|LH|LX|MU|NH|NK"
    "|NZ|OS|QF|QR|SK|SN|SQ|SY|TK|TP|UA|U2|VA|VS|WN|WS"
)
_ST = alternatives(_STREET_WORDS)
_STREET_KEYS = alternatives(STREETS)


def _title(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), TITLES[m.group(1)])]


_BEFORE_STREET = re.compile(r"(?:[A-Z][\w'’]*|[0-9]+(?:st|nd|rd|th)|\ue000)\.? $")
_HOUSE_BEFORE = re.compile(r"(?:[0-9]|\ue000)+ (?:[NSEW]{1,2}\.? )?(?:[\w'’]+ ){0,3}$")


_REFERENCES = _TABLES["reference"]


def _reference(m: re.Match[str]) -> str:
    said = _REFERENCES[m.group("a").lower()]
    return said.capitalize() if m.group("a")[0].isupper() else said


def _dr(m: re.Match[str]) -> list[Claim]:
    """Doctor before a name ("Dr. Smith"), Drive after one or after a house number ("12 Elm Dr.")."""
    before, after = m.string[: m.start()], m.string[m.end() :]
    named = re.match(r" ?(?:[A-Z]\.? )?[A-Z][a-z]", after)
    street = _BEFORE_STREET.search(before) and (not named or _HOUSE_BEFORE.search(before))
    spoken = "Drive" if street else "Doctor"
    return [Claim(m.start(), end_without_stop(m), spoken)]


def _st(m: re.Match[str]) -> list[Claim]:
    """Saint or Street: "St. Louis", "Main St.", "on St. Mary's St."."""
    before, after = m.string[: m.start()], m.string[m.end() :]
    named = re.match(r" ?[A-Z][a-z]", after)
    first = not _BEFORE_STREET.search(before) or bool(
        re.search(r"(?i)(?:^|[.,;:] )[\w']+ $", before[-20:]) and named and not _HOUSE_BEFORE.search(before)
    )
    saint = named and (
        first or bool(re.search(r"(?i)\b(?:in|at|to|from|near|of|the|visit|city|mount) $", before))
    )
    return [Claim(m.start(), end_without_stop(m), "Saint" if saint else "Street")]


def _street(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(1), end_without_stop(m), STREETS[m.group(1)])]


def _abbreviation(m: re.Match[str]) -> list[Claim]:
    key = m.group(1)
    return [Claim(m.start(), end_without_stop(m), _DOTTED[key])]


def _bare(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), _BARE[m.group(1)])]


def _slashed(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(1), m.end(1), _SLASHED[m.group(1)])]


def _number_sign(m: re.Match[str]) -> list[Claim]:
    word = {
        "No": "number",
        "Nos": "numbers",
        "no": "number",
        "nos": "numbers",
        "NO": "number",
        "Nr": "number",
    }
    said = word[m.group(1)]
    if m.group(1)[0] == "N" and not m.string[: m.start()].strip():
        said = said.capitalize()
    return [Claim(m.start(), m.end(), said)]


def _address(m: re.Match[str]) -> list[Claim]:
    out = [Claim(m.start("n"), m.end("n"), pairs(m.group("n")))]
    tail = m.group("tail")
    if tail:
        out[0] = Claim(m.start("n"), m.end("tail"), f"{pairs(m.group('n'))} {letter(tail.strip('-'))}")
    if m.group("dir"):
        out.append(Claim(m.start("dir"), m.end("dir"), _DIRECTIONS[m.group("dir").rstrip(".")]))
    street = m.group("street")
    if street in STREETS:
        end = m.end()
        if m.string[end - 1] == "." and at_end(m.string, end):
            end -= 1
        out.append(Claim(m.start("street"), end, STREETS[street]))
    if m.group("dir2"):
        out = [c for c in out if c.end <= m.start("dir2")]
        out.append(Claim(m.start("street"), m.start("dir2") - 1, STREETS.get(street, street)))
        out.append(Claim(m.start("dir2"), m.end("dir2"), _DIRECTIONS[m.group("dir2").rstrip(".")]))
    return out


def _room(m: re.Match[str]) -> list[Claim]:
    n, tail = m.group("n"), m.group("tail")
    said = f"{letter(m.group('head'))} " if m.group("head") else ""
    said += pairs(n)
    if tail:
        said += " " + letter(tail)
    return [Claim(m.start("head") if m.group("head") else m.start("n"), m.end(), said)]


def _flight(m: re.Match[str]) -> list[Claim]:
    carrier, n = m.group("carrier"), m.group("n")
    spoken = []
    if carrier:
        said = " ".join(letter(c) if c.isalpha() else cardinal(int(c)) for c in carrier)
        spoken.append(Claim(m.start("carrier"), m.end("carrier"), said))
        gap = m.string[m.end("carrier") : m.start("n")]
        if gap != " ":
            return [Claim(m.start("carrier"), m.end("n"), f"{said} {pairs(n)}")]
    spoken.append(Claim(m.start("n"), m.end("n"), pairs(n)))
    return spoken


def _highway(m: re.Match[str]) -> str:
    name = m.group("name")
    said = STATES[name] if name in STATES and name != "IN" else letters(name) if len(name) < 3 else name
    if name == "US":
        said = "US"
    n = m.group("n")
    return f"{said} {pairs(n)}" + (f" {letter(m.group('tail'))}" if m.group("tail") else "")


def _route(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start("n"), m.end("n"), pairs(m.group("n")))]


def _regnal(m: re.Match[str]) -> list[Claim] | None:
    n = roman(m.group("r"))
    if not n or (
        m.group("r") == "I" and not re.match(r"(?:$|[.,;:!?]|['’]s| of\b| was\b)", m.string[m.end() :])
    ):
        return None
    return [Claim(m.start("r"), m.end("r"), "the " + ordinal(n))]


def _numbered(m: re.Match[str]) -> list[Claim] | None:
    n = roman(m.group("r"))
    if not n or (
        m.group("r") == "I"
        and re.match(r" (?:am|was|have|will|would|think|can|do|'|need|want|see)", m.string[m.end() :])
    ):
        return None
    return [Claim(m.start("r"), m.end("r"), cardinal(n))]


def _roman_alone(m: re.Match[str]) -> list[Claim] | None:
    n = roman(m.group("r"))
    return [Claim(m.start("r"), m.end("r"), cardinal(n))] if n else None


def _acronym(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), _ACRONYMS[m.group(0)])]


def _ampersand(m: re.Match[str]) -> str:
    left, right = m.group(1), m.group(2)
    return f"{letters(left) if len(left) < 4 else left} and {letters(right) if len(right) < 4 else right}"


_CAPS_WORD = re.compile(r"[A-Z]{2,}")


def _caps(m: re.Match[str]) -> list[Claim] | None:
    word = m.group(0)
    if word not in _CAPS_ALWAYS:
        before = re.search(r"([A-Za-z']+) $", m.string[: m.start()])
        after = re.match(r" ([A-Za-z']+)", m.string[m.end() :])
        beside = [n.group(1) for n in (before, after) if n]
        if not any(len(w) > 2 and w.isupper() for w in beside):
            return None
    return [Claim(m.start(), m.end(), word.lower())]


def _said_no(m: re.Match[str]) -> list[Claim]:
    """The embedded voice takes a last "no." for "number"; a blank before the dot prevents that."""
    return [Claim(m.start(), m.end() - 1, m.group(1) + " ")]


def _plural_acronym(m: re.Match[str]) -> str:
    return m.group(1) + "s"


ADDRESS: tuple[Rule, ...] = (
    rule(
        "address",
        r"(?<![\w.,/$£€#:-])(?P<n>[0-9]{1,5})(?P<tail>-?[A-Z](?![\w]))?(?: (?P<dir>(?:NE|NW|SE|SW"
        r"|[NSEW])\.?)(?= ))?"
        rf"(?= )(?: (?!(?:{_ST})\b)(?:[A-Z][\w'’]*\.?|[0-9]{{1,3}}(?:st|nd|rd|th))){{1,4}}? "
        rf"(?P<street>{_ST})(?![\w])\.?"
        r"(?: (?P<dir2>(?:NE|NW|SE|SW|[NSEW])\.?)(?![\w]))?",
        _address,
        "0",
    ),
    rule(
        "room",
        r"(?i:\b(?:room|suite|ste\.?|apartment|apt\.?|unit|rm\.?|building|bldg\.?|office|gate|platform"
        r"|bay|studio|seat|row)"
        r"(?: (?:number|no\.?))?) #?(?P<head>[A-Z])?-?(?P<n>[0-9]{1,5})-?(?P<tail>[A-Z])?(?![\w])"
        r"(?![.,:/-][0-9])",
        _room,
        "0",
    ),
    rule(
        "flight",
        rf"(?i:\bflights?)(?: (?:number|no\.))? (?P<carrier>{_AIRLINES}|[A-Z]{{2}})?[ -]?"
        rf"(?P<n>[0-9]{{1,4}})(?![\w])(?![.,:/-][0-9])",
        _flight,
        "0",
    ),
    rule(
        "flight",
        rf"(?<![\w.,/$-])(?P<carrier>{_AIRLINES})[ ]?(?P<n>[0-9]{{2,4}})(?![\w])(?![.,:/-][0-9])",
        _flight,
        "0",
    ),
    rule(
        "highway",
        rf"(?<![\w.,/$-])(?P<name>I|US|SR|{'|'.join(STATES)})-(?P<n>[0-9]{{1,3}})(?P<tail>[NSEW])?(?![\w])",
        _highway,
        "-",
    ),
    rule(
        "route",
        r"\b(?:[Rr]oute|[Rr]te\.?|[Hh]ighway|Hwy\.?|[Ee]xit|[Ii]nterstate|US|bus|Bus|[Ff]orm|[Bb]ox) "
        r"(?P<n>[0-9]{1,4})(?![\w])(?![.,:/-][0-9])",
        _route,
        "0",
    ),
)

RULES: tuple[Rule, ...] = (
    rule("slashed", rf"(?<![\w/])({alternatives(_SLASHED)})(?![\w/])", _slashed, "/2"),
    rule("number sign", r"(?<![\w])(No|Nos|no|nos|NO|Nr)\. ?(?=[0-9\ue000])", _number_sign, "."),
    rule(
        "reference",
        r"(?<![\w])(?P<a>[Ff]igs?|[Pp]p?|[Cc]h|[Ss]ec|[Aa]rt)\.(?= ?[0-9\ue000])",
        _reference,
        ".",
    ),
    rule("doctor", r"(?<![\w])Dr(?:\.(?![\w])|(?![\w]))", _dr),
    rule("saint", r"(?<![\w])St(?:\.(?![\w])|(?![\w]))", _st),
    rule("title", rf"(?<![\w])({alternatives(TITLES)})\.?(?= [A-Z])", _title),
    rule("title", r"(?<![\w])(Mr|Mrs|Ms|Prof)\.(?= ?[A-Z]|,|$)", _title, "."),
    rule(
        "street",
        rf"(?<=[A-Za-z0-9\ue000] )({_STREET_KEYS})(?:\.(?![\w])|(?=,| (?:#|Apt|Suite|Ste|Unit"
        rf"|[NSEW]{{1,2}}\b)))(?<!^)",
        _street,
    ),
    rule("abbreviation", rf"(?<![\w.])({alternatives(_DOTTED)})\.(?![\w])", _abbreviation, "."),
    rule("bare", rf"(?<![\w.])({alternatives(_BARE)})(?![\w'’])(?!\.\w)", _bare),
    rule("regnal", rf"(?<![\w])(?:{_REGNAL}) {_ROM}(?![\w])", _regnal),
    rule("numbered", rf"(?<![\w])(?:{_NUMBERED}) {_ROM}(?![\w])", _numbered),
    rule(
        "roman",
        r"(?<=[a-z] )(?P<r>II|III|IV|VI|VII|VIII|IX|XI|XII|XIII|XIV|XV|XVI|XX|XXI)(?![\w])",
        _roman_alone,
    ),
    rule("acronym", rf"(?<![\w&])(?:{alternatives(_ACRONYMS)})(?![\w&])", _acronym),
    rule("ampersand", r"(?<![\w&])([A-Z]{1,5})&([A-Z]{1,5})(?![\w&])", _ampersand, "&"),
    rule(
        "plural acronym",
        r"(?<![\w])([A-Z]{2,5})['’]s(?= (?:are|were|have|in|of|and|for)\b)",
        _plural_acronym,
        "'’",
    ),
    rule("capitals", rf"(?<![\w.'’])(?:{'|'.join(_CAPS)})(?![\w'’])", _caps),
    rule("no", r"(?<![\w.])(no|NO)\.(?=[\s\"')\]”’.]*$)", _said_no, "."),
    rule(
        "letter",
        r"\b(?i:letter|grade|plan|gate|row|zone|vitamin|section|part|option|terminal|hepatitis|type) (?P<a>A)"
        r"(?![\w.'’])",
        lambda m: [Claim(m.start("a"), m.end("a"), letter("A"))],
    ),
)
# Words that make the pre-pass look at a text without digits or signs.
TRIGGERS = alternatives({*TITLES, *STREETS, *(k for k in _DOTTED if "." not in k), *_BARE})
