"""What is wrong with a JSON message, in words and by field."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tts_core.errors import BadRequest

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding may raise for any bytes or text."""

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


def strings(raw: str | bytes, *names: str) -> list[str | None]:
    """These fields of a message that could not be read as a whole; None for one that is no string."""
    try:
        found: Any = msgspec.json.decode(raw)
    except UNREADABLE:
        found = None
    values = [found.get(name) if isinstance(found, dict) else None for name in names]
    return [value if isinstance(value, str) else None for value in values]


__all__ = ["UNREADABLE", "bad_request", "strings"]
