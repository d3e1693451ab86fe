"""Wyoming's events as bytes, both ways. Without I/O.

Source: the protocol's own package, ``wyoming`` 1.10 (``event.py``, ``tts.py``, ``info.py``). An event is a
line of JSON (``type``, perhaps ``data``, ``data_length``, ``payload_length``), then ``data_length`` bytes of
JSON whose members win over those of ``data``, then ``payload_length`` raw bytes. We write what that package
writes for the same event, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from gateway.fault import UNREADABLE, bad_request, reading, said
from tts_core.engine import EngineInfo, VoiceInfo
from tts_core.errors import BadRequest, TextTooLong, UnknownVoice, VoxwireError

VERSION = "1.10.2"
"""The protocol's, of the package that we follow."""
WIDTH = 2
CHANNELS = 1
SHORT = 1 << 16
"""Bytes of data that are read whatever they are; a million brackets would hold up everybody else."""
SPEAKER = "#"
"""Parts the name of a voice from that of one of its speakers in our ids."""

_DUMP = json.JSONEncoder(ensure_ascii=False).encode


class Broken(BadRequest):
    """Bytes that are no event: where the next one begins is unknown, so the connection ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest parts of an event that are taken, in bytes: looked at before anything is parsed."""

    line: int = 1 << 16
    data: int = 1 << 20
    payload: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """One event. A payload of a client's is not kept: no event that we know has one."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""


class _Head(msgspec.Struct):
    type: Annotated[str, msgspec.Meta(max_length=256)]
    data: dict[str, Any] | None = None
    data_length: Annotated[int, msgspec.Meta(ge=0)] | None = None
    payload_length: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _Long(msgspec.Struct):
    """Of a long block of data the members that mean something; what else it has is passed over unread."""

    text: msgspec.Raw = msgspec.Raw()
    voice: msgspec.Raw = msgspec.Raw()
    text_format: msgspec.Raw = msgspec.Raw()


_head = reading(msgspec.json.Decoder(_Head).decode)
_short = reading(msgspec.json.Decoder(dict[str, Any]).decode)
_long = reading(msgspec.json.Decoder(_Long).decode)


def _data(raw: bytes) -> dict[str, Any]:
    """A block of data: of one beyond SHORT only a string may be long, which takes no time to read.

    Raises BadRequest, and one of ``UNREADABLE``.
    """
    if len(raw) <= SHORT:
        return _short(raw)
    members = msgspec.structs.asdict(_long(raw))
    values = {}
    for name, member in members.items():
        value = bytes(member)
        if len(value) > SHORT and not value.startswith(b'"'):
            raise BadRequest(f"{name} is too large", field=name)
        if value:
            values[name] = msgspec.json.decode(value)
    return values


class Reader:
    """Events out of bytes that come in pieces; holds no more than one line and one block of data."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._buffer = bytearray()
        self._looked = 0
        self._head: _Head | None = None
        self._item: Event | BadRequest | None = None
        self._skip = 0

    @property
    def within(self) -> bool:
        """Whether an event has begun and is not complete."""
        return bool(self._buffer) or self._head is not None or self._item is not None

    def feed(self, data: bytes) -> list[Event | BadRequest]:
        """Take bytes; the events that they complete, and errors in the place of those with bad data.

        Raises:
            Broken: they are no event, or one beyond the limits. What came before in ``data`` is lost: whoever
                sends such things is told and cut off.
        """
        self._buffer += data
        found: list[Event | BadRequest] = []
        while (item := self._next()) is not None:
            found.append(item)
        return found

    def _next(self) -> Event | BadRequest | None:
        if self._item is None:
            head = self._head = self._head or self._line()
            if head is None or len(self._buffer) < (head.data_length or 0):
                return None
            self._head = None
            self._item = self._read(head)
            self._skip = head.payload_length or 0
        gone = min(self._skip, len(self._buffer))
        del self._buffer[:gone]
        self._skip -= gone
        if self._skip:
            return None
        item, self._item = self._item, None
        return item

    def _line(self) -> _Head | None:
        """The next head; None while it is not complete."""
        limits = self._limits
        if self._buffer[:1].isspace():  # blank lines, all at once: there may be many
            self._buffer = self._buffer.lstrip()
        end = self._buffer.find(b"\n", self._looked)
        if end > limits.line or (end < 0 and len(self._buffer) > limits.line):
            raise Broken(f"a line has at most {limits.line} bytes")
        if end < 0:
            self._looked = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._looked = 0
        try:
            head = _head(line)
        except UNREADABLE as error:
            fault = bad_request(error)
            raise Broken(fault.message, field=fault.field) from None
        if (head.data_length or 0) > limits.data:
            raise Broken(f"data has at most {limits.data} bytes", field="data_length")
        if (head.payload_length or 0) > limits.payload:
            raise Broken(f"a payload has at most {limits.payload} bytes", field="payload_length")
        return head

    def _read(self, head: _Head) -> Event | BadRequest:
        """The event of a head whose data is in the buffer."""
        size = head.data_length or 0
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        values = dict(head.data or {})
        if size:
            try:
                values |= _data(raw)
            except UNREADABLE as error:
                # Where the event ends is known all the same: the connection goes on.
                fault = bad_request(error)
                return BadRequest(f"in the data: {fault.message}", field=fault.field)
            except BadRequest as fault:
                return fault
        return Event(head.type, values)


def encode(kind: str, data: Mapping[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """One event as bytes."""
    packed = _DUMP(dict(data)).encode() if data else b""
    head: dict[str, Any] = {"type": kind, "version": VERSION}
    if packed:
        head["data_length"] = len(packed)
    if payload:
        head["payload_length"] = len(payload)
    return b"".join((_DUMP(head).encode(), b"\n", packed, payload))


# -- what a client asks ------------------------------------------------------------------------------------


class Voice(msgspec.Struct):
    """Whom to speak as: a name from our list, perhaps one of its speakers, or else a language."""

    name: str | None = None
    language: str | None = None
    speaker: str | None = None

    @property
    def id(self) -> str:
        """Our id of it; empty where only a language is named, or nothing."""
        return f"{self.name}{SPEAKER}{self.speaker}" if self.name and self.speaker else self.name or ""


class Ping(msgspec.Struct):
    """``ping``."""

    text: str | None = None


class Start(msgspec.Struct):
    """``synthesize-start``; also what ``synthesize`` says besides its text."""

    voice: Voice | None = None
    text_format: str | None = None


class Text(msgspec.Struct):
    """``synthesize-chunk``; also the text of ``synthesize``."""

    text: str


FORMATS = (None, "text", "ssml")
T = TypeVar("T")


def read(event: Event, kind: type[T]) -> T:
    """The data of an event as ``kind``. Raises BadRequest naming the field."""
    try:
        made = msgspec.convert(event.data, kind)
    except msgspec.ValidationError as error:
        raise bad_request(error) from None
    if isinstance(made, Start) and made.text_format not in FORMATS:
        raise BadRequest("text_format must be text or ssml", field="text_format")
    return made


def text_of(event: Event, most: int) -> str:
    """The text of a ``synthesize`` or ``synthesize-chunk``. Raises BadRequest, TextTooLong."""
    text = read(event, Text).text
    if len(text) > most:
        raise TextTooLong(f"text has at most {most} characters", field="text")
    return text


def for_language(language: str, voices: list[VoiceInfo], default: str) -> str:
    """The id of a voice for a language tag ("de", "de-DE", "de_DE"): ``default`` where that speaks it.

    Raises UnknownVoice where none does.
    """
    wanted = language.replace("_", "-").lower()
    ordered = sorted(voices, key=lambda v: v.id != default)
    for same in (str, lambda tag: tag.partition("-")[0]):
        for voice in ordered:
            if same(voice.language.lower()) == same(wanted):
                return voice.id
    known = ", ".join(sorted({v.language for v in voices}))
    raise UnknownVoice(f"no voice speaks this language; there are {known}", field="voice.language")


# -- what we say -------------------------------------------------------------------------------------------


def info(engine: EngineInfo, voices: list[VoiceInfo]) -> bytes:
    """The answer to ``describe``: one program for speech, with these voices."""
    speakers: dict[str, list[str]] = {}
    named: dict[str, VoiceInfo] = {}
    for voice in voices:
        name, _, speaker = voice.id.partition(SPEAKER)
        named.setdefault(name, voice)
        if speaker:
            speakers.setdefault(name, []).append(speaker)
    ours = {"attribution": {"name": "Voxwire", "url": ""}, "installed": True}
    listed = [
        {
            "name": name,
            **ours,
            "description": voice.name,
            "version": engine.revision,
            "languages": [voice.language],
            "speakers": [{"name": s} for s in speakers[name]] if name in speakers else None,
        }
        for name, voice in named.items()
    ]
    program = {
        "name": "voxwire",
        **ours,
        "description": f"Voxwire ({engine.name})",
        "version": engine.revision,
        "voices": listed,
        "supports_synthesize_streaming": True,
    }
    others = ("asr", "tts", "handle", "intent", "wake", "mic", "snd")
    return encode("info", {kind: [program] if kind == "tts" else [] for kind in others})


def pong(text: str | None) -> bytes:
    """The answer to ``ping``."""
    return encode("pong", {"text": text})


def ours(raised: Exception) -> VoxwireError:
    """Any failure in our words."""
    return raised if isinstance(raised, VoxwireError) else VoxwireError("something failed in the gateway")


def error(fault: VoxwireError) -> bytes:
    """An ``error``, in our words."""
    return encode("error", {"text": said(fault), "code": fault.code})


class Wording:
    """The events of one stream of audio, mono s16le of ``rate`` Hz."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._format = f'{{"rate": {rate}, "width": {WIDTH}, "channels": {CHANNELS}, "timestamp": '.encode()

    def start(self) -> bytes:
        """``audio-start``."""
        return self._event("audio-start", 0)

    def chunk(self, audio: bytes, start_sample: int) -> bytes:
        """``audio-chunk``; ``start_sample`` of the stream is where it begins."""
        return self._event("audio-chunk", start_sample, audio)

    def stop(self, samples: int) -> bytes:
        """``audio-stop`` after so many samples."""
        return encode("audio-stop", {"timestamp": samples * 1000 // self.rate})

    def _event(self, kind: str, sample: int, audio: bytes = b"") -> bytes:
        # By template: this is what nearly all bytes are wrapped in.
        data = b"%s%d}" % (self._format, sample * 1000 // self.rate)
        payload = f', "payload_length": {len(audio)}' if audio else ""
        head = f'{{"type": "{kind}", "version": "{VERSION}", "data_length": {len(data)}{payload}}}\n'
        return b"".join((head.encode(), data, audio))


STOPPED = encode("synthesize-stopped")
