"""Splits ``multipart/form-data`` as it comes: sans I/O, at a cost that grows with the bytes alone.

Sources: RFC 7578, RFC 2046 5.1.1. Read more strictly than they ask: nothing stands before the first
delimiter but a line break, nothing behind a delimiter on its line, every part has one ``Content-Disposition``
with a name, and no transfer encoding. A general reader takes lines before the first delimiter one by one,
and nine megabytes of empty ones hold an event loop up for half a minute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_HEAD = 2048
"""Bytes of the header lines of one part; a file's name has 255 at most."""
MAX_LINES = 8

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PARAMETER = re.compile(r';[ \t]*([A-Za-z0-9*_-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))[ \t]*')
_BREAK = b"\r\n"


class FormError(ValueError):
    """This is no form."""


def boundary_of(content_type: str) -> bytes:
    """The boundary that a ``Content-Type`` names. Raises FormError."""
    found = _parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(found):
        raise FormError("no boundary")
    return found.encode()


class FormParts:
    """Takes the body piece by piece; ``done`` after the last delimiter, whatever follows that."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = _BREAK + b"--" + boundary
        self._buffer = bytearray(_BREAK)  # before the first delimiter stands a line's begin
        self._step: Callable[[], str | bytes] = self._begin
        self.done = False

    def feed(self, data: bytes) -> Iterator[str | bytes]:
        """What is known with these bytes: a part's name where it begins, and pieces of its body.

        No more than twice the data and a delimiter is held. Raises FormError.
        """
        self._buffer += data
        while not self.done:
            step = self._step
            if made := step():
                yield made
            elif self._step == step:
                return

    def _begin(self) -> str | bytes:
        if len(self._buffer) < len(self._delimiter) + len(_BREAK):
            return b""
        if self._buffer.startswith(_BREAK + _BREAK):
            self._drop(len(_BREAK))
        if not self._buffer.startswith(self._delimiter):
            raise FormError("something before the first part")
        self._drop(len(self._delimiter))
        self._step = self._line
        return b""

    def _line(self) -> str | bytes:
        """Behind a delimiter."""
        if len(self._buffer) < 2:
            return b""
        end = self._drop(2)
        if end not in {_BREAK, b"--"}:
            raise FormError("something behind a delimiter")
        self.done = end == b"--"
        self._step = self._head
        return b""

    def _head(self) -> str | bytes:
        end = self._buffer.find(_BREAK + _BREAK, 0, MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD:
                raise FormError("a part has too much of a header")
            return b""
        name = _name(self._drop(end, 2 * len(_BREAK)).decode("utf-8", "replace"))
        self._step = self._body
        return name

    def _body(self) -> str | bytes:
        end = self._buffer.find(self._delimiter)
        if end >= 0:
            self._step = self._line
            return self._drop(end, len(self._delimiter))
        return self._drop(max(0, len(self._buffer) - len(self._delimiter) + 1))

    def _drop(self, count: int, more: int = 0) -> bytes:
        """The first bytes of the buffer, which go from it with some more."""
        piece = bytes(self._buffer[:count])
        del self._buffer[: count + more]
        return piece


def _name(head: str) -> str:
    """The name in the header lines of a part. Raises FormError."""
    lines = head.split("\r\n")
    if len(lines) > MAX_LINES:
        raise FormError("a part has too many headers")
    found = ""
    for line in lines:
        field, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9-]+", field):
            raise FormError("a part has a bad header")
        if field.lower() == "content-transfer-encoding":
            raise FormError("a part is encoded")
        if field.lower() == "content-disposition":
            kind = value.partition(";")[0].strip().lower()
            name = _parameters(value).get("name", "")
            if found or kind != "form-data" or not name:
                raise FormError("a part is no field")
            found = name
    if not found:
        raise FormError("a part is no field")
    return found


def _parameters(value: str) -> dict[str, str]:
    """What follows in a header from its first semicolon. Raises FormError."""
    at = value.find(";")
    found: dict[str, str] = {}
    while 0 <= at < len(value):
        one = _PARAMETER.match(value, at)
        if one is None or one[1].lower() in found:
            raise FormError("a header has bad parameters")
        found[one[1].lower()] = one[3] if one[2] is None else re.sub(r"\\(.)", r"\1", one[2])
        at = one.end()
    return found


__all__ = ["FormError", "FormParts", "boundary_of"]
