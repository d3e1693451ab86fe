"""What a context tells its dialect or leg. Plain data; every context ends in exactly one terminal event."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tts_core.errors import UnsupportedFormat, VoxwireError


class Encoding(StrEnum):
    """Sample encodings; multi-byte samples are little-endian."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"
    MULAW = "mulaw"
    ALAW = "alaw"


RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
_WIDTH = {Encoding.PCM_S16LE: 2, Encoding.PCM_F32LE: 4, Encoding.MULAW: 1, Encoding.ALAW: 1}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Encoding and sample rate (Hz) of what leaves the gateway; mono. Raises UnsupportedFormat."""

    encoding: Encoding = Encoding.PCM_S16LE
    rate: int = 24000

    def __post_init__(self) -> None:
        if self.rate not in RATES:
            raise UnsupportedFormat(
                f"sample rate must be one of {', '.join(map(str, RATES))}", field="sample_rate"
            )

    @property
    def width(self) -> int:
        """Bytes per sample."""
        return _WIDTH[self.encoding]


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the client sent it.

    ``text_start``/``text_end``: offsets in everything the client sent to this context. ``start``/``end``:
    seconds from the first sample of the context's audio. Of a word that is spoken as several, as "$5.30" is,
    ``end`` may be an estimate, since it is told before all of it was made; the next word starts no earlier.
    """

    text: str
    text_start: int
    text_end: int
    start: float
    end: float


@dataclass(slots=True)
class ContextStats:
    """Times in seconds; ``-1`` where not reached.

    ``queue_wait``: first segment ready until the engine took it. ``first_segment``: first text until the
    first segment was ready. ``first_audio``: first text until the first audio left. ``leading_silence``:
    silent seconds before the first audible sample. ``rtf``: engine seconds per audio second. ``underruns``
    and ``underrun_s``: times the listener ran dry between segments while text was pending, and for how long.
    """

    queue_wait: float = -1.0
    first_segment: float = -1.0
    first_audio: float = -1.0
    leading_silence: float = -1.0
    audio_s: float = 0.0
    engine_s: float = 0.0
    rtf: float = 0.0
    underruns: int = 0
    underrun_s: float = 0.0
    segments: int = 0
    characters: int = 0
    cached_segments: int = 0


@dataclass(frozen=True, slots=True)
class Heard:
    """What the listener heard when a context was cut.

    ``samples``: at the output rate; ``text`` + ``unheard`` is the text that was sent, cut at a word.
    """

    samples: int
    ms: int
    text: str
    unheard: str


@dataclass(frozen=True, slots=True)
class Audio:
    """Encoded audio; ``start_sample`` and ``samples`` at the output rate; ``seq`` counts from 0."""

    context_id: str
    seq: int
    start_sample: int
    samples: int
    data: bytes
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """Word timings, sent no later than the audio they name."""

    context_id: str
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything sent before the flush has been spoken (all its audio precedes this event)."""

    context_id: str
    flush_id: int


@dataclass(frozen=True, slots=True)
class Done:
    """Terminal: all text was spoken."""

    context_id: str
    total_samples: int
    stats: ContextStats = field(default_factory=ContextStats)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Terminal: cut. ``last_sample``: samples sent in all; no audio follows."""

    context_id: str
    last_sample: int
    heard: Heard
    stats: ContextStats = field(default_factory=ContextStats)


@dataclass(frozen=True, slots=True)
class Failed:
    """Terminal: an error."""

    context_id: str
    error: VoxwireError
    stats: ContextStats = field(default_factory=ContextStats)


Event = Audio | Words | Flushed | Done | Cancelled | Failed
TERMINAL = (Done, Cancelled, Failed)
