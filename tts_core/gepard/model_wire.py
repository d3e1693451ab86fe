"""The language between ``ModelProcess`` and the worker that holds the model: messages of ``tts_core.child``.

Numbers go beside the messages: a request's prefix and context, a step's codes and entropies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError, Language, numbers
from tts_core.nanocodec import fsq

from .frames import Entropy, Finish, FrameBatch, FrameRequest, SpeakerPrefix
from .sampling import Sampling


class Load(msgspec.Struct, tag="load", frozen=True):
    """First message to a worker: what its model is made with, by name."""

    options: dict[str, Any]


class Generate(msgspec.Struct, tag="generate", frozen=True):
    """A request; answered by parts of ``Step`` until one has a finish, or by ``Failed``.

    Beside it float32 rows of the prefix, each of ``width`` (0: no prefix), then ``frames`` of context, uint8.
    """

    id: int
    ids: tuple[int, ...]
    uncond: tuple[int, ...] | None
    sampling: dict[str, Any]
    fingerprint: str
    width: int
    frames: int

    @classmethod
    def of(cls, ident: int, request: FrameRequest) -> tuple[Generate, bytes]:
        """``request`` under the number ``ident``, and what goes beside it."""
        prefix, context = request.prefix, request.context
        message = cls(
            ident,
            request.ids,
            request.uncond,
            request.sampling.as_extra_args(),
            "" if prefix is None else prefix.fingerprint,
            0 if prefix is None else prefix.rows.shape[1],
            0 if context is None else len(context),
        )
        rows = b"" if prefix is None else prefix.rows.astype("<f4").tobytes()
        return message, rows + (b"" if context is None else context.tobytes())

    def request(self, payload: memoryview) -> FrameRequest:
        """The request. Raises FrameError, or what the request's own checks raise."""
        rows = len(payload) - self.frames * fsq.CHANNELS
        if self.frames < 0 or rows < 0 or (rows > 0) != (self.width > 0):
            raise FrameError("a request's numbers are of odd size")
        prefix = context = None
        if self.width > 0:
            values = numbers(payload[:rows], "<f4", self.width).astype(np.float32)
            prefix = SpeakerPrefix(self.fingerprint, values)
        if self.frames:
            context = numbers(payload[rows:], np.uint8, fsq.CHANNELS)
        return FrameRequest(str(self.id), self.ids, prefix, Sampling.of(self.sampling), self.uncond, context)


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Drop request ``id`` before the next step. One that is over is ignored."""

    id: int


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """Call the model's ``name`` after all that was sent before; answered by ``Answer`` or ``Failed``."""

    id: int
    name: str
    arguments: tuple[Any, ...] = ()


class Answer(msgspec.Struct, tag="answer", frozen=True):
    """What the method that ``Ask`` of this ``id`` named has returned."""

    id: int
    value: Any


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The model is loaded and warm."""

    load_s: float


class Part(msgspec.Struct, array_like=True, frozen=True):
    """So many frames are of request ``id``, which they end if ``finish`` says so."""

    id: int
    count: int
    finish: Finish


class Step(msgspec.Struct, tag="step", frozen=True):
    """What a step of ``busy_s`` seconds gave. Beside it the codes of all parts, then their entropies."""

    parts: tuple[Part, ...]
    busy_s: float

    @classmethod
    def of(
        cls, parts: Sequence[tuple[int, int, Finish]], codes: fsq.Codes, entropy: Entropy, busy_s: float
    ) -> tuple[Step, bytes]:
        """Frames uint8 ``[n, 32]``, entropies float32 ``[n]`` and whose they are; and what goes beside it."""
        return cls(tuple([Part(*part) for part in parts]), busy_s), codes.tobytes() + entropy.tobytes()

    def batches(self, payload: memoryview) -> Iterator[tuple[int, FrameBatch]]:
        """The frames by request. Raises FrameError."""
        total = sum(part.count for part in self.parts)
        if len(payload) != total * (fsq.CHANNELS + 4) or any(part.count < 0 for part in self.parts):
            raise FrameError("a step's numbers are of odd size")
        codes = numbers(payload[: total * fsq.CHANNELS], np.uint8, fsq.CHANNELS)
        entropy = numbers(payload[total * fsq.CHANNELS :], "<f4")
        at = 0
        for part in self.parts:
            end = at + part.count
            yield part.id, FrameBatch(codes[at:end], entropy[at:end], part.finish)
            at = end


Message = Load | Generate | Cancel | Ask | Answer | Ready | Step | Failed
LANGUAGE: Language[Message] = Language(Message)
