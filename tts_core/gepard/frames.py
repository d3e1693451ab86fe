"""What the engine and a language model of frames say to each other. Plain data and numpy, no model stack.

The model reads ``[speaker prefix | text | frames of before]`` and gives frames of 32 codec codes, 46.44 ms
each, until its stop head fires or the cap is reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_core.errors import BadRequest, TextTooLong
from tts_core.nanocodec import fsq

from .config import GepardConfig
from .sampling import Sampling

Rows: TypeAlias = NDArray[np.float32]
"""Rows of embeddings, float32 ``[K, hidden]``."""

Entropy: TypeAlias = NDArray[np.float32]
"""How unsure the heads were of each frame, float32 ``[n]``: see ``FrameBatch``."""

NO_CODES: fsq.Codes = np.zeros((0, fsq.CHANNELS), np.uint8)
NO_ENTROPY: Entropy = np.zeros(0, np.float32)
"""The codes and the entropies of no frames."""

Finish: TypeAlias = Literal["", "stop", "length"]

MAX_CONTEXT = 256
"""Most frames of before in one request: 12 s."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerPrefix:
    """A speaker, as rows that stand before the text.

    Args:
        fingerprint: hex SHA-256 of the rows and a salt, see ``of``: names the prefix in caches.
        rows: float32 ``[K, hidden]``, finite.

    Raises:
        BadRequest: rows of another shape or type, or not finite.
    """

    fingerprint: str
    rows: Rows

    def __post_init__(self) -> None:
        if self.rows.dtype != np.float32 or self.rows.ndim != 2 or not self.rows.size:
            raise BadRequest("a speaker prefix must be rows of float32", field="voice")
        if not np.isfinite(self.rows).all():
            raise BadRequest("a speaker prefix holds values that are not numbers", field="voice")

    @classmethod
    def of(cls, rows: NDArray[Any], salt: bytes = b"") -> SpeakerPrefix:
        """Name ``rows`` by their content and ``salt``; a salt per tenant keeps tenants' caches apart."""
        own = np.array(rows, np.float32, order="C")
        own.flags.writeable = False
        digest = hashlib.sha256(len(salt).to_bytes(8, "little") + salt + own.tobytes()).hexdigest()
        return cls(digest, own)


@dataclass(frozen=True, slots=True, eq=False)
class FrameRequest:
    """One segment to be turned into frames.

    Args:
        id: unique among the requests that run.
        ids: token ids of the text, from ``prompt.build_prompt``; without the prefix.
        prefix: the speaker; None for none at all (not the same as the model's own null prefix).
        sampling: how frames are drawn.
        uncond: token ids of the branch that guidance subtracts (``prompt.branches``); None for no guidance.
            It has the same prefix and context.
        context: uint8 ``[n, 32]``, frames that were spoken before these. They are read, but not counted:
            neither the cap nor the penalty nor the seed sees them.

    Raises:
        BadRequest: no text ids, or more than ``MAX_CONTEXT`` frames of context.
        EngineError: context frames that are no frames.
    """

    id: str
    ids: tuple[int, ...]
    prefix: SpeakerPrefix | None
    sampling: Sampling
    uncond: tuple[int, ...] | None = None
    context: fsq.Codes | None = None

    def __post_init__(self) -> None:
        if not self.ids or (self.uncond is not None and not self.uncond):
            raise BadRequest("a request needs text", field="text")
        if self.context is not None:
            if len(self.context) > MAX_CONTEXT:
                raise BadRequest(f"the context may have {MAX_CONTEXT} frames at most", field="context")
            fsq.check(self.context)

    @property
    def positions(self) -> int:
        """Places of the longer branch in the model's window: prefix, text, context and every frame."""
        text = max(len(self.ids), len(self.uncond or ()))
        prefix = 0 if self.prefix is None else len(self.prefix.rows)
        context = 0 if self.context is None else len(self.context)
        return prefix + text + context + self.sampling.max_frames


def check_request(request: FrameRequest, config: GepardConfig) -> None:
    """See that ``request`` is one for the model of ``config``.

    Raises:
        BadRequest: token ids or a prefix that are not of this model.
        TextTooLong: prompt and frames are longer than the model's window.
    """
    vocabulary = config.backbone.vocab_size
    if any(not 0 <= token < vocabulary for token in (*request.ids, *(request.uncond or ()))):
        raise BadRequest("the prompt holds a token that the model does not have", field="text")
    if request.prefix is not None and request.prefix.rows.shape[1] != config.hidden_size:
        raise BadRequest("the voice is of another model", field="voice")
    if request.positions > config.backbone.max_position_embeddings:
        raise TextTooLong("prompt and frames are longer than the model's window", field="text")


@dataclass(frozen=True, slots=True, eq=False)
class FrameBatch:
    """Frames that were made since the last batch.

    Args:
        codes: uint8 ``[n, 32]``; n may be 0 in the batch that says the end.
        entropy: float32 ``[n]``: how unsure the heads were of each frame, 0 (certain) to 1 (know nothing):
            the mean over heads of the entropy of their belief divided by ``log L``. Taken from the logits
            after guidance and before penalty and temperature.
        finish: "" while it goes on; "stop" when the stop head ended it, "length" at the cap. Said once, in
            the last batch.
    """

    codes: fsq.Codes
    entropy: Entropy
    finish: Finish = ""


class FrameModel(Protocol):
    """A language model of frames that serves many requests at once."""

    @property
    def alive(self) -> bool:
        """Whether a request could be served now."""
        ...

    @property
    def slots(self) -> int:
        """Requests that run at once; more wait."""
        ...

    @property
    def running(self) -> int:
        """Requests that were begun and are not over."""
        ...

    async def start(self) -> None:
        """Load the model. Raises EngineError when that is not possible."""
        ...

    async def close(self) -> None:
        """Stop at once; running requests end with EngineError. Idempotent."""
        ...

    def generate(self, request: FrameRequest) -> AsyncIterator[FrameBatch]:
        """Make frames until the end.

        Closing the iterator (or cancelling the task that reads it) aborts within one step of the model. A
        slow reader gets several frames in one batch.

        Raises:
            BadRequest: the request does not fit the model.
            Busy: too many requests wait.
            EngineCrashed: the model died under the request.
            EngineError: anything else.
        """
        ...

    async def forget(self, fingerprint: str) -> None:
        """Overwrite what the model keeps of a prefix whose voice was deleted.

        A request that is speaking with it ends first. Nothing happens where there is none. Raises
        EngineError when the model does not answer.
        """
        ...

    async def stats(self) -> dict[str, float]:
        """Counters for metrics, by name."""
        ...
