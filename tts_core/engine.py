"""The engine contract: what a text-to-speech engine gives and what it is given.

An engine turns one segment of prepared text into a stream of mono float32 PCM at its own rate. It knows
nothing of contexts, clients, formats or phones. Third parties register one under the entry point group
``voxwire.engines``. All types here are plain data, so that the contract also goes over a wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
"""Mono PCM, float32, nominal range -1..1, shape [n]."""


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A speaker that an engine offers.

    ``id`` is what clients send; ``language`` is a BCP 47 tag; ``gender`` is "female", "male" or "".
    """

    id: str
    name: str
    language: str = "en-US"
    gender: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is and can do. ``native_rate`` in Hz; ``revision`` changes when its audio would.

    ``voice_bytes``: exact length of the conditioning that ``enroll`` makes, little-endian float16; 0 where it
    is not of that kind.
    """

    name: str
    revision: str
    native_rate: int
    voices: tuple[VoiceInfo, ...]
    languages: tuple[str, ...] = ("en",)
    can_clone: bool = False
    voice_bytes: int = field(default=0, kw_only=True)
    word_marks: bool = True
    text_form: Literal["spoken", "written"] = "spoken"
    speed_range: tuple[float, float] = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much an engine can do now.

    ``xrt``: seconds of audio it makes per second of wall time over all streams, as measured lately.
    ``slots``: requests it works on at once; ``free``: of these, idle now; ``queued``: requests waiting.
    ``alive``: workers able to serve (0 = not ready).
    """

    xrt: float
    slots: int
    free: int
    queued: int
    alive: int


@dataclass(frozen=True, slots=True)
class WordMark:
    """One spoken word: offsets ``[text_start, text_end)`` in the request's ``text``, samples at native rate.

    Samples count from the start of the request's audio.
    """

    text_start: int
    text_end: int
    sample_start: int
    sample_end: int


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One segment to speak.

    ``text`` is already segmented and, where ``EngineInfo.text_form`` is "spoken", normalised.
    ``conditioning`` is the voice's engine-specific bytes (None for a built-in voice). ``speed`` 1.0 is
    normal. ``continues`` is the tail of the previous segment's text, for prosody. ``deadline`` is the
    monotonic time in seconds at which the listener would hear silence if this segment's first audio
    were not there; engines and the scheduler serve the most urgent first. An engine that keeps anything of a
    request for later ones keeps it under ``salt``, which is the tenant's and voice's own: nobody then learns
    from a time what another tenant has had spoken (trust.md S24).
    """

    id: str
    text: str
    voice: str
    conditioning: bytes | None = None
    seed: int | None = None
    speed: float = 1.0
    continues: str = ""
    deadline: float | None = None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A piece of audio: ``pcm`` float32 ``[n]`` starting at ``start_sample`` of the request's audio.

    ``words`` are those whose times are known by now and were not sent before, in order. Each should come no
    later than the chunk in which it begins, its end estimated if need be: clients are told of a word before
    its audio, so that one that comes later is told to begin late. ``last`` is True on exactly the final chunk
    (which may be empty).
    """

    pcm: Samples
    start_sample: int
    words: tuple[WordMark, ...] = field(default=())
    last: bool = False


class Engine(Protocol):
    """A text-to-speech engine."""

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine; valid before ``start``."""
        ...

    async def start(self) -> None:
        """Load models and workers. Raises EngineError when that is not possible."""
        ...

    async def close(self) -> None:
        """Stop at once; running requests end with EngineError. Idempotent."""
        ...

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """Make voice conditioning from a clip (mono, ``rate`` Hz). EngineError if it cannot clone."""
        ...

    def synthesize(self, request: SpeechRequest) -> AsyncIterator[SpeechChunk]:
        """Speak one segment.

        Closing the iterator (or cancelling the task that reads it) aborts the work and frees the slot within
        one step. Raises EngineError and its kin. Text with nothing to say gives one empty last chunk.
        """
        ...

    def capacity(self) -> Capacity:
        """The present load and measured speed; cheap, may be called often."""
        ...


@runtime_checkable
class Observed(Protocol):
    """An engine that has more to tell than its capacity; names are of the engine's own closed set."""

    def events(self) -> dict[str, int]:
        """How often each thing happened since the start."""
        ...

    def gauges(self) -> dict[str, float]:
        """Figures of now."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """An engine that keeps something of a request for later ones."""

    def forget(self, salt: str) -> int:
        """Drop all that was kept under a request's ``salt``, as its voice was deleted; how many copies."""
        ...
