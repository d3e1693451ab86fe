"""The wire shapes of the media-stream family, as tables.

What differs between Twilio and the vendors that followed it is the names of events and fields and which of
them carry the stream's id. The *outgoing* side is a template per message, filled by concatenation (a tenth of
the cost of ``json.dumps`` per frame); the *incoming* side is a table of names.

``TWILIO`` is what ``protocol`` and ``driver`` speak. The others are written down from the vendors' pages
(reference, telephony 1.2 to 1.6) and only their outgoing messages are made and tested here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tts_core.errors import LegError

__all__ = ["EXOTEL", "PLIVO", "SHAPES", "SIGNALWIRE", "TELNYX", "TWILIO", "Incoming", "Messages", "Shape"]

_STREAM = "\x00stream"
_VALUE = "\x00value"


@dataclass(frozen=True, slots=True)
class Incoming:
    """Names in what the vendor sends. ``None``: it has no such thing.

    ``media_format``: where in ``start`` the format stands. ``mark``: the event that confirms a mark and the
    path to its name. ``ordered``: whether messages come in order.
    """

    sequence: str | None
    stream: str
    call: tuple[str, ...]
    parameters: tuple[str, ...]
    media_format: tuple[str, ...] | None
    mark: tuple[tuple[str, ...], tuple[str, ...]]
    cleared: str | None = None
    ordered: bool = True


@dataclass(frozen=True)
class Shape:
    """One vendor. Outgoing messages are objects with placeholders for the stream id and the one value."""

    name: str
    media: dict[str, Any]
    mark: dict[str, Any]
    clear: dict[str, Any]
    incoming: Incoming


class Messages:
    """Makes one stream's messages. Raises LegError for a stream id that would need escaping."""

    __slots__ = ("_clear", "_mark", "_media")

    def __init__(self, shape: Shape, stream: str) -> None:
        if not stream or len(stream) > 128 or not stream.replace("-", "").replace("_", "").isalnum():
            raise LegError("the stream id is not a plain word")
        self._media = _template(shape.media, stream)
        self._mark = _template(shape.mark, stream)
        (self._clear,) = _template(shape.clear, stream)

    def media(self, base64_payload: str) -> str:
        """Return the message for audio that is base64 already."""
        prefix, suffix = self._media
        return prefix + base64_payload + suffix

    def mark(self, name: str) -> str:
        """Return the message for a mark of any name."""
        prefix, suffix = self._mark
        return prefix + msgspec.json.encode(name).decode()[1:-1] + suffix

    def clear(self) -> str:
        """Return the message that empties the peer's buffer."""
        return self._clear


def _template(message: dict[str, Any], stream: str) -> tuple[str, ...]:
    text = msgspec.json.encode(message).decode()
    text = text.replace(msgspec.json.encode(_STREAM).decode()[1:-1], stream)
    return tuple(text.split(msgspec.json.encode(_VALUE).decode()[1:-1]))


TWILIO = Shape(
    name="twilio",
    media={"event": "media", "streamSid": _STREAM, "media": {"payload": _VALUE}},
    mark={"event": "mark", "streamSid": _STREAM, "mark": {"name": _VALUE}},
    clear={"event": "clear", "streamSid": _STREAM},
    incoming=Incoming(
        sequence="sequenceNumber",
        stream="streamSid",
        call=("start", "callSid"),
        parameters=("start", "customParameters"),
        media_format=("start", "mediaFormat"),
        mark=(("mark",), ("mark", "name")),
    ),
)

SIGNALWIRE = Shape("signalwire", TWILIO.media, TWILIO.mark, TWILIO.clear, TWILIO.incoming)

TELNYX = Shape(
    name="telnyx",
    media={"event": "media", "media": {"payload": _VALUE}},
    mark={"event": "mark", "mark": {"name": _VALUE}},
    clear={"event": "clear"},
    incoming=Incoming(
        sequence="sequence_number",
        stream="stream_id",
        call=("start", "call_control_id"),
        parameters=("start", "custom_parameters"),
        media_format=("start", "media_format"),
        mark=(("mark",), ("mark", "name")),
        ordered=False,
    ),
)

PLIVO = Shape(
    name="plivo",
    media={
        "event": "playAudio",
        "streamId": _STREAM,
        "media": {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": _VALUE},
    },
    mark={"event": "checkpoint", "streamId": _STREAM, "name": _VALUE},
    clear={"event": "clearAudio", "streamId": _STREAM},
    # The vendor's own pages name the confirmation both ways: take either (reference, telephony 7).
    incoming=Incoming(
        sequence="sequenceNumber",
        stream="streamId",
        call=("start", "callId"),
        parameters=("extra_headers",),
        media_format=("start", "mediaFormat"),
        mark=(("playedStream", "played"), ("name",)),
        cleared="clearedAudio",
    ),
)

EXOTEL = Shape(
    name="exotel",
    media={"event": "media", "stream_sid": _STREAM, "media": {"payload": _VALUE}},
    mark={"event": "mark", "stream_sid": _STREAM, "mark": {"name": _VALUE}},
    clear={"event": "clear", "stream_sid": _STREAM},
    incoming=Incoming(
        sequence="sequence_number",
        stream="stream_sid",
        call=("start", "call_sid"),
        parameters=("start", "custom_parameters"),
        media_format=("start", "media_format"),
        mark=(("mark",), ("mark", "name")),
    ),
)

SHAPES = {shape.name: shape for shape in (TWILIO, SIGNALWIRE, TELNYX, PLIVO, EXOTEL)}
