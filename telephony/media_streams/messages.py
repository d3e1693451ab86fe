"""Twilio's messages to us, as typed structs with Twilio's own field names.

Source: Twilio, "Media Streams - WebSocket Messages" (reference, telephony 1.1). Twilio sends all numbers as
strings; numbers are taken too. Unknown fields are ignored, so that Twilio may add some.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Connected",
    "Dtmf",
    "DtmfBody",
    "Head",
    "Mark",
    "MarkBody",
    "Media",
    "MediaBody",
    "MediaFormat",
    "Message",
    "Number",
    "Start",
    "StartBody",
    "Stop",
    "StopBody",
]

Number = str | int


class Head(msgspec.Struct):
    """What every message has."""

    event: str


class Connected(msgspec.Struct, tag_field="event", tag="connected"):
    """The first message."""

    protocol: str = "Call"
    version: str = "1.0.0"


class MediaFormat(msgspec.Struct):
    """Always mu-law, 8,000 Hz, one channel."""

    encoding: str = "audio/x-mulaw"
    sampleRate: Number = 8000
    channels: Number = 1


class StartBody(msgspec.Struct):
    """``start.start``."""

    accountSid: str = ""
    callSid: str = ""
    streamSid: str = ""
    tracks: list[str] = []
    customParameters: dict[str, str] = {}
    mediaFormat: MediaFormat = msgspec.field(default_factory=MediaFormat)


class Start(msgspec.Struct, tag_field="event", tag="start"):
    """The second message."""

    streamSid: str
    start: StartBody
    sequenceNumber: Number | None = None


class MediaBody(msgspec.Struct):
    """``media.media``; the payload is base64 on the wire."""

    payload: bytes
    track: str = "inbound"
    chunk: Number | None = None
    timestamp: Number | None = None


class Media(msgspec.Struct, tag_field="event", tag="media"):
    """20 ms of the caller."""

    streamSid: str
    media: MediaBody
    sequenceNumber: Number | None = None


class DtmfBody(msgspec.Struct):
    """``dtmf.dtmf``."""

    digit: str
    track: str = "inbound_track"


class Dtmf(msgspec.Struct, tag_field="event", tag="dtmf"):
    """A key pressed; only two-way streams send it."""

    streamSid: str
    dtmf: DtmfBody
    sequenceNumber: Number | None = None


class MarkBody(msgspec.Struct):
    """``mark.mark``."""

    name: str


class Mark(msgspec.Struct, tag_field="event", tag="mark"):
    """A mark of ours was played, or cleared."""

    streamSid: str
    mark: MarkBody
    sequenceNumber: Number | None = None


class StopBody(msgspec.Struct):
    """``stop.stop``."""

    accountSid: str = ""
    callSid: str = ""


class Stop(msgspec.Struct, tag_field="event", tag="stop"):
    """The last message."""

    streamSid: str
    stop: StopBody = msgspec.field(default_factory=StopBody)
    sequenceNumber: Number | None = None


Message = Connected | Start | Media | Dtmf | Mark | Stop
