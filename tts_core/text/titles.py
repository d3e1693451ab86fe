"""Readings of titles, abbreviations, street addresses, roman numerals, flights, highways and acronyms."""

from __future__ import annotations

import re

from .claims import Claim, Rule, alternatives, at_end, end_without_stop, rule
from .identifiers import STATES
from .numerals import cardinal, letter, letters, ordinal, pairs, roman, spoken_digits

TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Messrs": "Messers", "Prof": "Professor", "Rev": "Reverend",
    "Hon": "Honorable", "Gov": "Governor", "Sen": "Senator", "Rep": "Representative", "Gen": "General",
    "Capt": "Captain", "Cpt": "Captain", "Lt": "Lieutenant", "Col": "Colonel", "Sgt": "Sergeant", "Cmdr": "Commander",
    "Maj": "Major", "Adm": "Admiral", "Pres": "President", "Supt": "Superintendent", "Atty": "Attorney",
    "Fr": "Father", "Msgr": "Monsignor", "Amb": "Ambassador", "Mt": "Mount", "Ft": "Fort",
}  # fmt: skip
STREETS = {
    "St": "Street", "Ave": "Avenue", "Av": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane", "Dr": "Drive",
    "Ct": "Court", "Pl": "Place", "Cir": "Circle", "Ter": "Terrace", "Terr": "Terrace", "Pkwy": "Parkway",
    "Hwy": "Highway", "Sq": "Square", "Trl": "Trail", "Expy": "Expressway", "Fwy": "Freeway", "Aly": "Alley",
    "Plz": "Plaza", "Xing": "Crossing",
}  # fmt: skip
_STREET_WORDS = frozenset((*STREETS, *STREETS.values(), "Way", "Broadway", "Loop", "Row", "Walk"))
_DOTTED = {  # always written with a dot, "no." is apart
    "approx": "approximately", "appt": "appointment", "acct": "account", "dept": "department", "Dept": "Department",
    "est": "estimated", "incl": "including", "excl": "excluding", "max": "maximum", "min": "minimum", "tel": "telephone",
    "Tel": "Telephone", "ext": "extension", "Ext": "Extension", "vol": "volume", "Vol": "Volume", "misc": "miscellaneous",
    "Inc": "Incorporated", "Corp": "Corporation", "Ltd": "Limited", "Co": "Company", "Bros": "Brothers",
    "Assn": "Association", "Univ": "University", "Govt": "Government", "Intl": "International", "Natl": "National",
    "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire", "Apt": "Apartment", "Ste": "Suite", "Bldg": "Building",
    "Fl": "Floor", "Rm": "Room", "apt": "apartment", "ste": "suite", "rm": "room", "bldg": "building", "qty": "quantity",
    "Qty": "Quantity", "ref": "reference", "Ref": "Reference", "temp": "temperature", "info": "information",
    "etc": "et cetera", "vs": "versus", "cf": "compare", "e.g": "for example", "i.e": "that is", "et al": "and others",
    "a.k.a": "also known as", "P.O": "P O", "Ph.D": "PhD", "M.D": "MD", "D.C": "DC", "U.S": "US", "U.K": "UK",
    "U.S.A": "USA", "E.U": "EU", "a.m": "AM", "p.m": "PM", "A.M": "AM", "P.M": "PM", "B.C": "BC", "A.D": "AD",
    "R.S.V.P": "RSVP", "hrs": "hours", "mins": "minutes", "secs": "seconds", "yrs": "years", "Attn": "Attention",
    "attn": "attention", "Mtn": "Mountain", "Rte": "Route",
}  # fmt: skip
# Written without a dot as well.
_BARE = {
    "vs": "versus", "etc": "et cetera", "Inc": "Incorporated", "Corp": "Corporation", "Ltd": "Limited",
    "Apt": "Apartment", "Ste": "Suite", "Bldg": "Building", "Blvd": "Boulevard", "Pkwy": "Parkway", "Hwy": "Highway",
    "Jr": "Junior", "Sr": "Senior", "Attn": "Attention", "approx": "approximately", "appt": "appointment",
    "Dept": "Department", "aka": "also known as", "AKA": "also known as", "Intl": "International",
    "a.m": "AM", "p.m": "PM", "e.g": "for example", "i.e": "that is", "sq ft": "square feet", "Rte": "Route", "ext": "extension",
}  # fmt: skip
_SLASHED = {
    "w/o": "without", "w/": "with", "b/c": "because", "c/o": "care of", "n/a": "not applicable",
    "N/A": "not applicable", "and/or": "and or", "a/c": "A C", "A/C": "A C", "b/w": "between", "24hr": "twenty four hour",
}  # fmt: skip
# Acronyms that voices read wrong: as another word, or as a word where letters are said.
_ACRONYMS = {
    "PO": "P O", "ATT": "A. T and T", "AT&T": "A. T and T", "SSN": "SSN", "POS": "P O S", "TBD": "T B D",
    "OB": "O B", "FOB": "F O B", "CAD": "cad", "AD": "A. D", "AMEX": "Amex", "AKA": "also known as", "ASL": "ASL",
    "MSRP": "M S R P", "DIY": "D I Y",
}  # fmt: skip
# Function words in capitals ("THIS IS ON") would be spelled.
_CAPS = (
    "AM AN AS AT BE BY CAN DO GO HE IF IN IS IT ME MY NO OF ON OR SO TO UP US WE ALL AND ANY ARE BUT DID FOR GET HAS "
    "HAD HER HIM HIS HOW ITS LET MAY NEW NOT NOW OFF OLD ONE OUR OUT OWN SAY SEE SHE THE TOO TWO USE WAS WAY WHO WHY "
    "YES YOU YOUR"
).split()
_CAPS_ALWAYS = frozenset("AN AS AT BE BY DO GO IF IS MY OF ON SO TO UP WE CAN AND ARE BUT THE NOT YOU".split())
_REGNAL = (
    "Henry|Louis|George|Edward|Charles|James|William|Richard|John|Paul|Pius|Elizabeth|Philip|Francis|Frederick|"
    "Alexander|Benedict|Catherine|Mary|Nicholas|Napoleon|Leo|Gregory|Clement|Innocent|Ivan|Peter|Robert|Otto|"
    "Ferdinand|Leopold|Albert|Gustav|Christian|Harald|Umberto|Boniface|Urban|Julius|Ramses|Ramesses|Ptolemy|"
    "Cleopatra|Xerxes|Darius|Malcolm|Margaret|Victor|Carl|Felipe|Alfonso|Wilhelm"
)
_NUMBERED = (
    "Chapter|Part|Section|Book|Volume|Act|Scene|Article|Title|Phase|Type|Class|Level|Stage|Tier|Grade|Unit|Appendix|"
    "Episode|Season|Round|Figure|Table|War|Bowl|Rocky|Fantasy|Formula|Apollo|Rome|Vatican|Schedule|Category|Factor|"
    "Module|Exhibit|Amendment|chapter|part|section|volume|act|phase|type|class|level|stage|tier|Saturn|Mark"
)
_ROM = r"(?P<r>(?=[IVXLC])(?:X{0,3}L?X{0,3}|XC)(?:IX|IV|V?I{0,3}))"
_SUFFIXED_NAME = r"(?<=[a-z] )"
_DIRECTIONS = {
    "N": "North", "S": "South", "E": "East", "W": "West", "NE": "Northeast", "NW": "Northwest", "SE": "Southeast",
    "SW": "Southwest",
}  # fmt: skip
_AIRLINES = "AA|AC|AF|AI|AS|AV|AZ|BA|B6|CX|CZ|DL|EI|EK|EY|F9|FR|G4|HA|IB|JL|KE|KL|LA|LH|LX|MU|NH|NK|NZ|OS|QF|QR|SK|SN|SQ|SY|TK|TP|UA|U2|VA|VS|WN|WS"
_ST = alternatives(_STREET_WORDS)
_STREET_KEYS = alternatives(STREETS)


def _title(m: re.Match[str]) -> list[Claim]:
    return [Claim(m.start(), m.end(), TITLES[m.group(1)])]


_BEFORE_STREET = re.compile(r"(?:[A-Z][\w'’]*|[0-9]+(?:st|nd|rd|th)|\ue000)\.? $")
_HOUSE_BEFORE = re.compile(r"(?:[0-9]|\ue000)+ (?:[NSEW]{1,2}\.? )?(?:[\w'’]+ ){0,3}$")


def _dr(m: re.Match[str]) -> list[Claim]:
    """ "Dr. Smith" is Doctor; "Elm Dr." (after a name, before no name, or after a house number) is Drive."""
    before, after = m.string[: m.start()], m.string[m.end() :]
    named = re.match(r" ?(?:[A-Z]\.? )?[A-Z][a-z]", after)
    street = _BEFORE_STREET.search(before) and (not named or _HOUSE_BEFORE.search(before))
    spoken = "Drive" if street else "Doctor"
    return [Claim(m.start(), end_without_stop(m), spoken)]


def _st(m: re.Match[str]) -> list[Claim]:
    """ "St. Louis" is Saint; "Main St." is Street."""
    before, after = m.string[: m.start()], m.string[m.end() :]
    named = re.match(r" ?[A-Z][a-z]", after)
    first = not _BEFORE_STREET.search(before) or bool(re.search(r"(?i)(?:^|[.,;:] )[\w']+ $", before[-20:]) and named
                                                      and not _HOUSE_BEFORE.search(before))
    saint = named and (first or bool(re.search(r"(?i)\b(?:in|at|to|from|near|of|the|visit|city|mount) $", before)))
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
    word = {"No": "number", "Nos": "numbers", "no": "number", "nos": "numbers", "NO": "number", "Nr": "number"}
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
    if not n or (m.group("r") == "I" and not re.match(r"(?:$|[.,;:!?]|['’]s| of\b| was\b)", m.string[m.end() :])):
        return None
    return [Claim(m.start("r"), m.end("r"), "the " + ordinal(n))]


def _numbered(m: re.Match[str]) -> list[Claim] | None:
    n = roman(m.group("r"))
    if not n or (m.group("r") == "I" and re.match(r" (?:am|was|have|will|would|think|can|do|'|need|want|see)", m.string[m.end() :])):
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
    """The voice's front end takes a sentence's last "no." for "number"; a blank before the dot prevents that."""
    return [Claim(m.start(), m.end() - 1, m.group(1) + " ")]


def _plural_acronym(m: re.Match[str]) -> str:
    return m.group(1) + "s"


ADDRESS: tuple[Rule, ...] = (
    rule(
        "address",
        r"(?<![\w.,/$£€#:-])(?P<n>[0-9]{1,5})(?P<tail>-?[A-Z](?![\w]))?(?: (?P<dir>(?:NE|NW|SE|SW|[NSEW])\.?)(?= ))?"
        rf"(?= )(?: (?!(?:{_ST})\b)(?:[A-Z][\w'’]*\.?|[0-9]{{1,3}}(?:st|nd|rd|th))){{1,4}}? (?P<street>{_ST})(?![\w])\.?"
        r"(?: (?P<dir2>(?:NE|NW|SE|SW|[NSEW])\.?)(?![\w]))?",
        _address,
        "0",
    ),
    rule("room", r"(?i:\b(?:room|suite|ste\.?|apartment|apt\.?|unit|rm\.?|building|bldg\.?|office|gate|platform|bay|studio|seat|row)"
         r"(?: (?:number|no\.?))?) #?(?P<head>[A-Z])?-?(?P<n>[0-9]{1,5})-?(?P<tail>[A-Z])?(?![\w])(?![.,:/-][0-9])", _room, "0"),
    rule("flight", rf"(?i:\bflights?)(?: (?:number|no\.))? (?P<carrier>{_AIRLINES}|[A-Z]{{2}})?[ -]?(?P<n>[0-9]{{1,4}})(?![\w])(?![.,:/-][0-9])",
         _flight, "0"),
    rule("flight", rf"(?<![\w.,/$-])(?P<carrier>{_AIRLINES})[ ]?(?P<n>[0-9]{{2,4}})(?![\w])(?![.,:/-][0-9])", _flight, "0"),
    rule("highway", rf"(?<![\w.,/$-])(?P<name>I|US|SR|{'|'.join(STATES)})-(?P<n>[0-9]{{1,3}})(?P<tail>[NSEW])?(?![\w])", _highway, "-"),
    rule("route", r"\b(?:[Rr]oute|[Rr]te\.?|[Hh]ighway|Hwy\.?|[Ee]xit|[Ii]nterstate|US|bus|Bus|[Ff]orm|[Bb]ox) (?P<n>[0-9]{1,4})(?![\w])(?![.,:/-][0-9])", _route, "0"),
)

RULES: tuple[Rule, ...] = (
    rule("slashed", rf"(?<![\w/])({alternatives(_SLASHED)})(?![\w/])", _slashed, "/2"),
    rule("number sign", r"(?<![\w])(No|Nos|no|nos|NO|Nr)\. ?(?=[0-9\ue000])", _number_sign, "."),
    rule("doctor", r"(?<![\w])Dr(?:\.(?![\w])|(?![\w]))", _dr),
    rule("saint", r"(?<![\w])St(?:\.(?![\w])|(?![\w]))", _st),
    rule("title", rf"(?<![\w])({alternatives(TITLES)})\.?(?= [A-Z])", _title),
    rule("title", r"(?<![\w])(Mr|Mrs|Ms|Prof)\.(?= ?[A-Z]|,|$)", _title, "."),
    rule("street", rf"(?<=[A-Za-z0-9\ue000] )({_STREET_KEYS})(?:\.(?![\w])|(?=,| (?:#|Apt|Suite|Ste|Unit|[NSEW]{{1,2}}\b)))(?<!^)", _street),
    rule("abbreviation", rf"(?<![\w.])({alternatives(_DOTTED)})\.(?![\w])", _abbreviation, "."),
    rule("bare", rf"(?<![\w.])({alternatives(_BARE)})(?![\w'’])(?!\.\w)", _bare),
    rule("regnal", rf"(?<![\w])(?:{_REGNAL}) {_ROM}(?![\w])", _regnal),
    rule("numbered", rf"(?<![\w])(?:{_NUMBERED}) {_ROM}(?![\w])", _numbered),
    rule("roman", r"(?<=[a-z] )(?P<r>II|III|IV|VI|VII|VIII|IX|XI|XII|XIII|XIV|XV|XVI|XX|XXI)(?![\w])", _roman_alone),
    rule("acronym", rf"(?<![\w&])(?:{alternatives(_ACRONYMS)})(?![\w&])", _acronym),
    rule("ampersand", r"(?<![\w&])([A-Z]{1,5})&([A-Z]{1,5})(?![\w&])", _ampersand, "&"),
    rule("plural acronym", r"(?<![\w])([A-Z]{2,5})['’]s(?= (?:are|were|have|in|of|and|for)\b)", _plural_acronym, "'’"),
    rule("capitals", rf"(?<![\w.'’])(?:{'|'.join(_CAPS)})(?![\w'’])", _caps),
    rule("no", r"(?<![\w.])(no|NO)\.(?=[\s\"')\]”’.]*$)", _said_no, "."),
    rule("letter", r"(?i:(?<=\bletter )|(?<=\bgrade )|(?<=\bplan )|(?<=\bgate )|(?<=\brow )|(?<=\bzone )|(?<=\bvitamin )"
         r"|(?<=\bsection )|(?<=\bpart )|(?<=\boption )|(?<=\bterminal )|(?<=\bhepatitis )|(?<=\btype ))A(?![\w.'’])",
         lambda m: letter("A")),
)
# Words that make the pre-pass look at a text without digits or signs.
TRIGGERS = alternatives({*TITLES, *STREETS, *(k for k in _DOTTED if "." not in k), *_BARE})
