"""The ElevenLabs protocol without I/O: what a connection and its messages ask for, events worded.

Sources: the vendor's API reference and what unmodified clients send (protocols.md 0, 1.1, 1.2). Voice, model
and format belong to the connection; a context has a text and perhaps voice settings of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Struct
from pybase64 import b64encode_as_string

from gateway.fault import UNREADABLE, bad_request, reading, said, strings
from sessions.context import ContextOptions
from sessions.events import AudioFormat, Encoding
from tts_core.errors import (
    BadRequest,
    ContextIdle,
    Draining,
    LimitExceeded,
    Unauthorised,
    UnsupportedFormat,
    VoxwireError,
)
from tts_core.text.segment import TextMode

from .elevenlabs_alignment import Slice

DEFAULT_FORMAT = "mp3_44100_128"
DEFAULT_CONTEXT = "default"
"""The context of messages that name none."""
INACTIVITY_S = 20.0
MAX_INACTIVITY_S = 180.0
MAX_SCHEDULE = 500

_PCM = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
_MP3 = ((22050, 32), (24000, 48), (44100, 32), (44100, 64), (44100, 96), (44100, 128), (44100, 192))
_OPUS = (32, 64, 96, 128, 192)


@dataclass(frozen=True, slots=True)
class Output:
    """What an ``output_format`` means: container, the samples that go into it, bits a second."""

    container: str
    format: AudioFormat
    bitrate: int | None = None


FORMATS: Mapping[str, Output] = {
    **{f"pcm_{rate}": Output("pcm", AudioFormat(Encoding.PCM_S16LE, rate)) for rate in _PCM},
    "ulaw_8000": Output("pcm", AudioFormat(Encoding.MULAW, 8000)),
    "alaw_8000": Output("pcm", AudioFormat(Encoding.ALAW, 8000)),
    **{
        f"mp3_{rate}_{kbit}": Output("mp3", AudioFormat(Encoding.PCM_S16LE, rate), kbit * 1000)
        for rate, kbit in _MP3
    },
    **{
        f"opus_48000_{kbit}": Output("opus", AudioFormat(Encoding.PCM_S16LE, 48000), kbit * 1000)
        for kbit in _OPUS
    },
}
"""All formats, by the vendor's names."""


def format_of(name: str | None) -> Output:
    """The format of a name. Nothing is substituted: what we do not make is refused (protocols.md R30)."""
    found = FORMATS.get(name or DEFAULT_FORMAT)
    if found is None:
        raise UnsupportedFormat(f"output_format must be one of {', '.join(FORMATS)}", field="output_format")
    return found


# What a connection asks for


@dataclass(frozen=True, slots=True)
class Params:
    """A connection's query."""

    output: Output
    auto_mode: bool = False
    language: str = ""
    normalise: bool = True
    tags: bool | None = None
    inactivity_s: float = INACTIVITY_S
    sync_alignment: bool = False
    seed: int | None = None
    drain: bool | None = None


def params_of(query: Mapping[str, str]) -> Params:
    """Read a query; unknown names are left alone. BadRequest and UnsupportedFormat name the field."""
    policy = query.get("close_context_policy")
    if policy not in {None, "", "smart", "drain"}:
        raise BadRequest("close_context_policy must be smart or drain", field="close_context_policy")
    return Params(
        output=format_of(query.get("output_format")),
        auto_mode=bool(_flag(query, "auto_mode")),
        language=query.get("language_code", ""),
        normalise=normalise_of(query.get("apply_text_normalization")),
        tags=_flag(query, "enable_ssml_parsing"),
        inactivity_s=_inactivity(query.get("inactivity_timeout")),
        sync_alignment=bool(_flag(query, "sync_alignment")),
        seed=seed_of(query.get("seed")),
        drain=None if not policy else policy == "drain",
    )


def _flag(query: Mapping[str, str], name: str) -> bool | None:
    word = query.get(name, "").lower()
    if word not in {"", "true", "false", "1", "0"}:
        raise BadRequest(f"{name} must be true or false", field=name)
    return None if not word else word in {"true", "1"}


def _inactivity(value: str | None) -> float:
    if not value:
        return INACTIVITY_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= MAX_INACTIVITY_S:
        raise BadRequest(
            f"inactivity_timeout must be from 1 to {MAX_INACTIVITY_S:.0f} seconds", field="inactivity_timeout"
        )
    return seconds


def normalise_of(value: str | None) -> bool:
    """``apply_text_normalization``: auto, on or off."""
    if value not in {None, "", "auto", "on", "off"}:
        raise BadRequest("apply_text_normalization must be auto, on or off", field="apply_text_normalization")
    return value != "off"


def seed_of(value: str | int | None) -> int | None:
    """``seed``: 0 to 2^32 - 1."""
    if value is None or value == "":
        return None
    try:
        seed = int(value)
    except ValueError:
        seed = -1
    if not 0 <= seed < 1 << 32:
        raise BadRequest("seed must be from 0 to 4294967295", field="seed")
    return seed


def options_of(
    params: Params,
    base: ContextOptions,
    *,
    voice: str,
    languages: tuple[str, ...],
    speed: float = 1.0,
    mode: TextMode | None = None,
) -> ContextOptions:
    """A context's options. ``mode``: the one of ``auto_mode`` by default."""
    language = params.language.replace("_", "-").split("-")[0].lower()
    if language and language not in {known.split("-")[0].lower() for known in languages}:
        raise BadRequest(f"this voice speaks {', '.join(languages)} only", field="language_code")
    text = replace(
        base.text,
        mode=mode or (TextMode.SEGMENT if params.auto_mode else TextMode.DELTA),
        normalise=base.text.normalise and params.normalise,
        tags=base.text.tags if params.tags is None else params.tags,
    )
    return replace(
        base,
        voice=voice,
        format=params.output.format,
        speed=speed,
        seed=params.seed,
        text=text,
        idle_s=params.inactivity_s,
    )


# What a client says


class VoiceSettings(Struct, frozen=True):
    """``voice_settings``: the speed is acted on, the rest belongs to the vendor's voices and is taken."""

    speed: float | None = None
    stability: Any = None
    similarity_boost: Any = None
    style: Any = None
    use_speaker_boost: Any = None


class GenerationConfig(Struct, frozen=True):
    """``generation_config``."""

    chunk_length_schedule: list[float] | None = None


class Message(Struct, frozen=True, rename={"key": "xi-api-key"}):
    """Anything a client sends over a socket."""

    text: str | None = None
    context_id: str | None = None
    contextId: str | None = None
    flush: bool | None = None
    try_trigger_generation: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: VoiceSettings | None = None
    generation_config: GenerationConfig | None = None
    generator_config: GenerationConfig | None = None
    key: Any = None
    xi_api_key: Any = None
    authorization: Any = None

    @property
    def context(self) -> str:
        """The context that is meant."""
        return self.context_id or self.contextId or DEFAULT_CONTEXT

    @property
    def credential(self) -> str:
        """The key that a first message may carry."""
        given = next((k for k in (self.key, self.xi_api_key, self.authorization) if isinstance(k, str)), "")
        return given.removeprefix("Bearer ").strip()

    @property
    def speed(self) -> float | None:
        """The speed asked for; BadRequest for one that nobody could mean."""
        return speed_of(self.voice_settings)

    @property
    def schedule(self) -> tuple[int, ...] | None:
        """The chunk length schedule; None where none is given."""
        for config in (self.generation_config, self.generator_config):
            if config is not None and config.chunk_length_schedule:
                return _schedule(config.chunk_length_schedule)
        return None


def speed_of(settings: VoiceSettings | None) -> float | None:
    """``voice_settings.speed``."""
    speed = settings.speed if settings is not None else None
    if speed is not None and not 0.25 <= speed <= 4.0:
        raise BadRequest("speed must be from 0.25 to 4", field="voice_settings.speed")
    return speed


def _schedule(lengths: list[float]) -> tuple[int, ...]:
    if len(lengths) > 64 or not all(1 <= length <= MAX_SCHEDULE for length in lengths):
        raise BadRequest(
            f"a schedule has lengths from 1 to {MAX_SCHEDULE}",
            field="generation_config.chunk_length_schedule",
        )
    return tuple(int(length) for length in lengths)


_message = reading(msgspec.json.Decoder(Message).decode)


def parse(raw: str | bytes) -> Message:
    """Read a message. BadRequest names the field at fault."""
    if isinstance(raw, bytes):
        raise BadRequest("messages are JSON text")
    try:
        return _message(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None


def context_of(raw: str | bytes) -> str | None:
    """The context of a message that could not be read as a whole, for the error about it."""
    found = strings(raw, "context_id", "contextId")
    return found[0] or found[1]


class Body(Struct, frozen=True):
    """The body of a request over HTTP."""

    text: str
    model_id: str | None = None
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: int | None = None
    apply_text_normalization: str | None = None
    output_format: str | None = None


_body = reading(msgspec.json.Decoder(Body).decode)


def body_of(raw: bytes) -> Body:
    """Read a body. BadRequest names the field at fault."""
    try:
        return _body(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None


# What we say


def arrays(found: Slice | None) -> str:
    """An alignment as JSON."""
    if found is None:
        return "null"
    chars, starts, durations = (
        msgspec.json.encode(row).decode() for row in (found.chars, found.starts, found.durations)
    )
    return f'{{"chars":{chars},"charStartTimesMs":{starts},"charDurationsMs":{durations}}}'


def timestamps(found: Slice | None) -> dict[str, Any] | None:
    """An alignment as it is over HTTP, in seconds."""
    if found is None:
        return None
    return {
        "characters": found.chars,
        "character_start_times_seconds": [at / 1000 for at in found.starts],
        "character_end_times_seconds": [at / 1000 for at in found.ends()],
    }


class Wording:
    """Words the events of one context; of the only one where ``context_id`` is None."""

    def __init__(self, context_id: str | None) -> None:
        self._id = context_id
        self._tail = "" if context_id is None else f',"contextId":{msgspec.json.encode(context_id).decode()}'
        self._running = "null" if context_id is None else "false"

    def chunk(self, data: bytes, alignment: Slice | None) -> str:
        """Audio with its characters; characters alone where there is no audio left for them."""
        audio = f'"{b64encode_as_string(data)}"' if data else "null"
        chars = arrays(alignment)
        return (
            f'{{"audio":{audio},"isFinal":{self._running},"alignment":{chars},'
            f'"normalizedAlignment":{chars}{self._tail}}}'
        )

    def final(self) -> str:
        """The terminal message."""
        return f'{{"audio":null,"isFinal":true,"alignment":null,"normalizedAlignment":null{self._tail}}}'

    def error(self, error: VoxwireError, *, final: bool) -> str:
        """An error in band. ``final``: the context is over by it, which pipecat sees by ``isFinal`` alone."""
        fields: dict[str, Any] = error_fields(error)
        if final and self._id is not None:
            fields["isFinal"] = True
        if self._id is not None:
            fields["contextId"] = self._id
        return msgspec.json.encode(fields).decode()


def error_fields(error: VoxwireError) -> dict[str, Any]:
    """``{message, error, code}``; the code is that of the close which may follow."""
    return {"message": said(error), "error": status_of(error), "code": close_code(error)}


def status_of(error: VoxwireError) -> str:
    """The error's name; the vendor's own where clients know it."""
    if isinstance(error, ContextIdle):
        return "input_timeout_exceeded"
    if isinstance(error, Unauthorised):
        return "missing_permissions" if error.status == 403 else "invalid_api_key"
    return error.code


def close_code(error: VoxwireError) -> int:
    """The WebSocket close code of an error (RFC 6455, 7.4.1, and the registry for 1012 and 1013)."""
    if isinstance(error, Draining):
        return 1012
    if isinstance(error, LimitExceeded) and error.code != "max_active_conversations":
        return 1013
    return 1008 if error.status < 500 else 1011


def detail(error: VoxwireError) -> dict[str, Any]:
    """An error over HTTP."""
    return {"detail": {"status": status_of(error), "message": said(error)}}
