"""Readings of e-mail addresses, URLs, host names, IP and MAC addresses, handles, hashtags, files and paths.

Written after how people dictate them (RFC 3986 and RFC 5321 say what belongs to one). Schemes and "www."
are not read; a long query string is left out, since nobody can note it down from hearing it.
"""

from __future__ import annotations

import re

from .claims import Claim, Rule, alternatives, rule
from .numerals import code, digit_words, letters, spoken_digits

_TLDS = [
    "com",
    "org",
    "net",
    "edu",
    "gov",
    "mil",
    "io",
    "ai",
    "app",
    "dev",
    "info",
    "biz",
    "co",
    "uk",
    "us",
    "ca",
    "de",
    "fr",
    "eu",
    "tv",
    "me",
    "ly",
    "nl",
    "jp",
    "au",
    "in",
    "health",
    "shop",
    "store",
    "online",
    "tech",
    "cloud",
    "xyz",
    "site",
    "live",
    "link",
    "page",
]
_EXTENSIONS = {
    "pdf": "PDF",
    "txt": "T X T",
    "csv": "CSV",
    "json": "jason",
    "zip": "zip",
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "gif": "gif",
    "html": "HTML",
    "htm": "HTM",
    "docx": "doc X",
    "doc": "doc",
    "xlsx": "XLS X",
    "pptx": "PPT X",
    "exe": "E X E",
    "log": "log",
    "md": "MD",
    "py": "P Y",
    "yaml": "yamel",
    "yml": "Y M L",
    "toml": "tomel",
    "mp3": "MP three",
    "mp4": "MP four",
    "wav": "wave",
    "tar.gz": "tar dot G Z",
    "gz": "G Z",
} | {e: letters(e) for e in ("png", "xls", "ppt", "xml", "svg", "css", "js", "ts", "sql", "rtf", "tsv")}
_SIGNS = {
    ".": "dot",
    "-": "dash",
    "_": "underscore",
    "+": "plus",
    "/": "slash",
    "\\": "backslash",
    ":": "colon",
    "@": "at",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "~": "tilde",
    "!": "exclamation mark",
    "$": "dollar",
    "*": "star",
    "'": "apostrophe",
    "(": "open parenthesis",
    ")": "close parenthesis",
    ",": "comma",
    ";": "semicolon",
    "|": "pipe",
}
_SPELLED = frozenset(
    [
        "uk",
        "us",
        "eu",
        "ai",
        "io",
        "ui",
        "ux",
        "id",
        "ip",
        "tv",
        "api",
        "faq",
        "url",
        "sms",
        "cgi",
        "ssl",
        "sso",
        "aws",
        "ibm",
        "abc",
        "usa",
        "ups",
        "ui",
        "qa",
        "hr",
    ]
)
_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^\W\d_]+|.", re.DOTALL)
_VOWEL = re.compile(r"[aeiouyAEIOUY]")
_MAX_QUERY = 24


def word(text: str) -> str:
    """A name part: spelled where it cannot be a word ("uk", "html", "x"), else as it stands."""
    if len(text) == 1 or text.lower() in _SPELLED or not _VOWEL.search(text):
        return letters(text)
    return text


def name(text: str) -> str:
    """A name read piece by piece: "a-b.co.uk/x1" -> "A. dash B dot co dot U K slash X one"."""
    out: list[str] = []
    for piece in _PIECE.findall(text):
        if piece.isascii() and piece.isalpha():
            out.append(word(piece))
        elif piece.isascii() and piece.isdigit():
            out.append(spoken_digits(piece))
        else:
            said = _SIGNS.get(piece, piece if piece.isalnum() else "")
            if said:
                out.append(said)
    return " ".join(out)


def _email(m: re.Match[str]) -> str:
    local, _, domain = m.group(0).rpartition("@")
    return f"{name(local)} at {name(domain)}"


_CLOSERS = ".,;:!?'\"”’>*_"


def _trim(text: str) -> str:
    """Drop the sentence's punctuation from a URL's end; a bracket stays only if opened inside."""
    while text:
        if text[-1] in _CLOSERS or (text[-1] in ")]}" and not re.search(r"[(\[{]", text)):
            text = text[:-1]
        else:
            break
    return text


_SCHEME = re.compile(r"(?:https?|ftp|wss?)://|mailto:", re.IGNORECASE)


def url(text: str) -> str:
    """Spoken form of one URL without surrounding punctuation."""
    text = _SCHEME.sub("", text, count=1)
    text = re.sub(r"^www\.", "", text, flags=re.IGNORECASE)
    text = text.rstrip("/")
    head, sign, query = text.partition("?")
    if not sign:
        head, sign, query = text.partition("#")
    if len(query) > _MAX_QUERY:
        return name(head.rstrip("/"))
    return name(text)


def _url(m: re.Match[str]) -> list[Claim] | None:
    text = _trim(m.group(0))
    spoken = url(text)
    return [Claim(m.start(), m.start() + len(text), spoken)] if spoken else None


def _ip(m: re.Match[str]) -> str | None:
    parts = m.group("ip").split(".")
    if any(int(p) > 255 for p in parts):
        return None
    spoken = " dot ".join(digit_words(p) for p in parts)
    if m.group("mask"):
        spoken += " slash " + spoken_digits(m.group("mask"))
    if m.group("port"):
        spoken += " colon " + spoken_digits(m.group("port"))
    return spoken


def _hex_groups(m: re.Match[str]) -> str:
    return ", ".join(code(p) for p in re.split(r"[:-]", m.group(0)) if p)


def _ipv6(m: re.Match[str]) -> str:
    return " colon ".join(code(p) for p in m.group(0).split(":")).replace("  ", " ").strip()


def _handle(m: re.Match[str]) -> str:
    return "at " + name(m.group(1))


_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def _hashtag(m: re.Match[str]) -> str | None:
    tag = m.group(1)
    if re.fullmatch(r"[A-Z]*[0-9][A-Z0-9_-]*", tag):
        return None
    return "hashtag " + " ".join(name(p) for p in _CAMEL.findall(tag.replace("_", " ")))


def _file(m: re.Match[str]) -> str:
    return f"{name(m.group(1))} dot {_EXTENSIONS[m.group(2).lower()]}"


def _path(m: re.Match[str]) -> list[Claim] | None:
    text = _trim(m.group(0))
    if text.count("/") + text.count("\\") < (1 if text[0] == "~" else 2) and "." not in text:
        return None
    head, dot, ext = text.rpartition(".")
    if dot and head and ext.lower() in _EXTENSIONS:
        spoken = f"{name(head)} dot {_EXTENSIONS[ext.lower()]}"
    else:
        spoken = name(text)
    return [Claim(m.start(), m.start() + len(text), spoken)]


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


RULES: tuple[Rule, ...] = (
    rule(
        "url", r"(?<![\w])(?:(?:https?|ftp|wss?)://|mailto:|www\.)[^\s<>\ue000]+", _url, ":.", re.IGNORECASE
    ),
    rule(
        "email",
        r"(?<![\w.+-])[A-Za-z0-9_][A-Za-z0-9._%+'-]{0,63}@" + rf"{_LABEL}(?:\.{_LABEL})+",
        _email,
        "@",
    ),
    rule(
        "ip",
        r"(?<![\w.])(?P<ip>(?:[0-9]{1,3}\.){3}[0-9]{1,3})(?:/(?P<mask>[0-9]{1,2}))?(?::(?P<port>[0-9]{2,5}))?"
        r"(?![\w])(?!\.[0-9])",
        _ip,
        ".",
    ),
    rule("mac", r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])", _hex_groups, ":-"),
    rule(
        "uuid", r"(?<![\w-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w-])", _hex_groups, "-"
    ),
    rule(
        "ipv6",
        r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){1,6}(?::(?:[0-9A-Fa-f]{1,4}:){0,5}|(?<=(?::[0-9A-Fa-f]{4}:))"
        r")[0-9A-Fa-f]{1,4}(?![\w:])",
        _ipv6,
        ":",
    ),
    rule(
        "file",
        rf"(?<![\w./\\@])([A-Za-z0-9](?:[\w-]|\.(?=[\w-])){{0,80}})\.({alternatives(_EXTENSIONS)})"
        rf"(?![\w])(?!\.\w)",
        _file,
        ".",
        re.IGNORECASE,
    ),
    rule(
        "host",
        rf"(?<![\w.@/])(?:{_LABEL}\.){{1,5}}(?:{alternatives(_TLDS)})(?![\w-])(?!\.\w)(?::[0-9]{{2,5}})?"
        r"(?:/[^\s<>\ue000]*)?",
        _url,
        ".",
    ),
    rule("path", r"(?<![\w/\\.~\ue000])(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]*)*", _path, "/"),
    rule("path", r"(?<!\w)[A-Za-z]:\\[\w.\\-]+", _path, "\\"),
    rule("handle", r"(?<![\w@.])@([A-Za-z_][\w]{0,30}(?:\.[A-Za-z_]\w{0,30})?)", _handle, "@"),
    rule("hashtag", r"(?<![\w&#])#([A-Za-z]\w{0,60})(?![-]?\w)", _hashtag, "#"),
)
