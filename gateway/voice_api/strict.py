r"""JSON from clients of these routes, read strictly (trust.md S11).

A key twice in one object is refused: of two readers one may take the first and the other the last. So are
numbers that are not finite (JSON has none, Python's reader does), halves of characters (``\ud800``: no text
that can be written down), every encoding but UTF-8 (RFC 8259, 8.1), and fields that the type does not have.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from gateway import fault
from tts_core.errors import BadRequest

T = TypeVar("T")


def decode(raw: bytes, kind: type[T]) -> T:
    """``raw`` as a ``kind``. Raises BadRequest that names the field."""
    try:
        plain = json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_not_finite)
        if b"\\u" in raw:
            json.dumps(plain, ensure_ascii=False).encode()  # fails for half a character
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise fault.bad_request(error) from None
    except (ValueError, RecursionError):
        raise BadRequest("the body must be one JSON object") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadRequest("the body has a key twice")
    return made


def _not_finite(_: str) -> NoReturn:
    raise ValueError


__all__ = ["decode"]
