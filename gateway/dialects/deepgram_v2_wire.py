"""Deepgram's turn-based speech protocol without I/O: what is read, what is told, how a client counts audio.

Sources: the types of the vendor's SDK, its pages on client messages, server messages, the states of a turn
and interruption, and what LiveKit's and pipecat's clients send and read.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from gateway.fault import reading, said
from sessions.events import Heard
from tts_core.engine import EngineInfo
from tts_core.errors import BadRequest, TextTooLong, VoxwireError

from . import deepgram_wire as v1

SPEEDS = (0.5, 1.5)
SPEED_STEP = 0.05
EXPRESSIVITY = (-2, 2)
_EXACT = 2**53
"""Beyond it a number of JSON is not exact."""

NO_ACTIVE_SPEECH = ("NO_ACTIVE_SPEECH", "no turn is under way: there is nothing to flush or to interrupt")
NO_AUDIO_GENERATED = ("NO_AUDIO_GENERATED", "nothing has been spoken yet: there is nothing to interrupt")
NO_SYNTHESIZABLE_TEXT = ("NO_SYNTHESIZABLE_TEXT", "the text of the turn has nothing that can be spoken")
INVALID_INTERRUPT_OFFSET = (
    "INVALID_INTERRUPT_OFFSET",
    "playback_offset must lie after the position of the interrupt before; it counts from the session's start",
)
EXPRESSIVITY_IGNORED = ("EXPRESSIVITY_NOT_SUPPORTED", "this voice has one delivery; expressivity is ignored")


class InvalidCommand(BadRequest):
    """A message of a type, or with an offset of a type, that the protocol has not."""


class ControlRefused(BadRequest):
    """A speed or expressivity that cannot be had, with the vendor's code for it."""

    def __init__(self, reason: str, message: str, field: str, value: float | None = None) -> None:
        super().__init__(message, field=field)
        self.reason, self.value = reason, value


class Offset(msgspec.Struct, kw_only=True):
    """Milliseconds of the session's audio that the client has played."""

    type: str = "time_ms"
    value: Annotated[float, msgspec.Meta(ge=-_EXACT, le=_EXACT)]


class Message(msgspec.Struct, kw_only=True):
    """A message of the client."""

    type: str
    text: str | None = None
    playback_offset: Offset | None = None
    speed: float | None = None

    @property
    def offset_ms(self) -> int | None:
        """The playback offset in whole milliseconds."""
        return None if self.playback_offset is None else math.floor(self.playback_offset.value)


_decode = reading(msgspec.json.Decoder(Message).decode)


def parse(raw: str | bytes) -> Message:
    """Read a message. BadRequest names the field at fault; InvalidCommand where its type is none of ours."""
    message = v1.read(_decode, raw)
    if message.type not in {"Speak", "Flush", "Interrupt", "Configure", "Close"}:
        raise InvalidCommand("type must be Speak, Flush, Interrupt, Configure or Close", field="type")
    if message.type == "Speak" and message.text is None:
        raise BadRequest("text is needed", field="text")
    offset = message.playback_offset
    if message.type == "Interrupt" and offset is not None and offset.type != "time_ms":
        raise InvalidCommand("the offset is told in time_ms", field="playback_offset.type")
    return message


def params_of(query: Mapping[str, str], info: EngineInfo, *, file: bool = False) -> v1.Params:
    """Read a query. Raises as version 1's, and ControlRefused for a speed or expressivity not to be had."""
    params = v1.params_of({name: value for name, value in query.items() if name != "speed"}, file=file)
    expressivity_of(query)
    return replace(params, speed=speed_of(v1.number(query, "speed", 1.0), info))


def expressivity_of(query: Mapping[str, str]) -> int:
    """How lively the client wants the voice, 0 where it does not say. Raises ControlRefused, BadRequest."""
    value = v1.number(query, "expressivity", 0)
    low, high = EXPRESSIVITY
    if not low <= value <= high:
        raise ControlRefused(
            "EXPRESSIVITY_OUT_OF_RANGE", f"expressivity must be from {low} to {high}", "expressivity"
        )
    if value != int(value):
        raise ControlRefused(
            "EXPRESSIVITY_INCREMENT_INVALID", "expressivity must be a whole number", "expressivity"
        )
    return int(value)


def speed_of(value: float, info: EngineInfo) -> float:
    """A speed of the vendor's that the engine has, on the exact step. Raises ControlRefused."""
    low, high = max(SPEEDS[0], info.speed_range[0]), min(SPEEDS[1], info.speed_range[1])
    if low >= high and value != 1.0:
        raise ControlRefused("SPEED_NOT_SUPPORTED", "this voice has one speed", "speed")
    if value != 1.0 and not low <= value <= high:
        raise ControlRefused(
            "SPEED_OUT_OF_RANGE", f"speed must be between {low} and {high}", "speed", finite(value)
        )
    step = round(value / SPEED_STEP)
    if abs(value / SPEED_STEP - step) > 1e-6:
        raise ControlRefused(
            "SPEED_INCREMENT_INVALID", f"speed must be in increments of {SPEED_STEP}", "speed", value
        )
    return round(step * SPEED_STEP, 2)


def finite(value: float) -> float | None:
    """A number that JSON can carry; None for another."""
    return value if math.isfinite(value) else None


def speech_id() -> str:
    """A new name for a turn."""
    return f"dg_sp_{secrets.token_hex(6)}"


class Tape:
    """The audio of a session as its client counts it: from the start of the session, over all turns.

    Samples at the output rate. An interrupt takes back what was sent and not played, so that the next turn
    begins where the client stopped.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.samples = 0
        """Where the next audio begins."""
        self.position_ms: int | None = None
        """What the interrupt before established."""
        self.blank = True
        """Nothing was sent yet."""
        self._produced = 0

    @property
    def ms(self) -> int:
        """The end of what was sent."""
        return round(self.samples * 1000 / self._rate)

    @property
    def produced_ms(self) -> int:
        """What was sent in all, less what interrupts took back."""
        return round(self._produced * 1000 / self._rate)

    def sent(self, samples: int) -> None:
        """So much more was sent."""
        self.blank = False
        self.samples += samples
        self._produced += samples

    def at(self, ms: int) -> int:
        """Sample at an offset of the client."""
        return ms * self._rate // 1000

    def advances(self, ms: int) -> bool:
        """Whether an interrupt at this offset lies after the one before; the first may lie at 0."""
        return ms >= 0 if self.position_ms is None else ms > self.position_ms

    def cut(self, ms: int | None) -> int:
        """An interrupt at this offset, or at one that only we can tell; the position that it establishes."""
        if ms is None:
            self.position_ms = self.ms
        else:
            self._produced -= max(0, self.samples - self.at(ms))
            self.samples, self.position_ms = self.at(ms), ms
        return self.position_ms


def _json(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


def connected(request_id: str, model: str, info: EngineInfo) -> str:
    """The greeting."""
    return _json(
        type="Connected",
        request_id=request_id,
        model_name=model or info.name,
        model_version=info.revision,
        model_uuids=[v1.model_uuid(info)],
    )


def speech_started(ident: str) -> str:
    """A turn begins: all audio up to its SpeechMetadata or SpeechInterrupted is its own."""
    return _json(type="SpeechStarted", speech_id=ident)


def flushed(ident: str) -> str:
    """What was said before the flush has been spoken."""
    return _json(type="Flushed", speech_id=ident)


def _metadata(ident: str, duration_ms: int, characters: int) -> dict[str, Any]:
    return {
        "speech_id": ident,
        "audio_duration_ms": duration_ms,
        "input_character_count": characters,
        "billable_character_count": characters,
        "controls_applied": {
            "pronunciations_applied": 0,
            "breaks_applied": 0,
            "pronunciation_warnings": 0,
        },
    }


def speech_metadata(ident: str, duration_ms: int, characters: int) -> str:
    """A turn has been spoken to its end."""
    return _json(type="SpeechMetadata", **_metadata(ident, duration_ms, characters))


def speech_interrupted(
    ident: str, duration_ms: int, characters: int, *, played_ms: int, heard: Heard | None
) -> str:
    """A turn was cut; what of its text was heard, where the client said how far it had played."""
    return _json(
        type="SpeechInterrupted",
        audio_played_ms=played_ms,
        **_texts(heard),
        metadata=_metadata(ident, duration_ms, characters),
    )


def _texts(heard: Heard | None) -> dict[str, str]:
    return {} if heard is None else {"text_spoken": heard.text, "text_remaining": heard.unheard}


def session_metadata(duration_ms: int, characters: int) -> str:
    """The last message before we close."""
    return _json(
        type="SessionMetadata",
        total_audio_duration_ms=duration_ms,
        total_input_character_count=characters,
        total_billable_character_count=characters,
    )


def configured(speed: float | None) -> str:
    """A configuration was taken; what has been set on this session."""
    return _json(type="ConfigureSuccess", applied={} if speed is None else {"speed": speed})


def not_configured(error: ControlRefused) -> str:
    """A configuration was refused, and what was set before stays."""
    value = {} if error.value is None else {"value": error.value}
    return _json(
        type="ConfigureFailure", code=error.reason, field=error.field, **value, description=error.message
    )


def warning(said: tuple[str, str]) -> str:
    """A message that has no effect, or an effect that the client may not expect."""
    code, words = said
    return _json(type="Warning", code=code, description=words)


def interrupted_late(ident: str, *, played_ms: int, heard: Heard | None) -> str:
    """The interrupt of a turn whose end was told: a warning, with what was heard as fields of our own."""
    code, words = NO_ACTIVE_SPEECH
    return _json(
        type="Warning",
        code=code,
        description=words,
        speech_id=ident,
        audio_played_ms=played_ms,
        **_texts(heard),
    )


def failure(error: VoxwireError) -> str:
    """A message that was not taken, or a turn that could not be spoken, or no further.

    ``code`` is the vendor's, ``reason`` ours.
    """
    code = "NET-0000"
    if isinstance(error, TextTooLong):
        code = "BIG-0000"
    elif isinstance(error, InvalidCommand):
        code = "DATA-0000"
    elif isinstance(error, BadRequest):
        code = "MESSAGE-0000"
    return _json(type="Error", code=code, description=said(error), reason=error.code)


def error_fields(error: VoxwireError, request_id: str) -> dict[str, Any]:
    """An HTTP error; a control that is refused has the vendor's code."""
    fields = v1.error_fields(error, request_id)
    if isinstance(error, ControlRefused):
        fields["err_code"] = error.reason
    return fields
