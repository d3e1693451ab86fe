"""jambonz's custom speech without I/O: its HTTP body and the messages of its streaming socket.

Sources: protocols.md 1.7 and the vendor's example server. On the socket the server speaks first.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from gateway.fault import UNREADABLE, bad_request, reading, said
from sessions.events import AudioFormat, Encoding
from tts_core.errors import BadRequest, UnsupportedFormat, VoxwireError

FORMATS = ("mp3", "wav", "l16")
_SPEAK = re.compile(r"</?speak\b[^>]*>|<\?xml[^>]*\?>|<!--.*?-->", re.DOTALL)
_MARK = re.compile(r"(<[^<>]*>)")


class Body(msgspec.Struct, kw_only=True):
    """The body of an HTTP request."""

    text: str | None = None
    type: Literal["text", "ssml"] = "text"
    voice: str | None = None
    language: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """A message of the socket."""

    type: str
    text: str | None = None


_decode_body = reading(msgspec.json.Decoder(Body).decode)
_decode = reading(msgspec.json.Decoder(Message).decode)


def body_of(raw: bytes) -> Body:
    """Read an HTTP request. Raises BadRequest that names the field."""
    try:
        body = _decode_body(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None
    if not body.text:
        raise BadRequest("text is needed", field="text")
    return body


def plain(ssml: str) -> str:
    """SSML as the text front end takes it: what frames it is gone, and entities between the tags are read.

    Tags stay: those that we honour are honoured, the others dropped there, never spoken.
    """
    parts = _MARK.split(_SPEAK.sub("", ssml))
    return "".join(part if at % 2 else html.unescape(part) for at, part in enumerate(parts))


def parse(raw: str | bytes) -> Message:
    """Read a message of the socket. Raises BadRequest that names the field."""
    if isinstance(raw, bytes):
        raise BadRequest("messages are JSON text")
    try:
        message = _decode(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None
    if message.type not in {"stream", "flush", "stop"}:
        raise BadRequest("type must be stream, flush or stop", field="type")
    if message.type == "stream" and message.text is None:
        raise BadRequest("text is needed", field="text")
    return message


def socket_format(query: Mapping[str, str]) -> AudioFormat:
    """Format of a socket: 16-bit samples at ``sampleRate``, 8000 Hz where it is left out."""
    return _format(query.get("sampleRate") or "8000", "sampleRate")


def file_format(query: Mapping[str, str]) -> tuple[str, AudioFormat]:
    """``format`` and ``sampleRate`` of the address: what an HTTP answer is made of.

    "" for the format where the address leaves it open. Raises BadRequest and UnsupportedFormat.
    """
    asked = query.get("format", "")
    if asked and asked not in FORMATS:
        raise UnsupportedFormat(f"format must be one of {', '.join(FORMATS)}", field="format")
    return asked, _format(query.get("sampleRate") or ("8000" if asked == "l16" else "24000"), "sampleRate")


def _format(rate: str, field: str) -> AudioFormat:
    if not rate.isascii() or not rate.isdigit() or len(rate) > 6:
        raise BadRequest("the sample rate must be a whole number", field=field)
    try:
        return AudioFormat(Encoding.PCM_S16LE, int(rate))
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field=field) from None


def check_language(language: str | None, languages: tuple[str, ...]) -> None:
    """Raise BadRequest for a language that the engine does not speak; none at all is fine."""
    if not language:
        return
    primary = language.replace("_", "-").split("-")[0].lower()
    if primary not in {known.split("-")[0].lower() for known in languages}:
        raise BadRequest(f"this gateway speaks {', '.join(languages)} only", field="language")


def connect(fmt: AudioFormat) -> str:
    """The greeting."""
    data = {"sample_rate": fmt.rate, "base64_encoding": False}
    return msgspec.json.encode({"type": "connect", "data": data}).decode()


def failure(error: VoxwireError) -> str:
    """An error on the socket."""
    return msgspec.json.encode({"type": "error", **error_fields(error)}).decode()


def error_fields(error: VoxwireError) -> dict[str, str]:
    """``{error, code}``."""
    return {"error": said(error), "code": error.code}
