"""Twilio Media Streams, the whole wire protocol both ways, without I/O.

Twilio connects to us and sends ``connected``, ``start``, then ``media`` each 20 ms, ``dtmf``, ``mark`` and at
last ``stop``; we send ``media``, ``mark`` and ``clear``, and nothing else is legal (reference, telephony
1.1).

What is refused (:class:`~tts_core.errors.PeerViolation`): text that is not a JSON object with an ``event``, a
known event without its fields, another stream's id, a second ``start`` that differs, a format other than
mu-law 8 kHz mono, a one-way stream. What is tolerated and counted in :attr:`Protocol.warnings`: events we do
not know, messages out of place, gaps and steps back in the numbering, empty audio, a payload that is not
base64.

*One-way streams.* ``<Start><Stream>`` only listens: what we send is an error and the caller hears nothing
(pipecat#2157). Its ``start`` message shows it if it names any track but ``inbound``, for
``<Connect><Stream>`` never has another. With the inbound track alone the two look the same; then only silence
on a mark tells (the driver sends one at the start).
"""

from __future__ import annotations

from binascii import b2a_base64
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from telephony.media_streams import messages, shapes
from tts_core.errors import LegError, PeerViolation

__all__ = [
    "Connected",
    "Dtmf",
    "Event",
    "MarkPlayed",
    "Media",
    "Protocol",
    "Started",
    "Stopped",
    "Warned",
]

MAX_MESSAGE = 1 << 16
"""Longest message taken, in characters: 20 ms of audio are about 300."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The socket speaks the protocol."""

    version: str


@dataclass(frozen=True, slots=True)
class Started:
    """The stream has begun. ``custom_parameters``: what the TwiML's ``<Parameter>`` elements said."""

    stream_sid: str
    call_sid: str
    account_sid: str
    custom_parameters: dict[str, str] = field(default_factory=dict)
    tracks: tuple[str, ...] = ("inbound",)
    encoding: str = "mulaw"
    rate: int = 8000


@dataclass(frozen=True, slots=True)
class Media:
    """The caller's audio: mu-law, 8 kHz. ``timestamp_ms``: milliseconds since the start; -1 where missing."""

    seq: int
    chunk: int
    timestamp_ms: int
    payload: bytes
    track: str = "inbound"


@dataclass(frozen=True, slots=True)
class Dtmf:
    """The caller pressed a key: one of ``0-9*#A-D``."""

    digit: str


@dataclass(frozen=True, slots=True)
class MarkPlayed:
    """A mark came back: played, or pending when we cleared. ``name``: as on the wire."""

    name: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stream has ended; no audio goes either way any more."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something tolerated was seen for the first time on this stream. ``kind``: key of ``warnings``."""

    kind: str
    detail: str


Event = Connected | Started | Media | Dtmf | MarkPlayed | Stopped | Warned

_MESSAGE = msgspec.json.Decoder(messages.Message)
_HEAD = msgspec.json.Decoder(messages.Head)
_KNOWN = frozenset({"connected", "start", "media", "dtmf", "mark", "stop"})
_DIGITS = frozenset("0123456789*#ABCD")
_MISSING = -1


class Protocol:
    """One stream. Feed it text with :meth:`receive_text`; make messages with :meth:`media` and its kin."""

    def __init__(self) -> None:
        self.warnings: Counter[str] = Counter()
        self.connected = False
        self.started: Started | None = None
        self.stopped = False
        self.two_way = False  # proven: only two-way streams send keys and marks
        self.lost = 0  # messages missing in the numbering
        self._sequence = 0
        self._messages: shapes.Messages | None = None

    def receive_text(self, text: str) -> list[Event]:
        """Take one text message and return what it says, in order; perhaps nothing.

        Raises PeerViolation as listed above; the stream should then be closed.
        """
        if len(text) > MAX_MESSAGE:
            raise PeerViolation("the message is too long")
        try:
            message = _MESSAGE.decode(text)
        except msgspec.DecodeError as error:  # covers ValidationError
            return self._unreadable(text, error)
        except UnicodeEncodeError:  # half a surrogate pair, which no UTF-8 holds
            raise PeerViolation("a message must be JSON") from None
        if self.stopped:
            return self._warn("after_stop", "a message came after stop")
        if isinstance(message, messages.Media):
            return self._media(message)
        return self._control(message)

    def media(self, payload: bytes) -> str:
        """Return the message that plays ``payload`` (mu-law, 8 kHz). Raises LegError before ``start``."""
        return self._out().media(b2a_base64(payload, newline=False).decode("ascii"))

    def mark(self, name: str) -> str:
        """Return the message that asks for ``name`` back when what was sent has played. Raises LegError."""
        return self._out().mark(name)

    def clear(self) -> str:
        """Return the message that drops what has not played; pending marks come back. Raises LegError."""
        return self._out().clear()

    def _out(self) -> shapes.Messages:
        if self._messages is None or self.stopped:
            raise LegError("the stream is not running")
        return self._messages

    def _unreadable(self, text: str, error: msgspec.DecodeError) -> list[Event]:
        try:
            head = _HEAD.decode(text)
        except msgspec.ValidationError:
            raise PeerViolation("a message must be a JSON object with an event") from None
        except msgspec.DecodeError:
            raise PeerViolation("a message must be JSON") from None
        if head.event not in _KNOWN:
            return self._warn("unknown_event", "an event we do not know was ignored")
        if head.event == "media" and "base64" in str(error):
            return self._warn("bad_payload", "audio that is not base64 was dropped")
        raise PeerViolation(f"a {head.event} message lacks a field or has it in another type")

    def _control(self, message: messages.Message) -> list[Event]:
        if isinstance(message, messages.Connected):
            return self._connected(message)
        if isinstance(message, messages.Start):
            return self._start(message)
        if self.started is None:
            return self._warn("before_start", "a message came before start and was dropped")
        events = self._check(message.streamSid, message.sequenceNumber)
        if isinstance(message, messages.Mark):
            self.two_way = True
            events.append(MarkPlayed(message.mark.name))
        elif isinstance(message, messages.Dtmf):
            self.two_way = True
            if message.dtmf.digit in _DIGITS:
                events.append(Dtmf(message.dtmf.digit))
            else:
                events += self._warn("bad_digit", "a key that no telephone has")
        else:
            self.stopped = True
            events.append(Stopped())
        return events

    def _connected(self, message: messages.Connected) -> list[Event]:
        if self.connected:
            return self._warn("duplicate_connected", "connected came twice")
        if message.protocol != "Call":
            raise PeerViolation("the peer speaks another protocol than Call")
        events: list[Event] = []
        if message.version.split(".")[0] != "1":
            events = self._warn("version", "the peer speaks another version of the protocol than 1")
        self.connected = True
        return [*events, Connected(message.version)]

    def _start(self, message: messages.Start) -> list[Event]:
        started = _started(message)
        if self.started is not None:
            if started != self.started:
                raise PeerViolation("a second, different start on one socket")
            return self._warn("duplicate_start", "start came twice")
        events: list[Event] = []
        if not self.connected:
            events = self._warn("order", "start came before connected")
        if not started.tracks:
            events += self._warn("no_tracks", "start names no tracks")
        try:
            self._messages = shapes.Messages(shapes.TWILIO, started.stream_sid)
        except LegError:
            raise PeerViolation("the stream id is not a plain word") from None
        self.started = started
        events += self._number(message.sequenceNumber)
        return [*events, started]

    def _media(self, message: messages.Media) -> list[Event]:
        if self.started is None:
            return self._warn("before_start", "a message came before start and was dropped")
        events = self._check(message.streamSid, message.sequenceNumber)
        body = message.media
        if body.track != "inbound":
            raise _one_way()
        if not body.payload:
            return events + self._warn("empty_media", "a media message without audio")
        media = Media(
            seq=self._sequence,
            chunk=_integer(body.chunk, "chunk"),
            timestamp_ms=_integer(body.timestamp, "timestamp"),
            payload=body.payload,
        )
        events.append(media)
        return events

    def _check(self, stream_sid: str, sequence: messages.Number | None) -> list[Event]:
        if self.started is None or stream_sid != self.started.stream_sid:
            raise PeerViolation("a message of another stream")
        return self._number(sequence)

    def _number(self, value: messages.Number | None) -> list[Event]:
        number = _integer(value, "sequenceNumber")
        if number == _MISSING:
            return self._warn("no_sequence", "a message without a sequence number")
        expected, previous = self._sequence + 1, self._sequence
        if number == expected or not previous:
            self._sequence = number
            return []
        if number <= previous:
            return self._warn("sequence_back", "the numbering went back")
        self.lost += number - expected
        self._sequence = number
        return self._warn("sequence_gap", "messages are missing in the numbering")

    def _warn(self, kind: str, detail: str) -> list[Event]:
        self.warnings[kind] += 1
        return [Warned(kind, detail)] if self.warnings[kind] == 1 else []


def _started(message: messages.Start) -> Started:
    body = message.start
    form = body.mediaFormat
    rate, channels = _integer(form.sampleRate, "sampleRate"), _integer(form.channels, "channels")
    if form.encoding != "audio/x-mulaw" or rate != 8000 or channels != 1:
        raise PeerViolation("the stream must be audio/x-mulaw at 8000 Hz, one channel")
    if body.streamSid and body.streamSid != message.streamSid:
        raise PeerViolation("start names two streams")
    if any(track != "inbound" for track in body.tracks):
        raise _one_way()
    return Started(
        stream_sid=message.streamSid,
        call_sid=body.callSid,
        account_sid=body.accountSid,
        custom_parameters=body.customParameters,
        tracks=tuple(body.tracks),
    )


def _one_way() -> PeerViolation:
    return PeerViolation(
        "this is a one-way stream: the caller would hear nothing; use <Connect><Stream>, not <Start><Stream>"
    )


def _integer(value: messages.Number | None, name: str) -> int:
    """Read a number that Twilio sends as a string; -1 where missing. Raises PeerViolation."""
    if value is None:
        return _MISSING
    if isinstance(value, int):
        if value >= 0:
            return value
    elif value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    raise PeerViolation(f"{name} is not a number")
