"""Deepgram's speech protocol without I/O: queries and messages read, events worded.

Sources: protocols.md 1.4, the types of the vendor's SDK, and what unmodified clients send. Nothing of it
carries an id: which audio belongs to which words is told by order alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from gateway.fault import UNREADABLE, bad_request, reading, said
from sessions.events import AudioFormat, Encoding
from tts_core.engine import EngineInfo
from tts_core.errors import BadRequest, UnknownVoice, UnsupportedFormat, VoxwireError

ENCODINGS = {"linear16": Encoding.PCM_S16LE, "mulaw": Encoding.MULAW, "alaw": Encoding.ALAW}
"""What the socket carries."""
RATES = {Encoding.PCM_S16LE: 24000, Encoding.MULAW: 8000, Encoding.ALAW: 8000}
"""Sample rate where the query names none."""
FILES = {"mp3": ("mp3", 22050), "opus": ("opus", 48000), "flac": ("flac", 24000), "aac": ("aac", 22050)}
"""Further encodings of the HTTP route: our container and the vendor's rate."""
SPEEDS = (0.7, 1.5)

_MALE = frozenset({
    "alvaro", "angus", "apollo", "arcas", "aries", "atlas", "draco", "helios", "hermes", "hyperion",
    "jupiter", "mars", "neptune", "nestor", "odysseus", "orion", "orpheus", "perseus", "pluto", "saturn",
    "zeus",
})  # fmt: skip
"""Of the vendor's voices, those with a man's voice."""


class Message(msgspec.Struct, kw_only=True):
    """A message of the client."""

    type: str
    text: str | None = None


_decode = reading(msgspec.json.Decoder(Message).decode)
T = TypeVar("T")


def read(decode: Callable[[str | bytes], T], raw: str | bytes) -> T:
    """What a frame says; frames of bytes say nothing. BadRequest names the field at fault."""
    if isinstance(raw, bytes):
        raise BadRequest("messages are JSON text")
    try:
        return decode(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None


def parse(raw: str | bytes) -> Message:
    """Read a message. BadRequest names the field at fault."""
    message = read(_decode, raw)
    if message.type not in {"Speak", "Flush", "Clear", "Close", "KeepAlive"}:
        raise BadRequest("type must be Speak, Flush, Clear or Close", field="type")
    if message.type == "Speak" and message.text is None:
        raise BadRequest("text is needed", field="text")
    return message


class Body(msgspec.Struct, kw_only=True):
    """The body of an HTTP request."""

    text: str | None = None


_decode_body = reading(msgspec.json.Decoder(Body).decode)


def body_of(raw: bytes) -> str:
    """The text of an HTTP request. Raises BadRequest."""
    try:
        body = _decode_body(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None
    if not body.text:
        raise BadRequest("text is needed", field="text")
    return body.text


@dataclass(frozen=True, slots=True)
class Params:
    """What the query of an address asks for.

    ``container``: as ``gateway.encoding`` knows it; ``format``: of the audio that goes into it.
    """

    model: str
    format: AudioFormat
    container: str
    speed: float
    bitrate: int | None = None


def params_of(query: Mapping[str, str], *, file: bool = False) -> Params:
    """Read a query. ``file``: of the HTTP route, which has more encodings, and MP3 where none is named.

    Raises BadRequest and UnsupportedFormat naming the parameter; what we do not know is ignored.
    """
    encoding = query.get("encoding") or ("mp3" if file else "linear16")
    if encoding not in ENCODINGS and not (file and encoding in FILES):
        known = [*ENCODINGS, *(FILES if file else ())]
        raise UnsupportedFormat(f"encoding must be one of {', '.join(known)}", field="encoding")
    if encoding in ENCODINGS:
        kind = ENCODINGS[encoding]
        container, rate = "pcm", RATES[kind]
    else:
        kind = Encoding.PCM_S16LE
        container, rate = FILES[encoding]
    asked = query.get("container")
    if encoding in ENCODINGS and file and asked in {None, "", "wav"}:
        container = "wav"  # the vendor's choice for samples in a file
    elif asked not in {None, "", "none"} and not (file and encoding == "opus" and asked == "ogg"):
        raise UnsupportedFormat("this encoding has no such container here", field="container")
    try:
        fmt = AudioFormat(kind, _whole(query, "sample_rate", rate))
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field="sample_rate") from None
    low, high = SPEEDS
    speed = number(query, "speed", 1.0)
    if not low <= speed <= high:
        raise BadRequest(f"speed must be from {low} to {high}", field="speed")
    bitrate = _whole(query, "bit_rate", 0) if file else 0
    return Params(query.get("model", ""), fmt, container, speed, bitrate or None)


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise BadRequest(f"{name} must be a whole number", field=name)
    return int(value)


def number(query: Mapping[str, str], name: str, default: float) -> float:
    """A parameter that is a number. Raises BadRequest."""
    try:
        return float(query.get(name) or default)
    except ValueError:
        raise BadRequest(f"{name} must be a number", field=name) from None


def voice_for(model: str, info: EngineInfo, default: str, known: Sequence[str]) -> str:
    """The voice that a model name asks for, where it is none of ours.

    The vendor names a voice by its model, ``aura-2-thalia-en``: such names stand for a voice of ours of the
    same gender where there is one, in the language that they end in. The name of our own model is its default
    voice. Raises UnknownVoice.
    """
    name = model.lower()
    if not name or name in {info.name.lower(), f"{info.name}-1.0".lower(), "gepard-1.0"}:
        return default
    parts = name.split("-")
    if len(parts) < 3 or parts[0] not in {"aura", "flux"}:
        raise UnknownVoice("there is no voice of this name; GET /v1/voices lists them", field="model")
    if parts[-1] not in {language.split("-")[0].lower() for language in info.languages}:
        raise UnknownVoice(f"this gateway speaks {', '.join(info.languages)} only", field="model")
    gender = "male" if parts[-2] in _MALE else "female"
    ours = [v.id for v in info.voices if v.gender == gender and v.id in known]
    return ours[0] if ours else default


def _json(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


def metadata(request_id: str, model: str, info: EngineInfo) -> str:
    """The greeting."""
    return _json(
        type="Metadata",
        request_id=request_id,
        model_name=model or info.name,
        model_version=info.revision,
        model_uuid=model_uuid(info),
    )


def model_uuid(info: EngineInfo) -> str:
    """A UUID for the engine's model: the same for the same model."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"voxwire:{info.name}:{info.revision}"))


def flushed(sequence: int) -> str:
    """All audio of a flush has been sent."""
    return _json(type="Flushed", sequence_id=sequence)


def cleared(sequence: int) -> str:
    """What was waiting or being spoken is gone; all audio before this message is of before."""
    return _json(type="Cleared", sequence_id=sequence)


def warning(error: VoxwireError) -> str:
    """A message that was not taken. The SDK reads the first two fields, LiveKit and pipecat the last two."""
    words = said(error)
    return _json(type="Warning", description=words, code=error.code, warn_code=error.code, warn_msg=words)


def failure(error: VoxwireError, request_id: str) -> str:
    """What was asked could not be spoken, or no further."""
    words = said(error)
    return _json(
        type="Error", description=words, message=words, code=error.code, err_code=error.code, err_msg=words,
        request_id=request_id,
    )  # fmt: skip


def error_fields(error: VoxwireError, request_id: str) -> dict[str, Any]:
    """An HTTP error."""
    return {"err_code": error.code.upper(), "err_msg": said(error), "request_id": request_id}
