"""OpenAI's speech protocol without I/O: requests read and checked, events and errors worded.

Sources: the vendor's API reference for ``POST /v1/audio/speech`` and what its SDK, pipecat and LiveKit send
(protocols.md 1.5). Bodies carry fields of other servers' making; what we do not know is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pybase64 import b64encode_as_string

from gateway.fault import UNREADABLE, bad_request, reading
from sessions.events import AudioFormat, Encoding
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest, UnsupportedFormat, VoxwireError

FORMATS: dict[str, tuple[str, int]] = {
    "mp3": ("mp3", 24000),
    "opus": ("opus", 48000),
    "aac": ("aac", 24000),
    "flac": ("flac", 24000),
    "wav": ("wav", 24000),
    "pcm": ("pcm", 24000),
}
"""``response_format``: the container, and the rate (Hz) that the vendor has for it."""

VOICES = {
    "alloy": "female", "ash": "male", "ballad": "male", "cedar": "male", "coral": "female", "echo": "male",
    "fable": "male", "marin": "female", "nova": "female", "onyx": "male", "sage": "female",
    "shimmer": "female", "verse": "male",
}  # fmt: skip
"""The vendor's voices: pipecat refuses any other name by itself, so each of them speaks here."""

SPEEDS = (0.25, 4.0)


class Request(msgspec.Struct, kw_only=True):
    """The body of a speech request."""

    input: str | None = None
    model: str | None = None
    voice: Any = None
    response_format: str | None = None
    speed: float | None = None
    instructions: str | None = None
    stream_format: str | None = None


_decode = reading(msgspec.json.Decoder(Request).decode)


def parse(raw: str | bytes) -> Request:
    """Read and check a request. BadRequest and UnsupportedFormat name the field at fault."""
    try:
        request = _decode(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None
    if not request.input:
        raise BadRequest("input is needed: the text to speak", field="input")
    low, high = SPEEDS
    if request.speed is not None and not low <= request.speed <= high:
        raise BadRequest(f"speed must be from {low:g} to {high:g}", field="speed")
    if request.stream_format not in {None, "audio", "sse"}:
        raise BadRequest("stream_format must be audio or sse", field="stream_format")
    format_of(request)
    return request


def format_of(request: Request) -> tuple[str, AudioFormat]:
    """The container, and the audio that goes into it. Raises UnsupportedFormat."""
    asked = request.response_format or "mp3"
    if asked not in FORMATS:
        raise UnsupportedFormat(
            f"response_format must be one of {', '.join(FORMATS)}", field="response_format"
        )
    container, rate = FORMATS[asked]
    return container, AudioFormat(Encoding.PCM_S16LE, rate)


def voice_of(request: Request) -> str:
    """The name asked for: a name, or ``{"id": name}``; empty for the default voice."""
    voice = request.voice
    if voice is None:
        return ""
    if isinstance(voice, dict):
        voice = voice.get("id")
    if not isinstance(voice, str):
        raise BadRequest('voice must be a name or {"id": name}', field="voice")
    return voice


def stand_in(name: str, voices: Sequence[VoiceInfo], default: str) -> str | None:
    """The voice of ours for one of the vendor's names; None for another name.

    By gender, and each name of a gender another voice as far as there are some. Where there is none of the
    gender it is the default.
    """
    gender = VOICES.get(name)
    if gender is None:
        return None
    ours = [v.id for v in voices if v.gender == gender]
    if not ours:
        return default
    return ours[[n for n, g in VOICES.items() if g == gender].index(name) % len(ours)]


def delta(data: bytes) -> str:
    """A ``speech.audio.delta``."""
    return f'{{"type":"speech.audio.delta","audio":"{b64encode_as_string(data)}"}}'


def done(characters: int, seconds: float) -> str:
    """A ``speech.audio.done``. Tokens are the vendor's unit; here a character and 50 ms of audio stand in."""
    spent, made = characters, round(seconds * 20)
    usage = {"input_tokens": spent, "output_tokens": made, "total_tokens": spent + made}
    return msgspec.json.encode({"type": "speech.audio.done", "usage": usage}).decode()


def failed(error: VoxwireError) -> str:
    """An error after the stream has begun."""
    return msgspec.json.encode({"type": "error", **error_fields(error)}).decode()


_TYPES = {401: "invalid_request_error", 403: "permission_error", 404: "invalid_request_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def error_fields(error: VoxwireError) -> dict[str, Any]:
    """``{"error": {message, type, param, code}}``."""
    status = error.status
    kind = _TYPES.get(status)
    if kind is None:
        kind = (
            "rate_limit_error"
            if status == 429
            else "server_error"
            if status >= 500
            else "invalid_request_error"
        )
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.field,
            "code": _CODES.get(status, error.code),
        }
    }
