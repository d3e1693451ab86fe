"""The Cartesia protocol without I/O: requests read and checked, events worded.

Sources: the vendor's API reference and what unmodified clients send (protocols.md 0 and 1.3). Every message
to the client carries ``context_id``, errors too, and no ``type`` that clients do not know: pipecat indexes
the key.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Struct
from pybase64 import b64encode_as_string

from gateway.encoding import Encoder, open_encoder
from gateway.fault import UNREADABLE, bad_request, reading, said, strings
from sessions.context import ContextOptions
from sessions.events import AudioFormat, Encoding, Word
from tts_core.errors import BadRequest, UnsupportedFormat, VoxwireError
from tts_core.text.segment import TextMode

ENCODINGS = {
    "pcm_s16le": Encoding.PCM_S16LE,
    "pcm_f32le": Encoding.PCM_F32LE,
    "pcm_mulaw": Encoding.MULAW,
    "pcm_alaw": Encoding.ALAW,
}
DEFAULT_BUFFER_MS = 3000
MAX_BUFFER_MS = 5000
LEGACY_SPEEDS = {"slowest": 0.6, "slow": 0.8, "normal": 1.0, "fast": 1.2, "fastest": 1.5}


class OutputFormat(Struct, frozen=True):
    """``output_format``; ``container`` is raw, or wav and mp3 over HTTP."""

    container: str = "raw"
    encoding: str | None = None
    sample_rate: int | None = None
    bit_rate: int | None = None


class GenerationConfig(Struct, frozen=True):
    """``generation_config``; emotion is taken and not acted on."""

    speed: float | None = None
    volume: float | None = None
    emotion: Any = None


class Request(Struct, frozen=True, rename={"continue_": "continue"}):
    """A generation request, a cancel, or a piece of a context: the same shape for all."""

    context_id: str | None = None
    model_id: str | None = None
    transcript: str | None = None
    voice: Any = None
    output_format: OutputFormat | None = None
    language: str | None = None
    continue_: bool | None = None
    flush: bool | None = None
    cancel: bool | None = None
    max_buffer_delay_ms: int | None = None
    add_timestamps: bool | None = None
    add_phoneme_timestamps: bool | None = None
    use_normalized_timestamps: bool | None = None
    generation_config: GenerationConfig | None = None
    speed: Any = None


_decode = reading(msgspec.json.Decoder(Request).decode)


def parse(raw: str | bytes) -> Request:
    """Read a request. BadRequest names the field at fault."""
    try:
        return _decode(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None


def context_of(raw: str | bytes) -> str | None:
    """The context id of a message that could not be read as a whole, for the error about it."""
    return strings(raw, "context_id")[0]


def voice_of(request: Request) -> str:
    """The voice id asked for: ``{"mode": "id", "id": ...}`` or, in newer versions, the bare id."""
    voice = request.voice
    if isinstance(voice, str):
        return voice
    if isinstance(voice, dict):
        if voice.get("mode", "id") == "embedding" or "embedding" in voice:
            raise BadRequest("voices are named by id here; embeddings are not taken", field="voice.embedding")
        if isinstance(voice.get("id"), str):
            return str(voice["id"])
    raise BadRequest('voice must be {"mode": "id", "id": ...}', field="voice")


def format_of(request: Request, *, containers: tuple[str, ...] = ("raw",)) -> tuple[AudioFormat, str]:
    """Format and container. Nothing is substituted: what we do not make is refused (protocols.md R30)."""
    asked = request.output_format
    if asked is None:
        raise BadRequest("output_format is needed", field="output_format")
    if asked.container not in containers:
        raise UnsupportedFormat(
            f"container must be {' or '.join(containers)} here", field="output_format.container"
        )
    encoding = "pcm_s16le" if asked.container == "mp3" else asked.encoding or ""
    if not encoding and asked.container == "wav":
        encoding = "pcm_s16le"
    if encoding not in ENCODINGS:
        raise UnsupportedFormat(
            f"encoding must be one of {', '.join(ENCODINGS)}", field="output_format.encoding"
        )
    if asked.sample_rate is None:
        raise BadRequest("sample_rate is needed", field="output_format.sample_rate")
    try:
        return AudioFormat(ENCODINGS[encoding], asked.sample_rate), asked.container
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field="output_format.sample_rate") from None


def encoder_of(request: Request, fmt: AudioFormat, container: str) -> Encoder:
    """The encoder of an HTTP body. Raises UnsupportedFormat naming the container."""
    bitrate = request.output_format.bit_rate if request.output_format is not None else None
    try:
        return open_encoder("pcm" if container == "raw" else container, fmt, bitrate=bitrate)
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field="output_format.container") from None


def options_of(
    request: Request,
    base: ContextOptions,
    *,
    fmt: AudioFormat,
    voice: str,
    languages: tuple[str, ...],
    final: bool = False,
) -> ContextOptions:
    """The context's options. ``final``: the request holds the whole text (HTTP)."""
    _check_language(request.language, languages)
    delay = request.max_buffer_delay_ms
    if delay is not None and not 0 <= delay <= MAX_BUFFER_MS:
        raise BadRequest(
            f"max_buffer_delay_ms must be from 0 to {MAX_BUFFER_MS}", field="max_buffer_delay_ms"
        )
    delay = DEFAULT_BUFFER_MS if delay is None else delay
    # Buffering off: each message is a unit and neighbours get a separator; on: joined verbatim.
    mode = TextMode.FINAL if final else TextMode.SEGMENT if delay == 0 else TextMode.DELTA
    return replace(
        base,
        voice=voice,
        format=fmt,
        speed=_speed(request),
        volume=_volume(request),
        text=replace(base.text, mode=mode),
        hold_s=min(base.hold_s, delay / 1000) if delay else base.hold_s,
        max_buffer_delay_s=(delay or DEFAULT_BUFFER_MS) / 1000,
    )


def _check_language(language: str | None, languages: tuple[str, ...]) -> None:
    if not language:
        return
    primary = language.replace("_", "-").split("-")[0].lower()
    if primary not in {known.split("-")[0].lower() for known in languages}:
        raise BadRequest(f"this voice speaks {', '.join(languages)} only", field="language")


def _speed(request: Request) -> float:
    config = request.generation_config
    if config is not None and config.speed is not None:
        if not 0.6 <= config.speed <= 1.5:
            raise BadRequest("speed must be from 0.6 to 1.5", field="generation_config.speed")
        return config.speed
    legacy = request.speed
    if isinstance(legacy, str) and legacy in LEGACY_SPEEDS:
        return LEGACY_SPEEDS[legacy]
    if isinstance(legacy, int | float) and not isinstance(legacy, bool):
        if not -1 <= legacy <= 1.5:
            raise BadRequest("speed is out of range", field="speed")
        # Before 2025 the scale ran from -1 (slowest) over 0 (normal) to 1.
        return float(legacy) if legacy >= 0.6 else 1.0 + 0.4 * float(legacy)
    if legacy is None:
        return 1.0
    raise BadRequest(f"speed must be one of {', '.join(LEGACY_SPEEDS)} or a number", field="speed")


def _volume(request: Request) -> float:
    config = request.generation_config
    if config is None or config.volume is None:
        return 1.0
    if not 0.5 <= config.volume <= 2.0:
        raise BadRequest("volume must be from 0.5 to 2", field="generation_config.volume")
    return config.volume


class Wording:
    """Words the events of one context. Chunks are by template: they are most of the traffic."""

    def __init__(self, context_id: str | None) -> None:
        self.context_id = context_id
        self._id = msgspec.json.encode(context_id).decode()

    def chunk(self, data: bytes, step_ms: float) -> str:
        """A ``chunk``."""
        audio = b64encode_as_string(data)
        return (
            f'{{"type":"chunk","data":"{audio}","done":false,"status_code":206,'
            f'"step_time":{step_ms:.3f},"context_id":{self._id}}}'
        )

    def timestamps(self, words: tuple[Word, ...]) -> str:
        """Word ``timestamps``: seconds from the start of the context."""
        return self._json(
            type="timestamps",
            word_timestamps={
                "words": [w.text for w in words],
                "start": [round(w.start, 4) for w in words],
                "end": [round(w.end, 4) for w in words],
            },
            done=False,
            status_code=206,
        )

    def flush_done(self, flush_id: int) -> str:
        """A ``flush_done``."""
        return self._json(type="flush_done", flush_id=flush_id, flush_done=True, done=False, status_code=206)

    def done(self) -> str:
        """The terminal ``done``."""
        return self._json(type="done", done=True, status_code=200)

    def error(self, error: VoxwireError, request_id: str = "", *, done: bool = True) -> str:
        """An ``error`` that readers of the older and of the newer shape both understand.

        ``done``: the context has ended by it; otherwise it refused one message.
        """
        return self._json(type="error", done=done, **error_fields(error, request_id))

    def _json(self, **fields: Any) -> str:
        return msgspec.json.encode({**fields, "context_id": self.context_id}).decode()


def error_fields(error: VoxwireError, request_id: str = "") -> dict[str, Any]:
    """The union of both error shapes: ``{error, status_code}`` and ``{title, message, error_code, ...}``."""
    message = said(error)
    fields: dict[str, Any] = {
        "error": message,
        "status_code": error.status,
        "title": error.code.replace("_", " ").capitalize(),
        "message": message,
        "error_code": error.code,
        "doc_url": "",
        "request_id": request_id or str(uuid.uuid4()),
    }
    if error.retry_after is not None:
        fields["retry_after"] = error.retry_after
    return fields
