"""Messages of the native protocol, version 1, as typed structs.

The JSON schema that the gateway serves is made from these types. Unknown fields from clients are ignored, so
that a newer client may speak to an older gateway.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.fault import reading

VERSION = 1

ContextId = Annotated[
    str, Meta(min_length=1, max_length=256, description="chosen by the client, unique per session")
]
Text = Annotated[str, Meta(max_length=50_000)]
EncodingName = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
TextModeName = Literal["delta", "segment", "final"]


class Format(Struct, frozen=True):
    """Audio format; mono."""

    encoding: EncodingName = "pcm_s16le"
    sample_rate: int = 24000


class Resume(Struct, frozen=True):
    """Take up a session after a dropped connection.

    ``received``: messages, text and binary together, received on the session after its first ``hello``.
    """

    session: str
    key: str
    received: Annotated[int, Meta(ge=0)]


class Agent(Struct, frozen=True):
    """Serve phone calls on this session.

    ``name``: calls that ask for this agent by the custom parameter ``agent`` come here. ``caller_audio``: how
    the caller's audio is delivered (mu-law at 8 kHz, or 16-bit PCM at 8 or 16 kHz); null for none.
    ``max_calls``: calls at once.
    """

    name: Annotated[str, Meta(max_length=128)] = ""
    caller_audio: Format | None = None
    max_calls: Annotated[int, Meta(ge=1, le=1000)] = 1


# Client to gateway


class ClientMessage(Struct, frozen=True, tag_field="type"):
    """Base of what clients send."""


class ClientHello(ClientMessage, frozen=True, tag="hello"):
    """First message; the client need not wait for the answer before it sends more."""

    version: int = VERSION
    client: Annotated[str, Meta(max_length=200)] = ""
    resume: Resume | None = None
    agent: Agent | None = None


class Open(ClientMessage, frozen=True, tag="open"):
    """Open a context.

    ``interrupt``: first cancel this context (or, with ``true``, every context of the session that speaks to
    the same listener). ``call``: speak to this call instead of this socket; the format is then the call's.
    """

    context: ContextId
    voice: Annotated[str, Meta(max_length=256)] = ""
    format: Format | None = None
    text_mode: TextModeName = "delta"
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    volume: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    clean: bool = True
    tags: bool = True
    normalise: bool = True
    cache: bool = False
    run_ahead_ms: Annotated[int, Meta(ge=100, le=60_000)] | None = None
    max_buffer_delay_ms: Annotated[int, Meta(ge=0, le=10_000)] = 3000
    lead_in_ms: Annotated[int, Meta(ge=0, le=200)] = 0
    text: Text = ""
    end: bool = False
    interrupt: ContextId | bool = False
    call: Annotated[str, Meta(max_length=128)] = ""


class TextDelta(ClientMessage, frozen=True, tag="text"):
    """More text. ``seq`` counts a context's text messages from 1; one that was taken before is ignored."""

    context: ContextId
    text: Text
    seq: Annotated[int, Meta(ge=1)] | None = None
    flush: bool = False
    end: bool = False


class Flush(ClientMessage, frozen=True, tag="flush"):
    """Speak all that is held; ``flushed`` comes when its audio has been sent."""

    context: ContextId
    flush_id: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class End(ClientMessage, frozen=True, tag="end"):
    """No more text for this context."""

    context: ContextId


class Cancel(ClientMessage, frozen=True, tag="cancel"):
    """Stop a context at once; answered by ``cancelled`` (or ``heard`` when it had ended already)."""

    context: ContextId


class Played(ClientMessage, frozen=True, tag="played"):
    """The client has played the context's audio up to this sample."""

    context: ContextId
    sample: Annotated[int, Meta(ge=0)]


class Ping(ClientMessage, frozen=True, tag="ping"):
    """Answered by ``pong`` with the same id."""

    id: Annotated[str, Meta(max_length=128)] = ""


class CallHangup(ClientMessage, frozen=True, tag="call.hangup"):
    """End a call; with ``after_audio`` what is queued is played first."""

    call: str
    after_audio: bool = True


class Bye(ClientMessage, frozen=True, tag="bye"):
    """The session is over: nothing is kept for a resume."""


Incoming = ClientHello | Open | TextDelta | Flush | End | Cancel | Played | Ping | CallHangup | Bye


# Gateway to client


class ServerMessage(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of what the gateway sends."""


class Limits(Struct, frozen=True):
    """What the gateway accepts on this session."""

    max_contexts: int
    max_message_bytes: int
    max_context_characters: int
    context_idle_s: float
    run_ahead_ms: int
    resume_s: float


class VoiceEntry(Struct, frozen=True):
    """A voice that may be asked for: built in, kept by the tenant, or of this session."""

    id: str
    name: str
    language: str
    gender: str = ""
    kind: Literal["built_in", "permanent", "session"] = "built_in"


class ResumedContext(Struct, frozen=True):
    """Where a context stands after a resume: text messages taken, so that the client can send the rest."""

    texts: int
    ended: bool


class ServerHello(ServerMessage, frozen=True, tag="hello", omit_defaults=False):
    """Answer to ``hello``. ``key`` is needed to resume: keep it secret.

    ``cloning``: voices can be made; ``spoken``: under consents that are read aloud, too.
    """

    version: int
    session: str
    key: str
    engine: str
    native_rate: int
    formats: list[EncodingName]
    sample_rates: list[int]
    voices: list[VoiceEntry]
    limits: Limits
    cloning: bool = False
    spoken: bool = False
    resumed: bool = False
    contexts: dict[str, ResumedContext] = {}


class Opened(ServerMessage, frozen=True, tag="opened", omit_defaults=False):
    """A context is open; ``index`` names it in binary frames."""

    context: str
    index: int
    voice: str
    format: Format


class WordTiming(Struct, frozen=True):
    """A word: offsets in all the text of the context; seconds from its first sample."""

    text: str
    text_start: int
    text_end: int
    start: float
    end: float


class WordsMessage(ServerMessage, frozen=True, tag="words"):
    """Word timings, no later than the audio they name."""

    context: str
    words: list[WordTiming]


class FlushedMessage(ServerMessage, frozen=True, tag="flushed"):
    """All audio of the flush has been sent."""

    context: str
    flush_id: int


class Stats(Struct, frozen=True):
    """Times in seconds, -1 where not reached; see ``sessions.events.ContextStats``."""

    queue_wait: float
    first_segment: float
    first_audio: float
    leading_silence: float
    audio_s: float
    engine_s: float
    rtf: float
    underruns: int
    underrun_s: float
    segments: int
    characters: int
    cached_segments: int


class DoneMessage(ServerMessage, frozen=True, tag="done", omit_defaults=False):
    """Terminal: everything was spoken. For a call: and was played."""

    context: str
    total_samples: int
    stats: Stats


class HeardText(Struct, frozen=True):
    """How far the listener got: sample, milliseconds, the text heard and the rest."""

    sample: int
    ms: int
    text: str
    unheard: str


class CancelledMessage(ServerMessage, frozen=True, tag="cancelled", omit_defaults=False):
    """Terminal: cut. No audio of the context follows."""

    context: str
    last_sample: int
    heard: HeardText
    stats: Stats


class HeardMessage(ServerMessage, frozen=True, tag="heard", omit_defaults=False):
    """Answer to a cancel of a context that had ended: what the listener has heard by now."""

    context: str
    heard: HeardText


class ErrorMessage(ServerMessage, frozen=True, tag="error"):
    """An error. With ``context`` and ``terminal`` it ends that context; otherwise it refused one message."""

    code: str
    message: str
    context: str | None = None
    field: str | None = None
    retry_after: float | None = None
    terminal: bool = False
    call: str | None = None


class Pong(ServerMessage, frozen=True, tag="pong"):
    """Answer to ``ping``."""

    id: str = ""


class DrainingMessage(ServerMessage, frozen=True, tag="draining"):
    """The gateway goes down: no new contexts here; running ones may finish within ``deadline_s``."""

    deadline_s: float


class CallStarted(ServerMessage, frozen=True, tag="call.started", omit_defaults=False):
    """A call was answered for this agent. ``index`` names it in binary frames of caller audio."""

    call: str
    index: int
    provider: str
    caller: str
    called: str
    parameters: dict[str, str]
    format: Format
    caller_audio: Format | None


class CallDtmf(ServerMessage, frozen=True, tag="call.dtmf"):
    """The caller pressed a key."""

    call: str
    digit: str


class CallEnded(ServerMessage, frozen=True, tag="call.ended"):
    """The call is over; ``reason`` is "caller", "agent", or "failed" (the carrier broke its protocol)."""

    call: str
    reason: str


Outgoing = (
    ServerHello
    | Opened
    | WordsMessage
    | FlushedMessage
    | DoneMessage
    | CancelledMessage
    | HeardMessage
    | ErrorMessage
    | Pong
    | DrainingMessage
    | CallStarted
    | CallDtmf
    | CallEnded
)

encode = msgspec.json.Encoder().encode
decode = reading(msgspec.json.Decoder(Incoming).decode)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of both directions, made from the types above."""
    (incoming, outgoing), parts = msgspec.json.schema_components(
        [Incoming, Outgoing], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Voxwire native protocol, version {VERSION}",
        "$defs": {**parts, "FromClient": incoming, "FromGateway": outgoing},
        "anyOf": [{"$ref": "#/$defs/FromClient"}, {"$ref": "#/$defs/FromGateway"}],
    }
