"""What is wrong with a JSON message, in words and by field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tts_core.errors import BadRequest, VoxwireError

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding may raise for any bytes or text."""

T = TypeVar("T")

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.",
    re.DOTALL,
)
_LONE = len(r"\ud800")
_MOST = 1 << 16

_MISSING = re.compile(r"required field `([^`]+)`")
_PATH = re.compile(r"`\$\.?([^`]*)`")


def bad_request(error: Exception) -> BadRequest:
    """The client's fault behind a decoding error, with the path of the field where there is one."""
    if not isinstance(error, msgspec.ValidationError):
        return BadRequest("the message is not valid JSON")
    words = str(error)
    path = _PATH.search(words)
    missing = _MISSING.search(words)
    parts = [found[1] for found in (path, missing) if found is not None and found[1]]
    return BadRequest(words[:300], field=".".join(parts) or None)


def said(error: VoxwireError) -> str:
    """The message, with the field at fault in front of it where it does not begin with that itself."""
    if not error.field or error.message.startswith(f"{error.field} "):
        return error.message
    return f"{error.field}: {error.message}"


def reading(decode: Callable[[str | bytes], T]) -> Callable[[str | bytes], T]:
    """A JSON decoder that takes lone surrogates for U+FFFD instead of refusing the message.

    A client that counts in UTF-16 (JavaScript) may cut its text within a pair, and then escapes each half. It
    is no proper Unicode (RFC 8259, 8.2), but the words around it are to be spoken.
    """

    def read(raw: str | bytes) -> T:
        try:
            return decode(raw)
        except UNREADABLE:
            mended = _mended(raw)
            if mended is None:
                raise
            return decode(mended)

    return read


def _mended(raw: str | bytes) -> str | None:
    """The message without lone surrogates; None where there are none, or it is too long to be looked at."""
    if len(raw) > _MOST:
        return None
    try:
        text = raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        return None
    mended = _ESCAPE.sub(lambda m: r"\ufffd" if len(m[0]) == _LONE else m[0], text)
    return mended if mended != text else None


_json = reading(msgspec.json.decode)


def strings(raw: str | bytes, *names: str) -> list[str | None]:
    """These fields of a message that could not be read as a whole; None for one that is no string."""
    try:
        found: Any = _json(raw)
    except UNREADABLE:
        found = None
    values = [found.get(name) if isinstance(found, dict) else None for name in names]
    return [value if isinstance(value, str) else None for value in values]


__all__ = ["UNREADABLE", "bad_request", "reading", "strings"]
