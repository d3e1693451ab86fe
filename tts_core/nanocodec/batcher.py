"""Which streams to decode next, and how many frames of each: the order of work of one decoding process.

The oldest waiting frames set the size of a step; streams with the same number of frames at hand join it, as
only equal lengths make a batch. A long request is decoded in pieces, between which the others get their turn.
Nothing here waits or works: it can be tested without a model.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fsq import Codes

MAX_PIECE = 16
"""Most frames of one stream in a step. Beyond it a frame gets hardly cheaper, and the others wait longer."""


@dataclass(slots=True)
class _Request:
    ident: int
    codes: Codes
    done: int
    samples: list[NDArray[np.float32]]


@dataclass(slots=True)
class _Stream:
    ident: int
    state: Any
    requests: deque[_Request]

    def ready(self) -> int:
        """Frames of the next step, at most a piece."""
        head = self.requests[0]
        return min(len(head.codes) - head.done, MAX_PIECE)


@dataclass(frozen=True, slots=True)
class Batch:
    """A step: equally many frames of some streams.

    Args:
        streams: their numbers, in no order that matters.
        codes: uint8 ``[B, n, 32]``.
        states: their states, opaque.

    """

    streams: tuple[int, ...]
    codes: Codes
    states: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that is done, with all of its samples float32 ``[n * 1024]``."""

    stream: int
    request: int
    samples: NDArray[np.float32]


class Batcher:
    """The streams of a process and what waits for each; requests of a stream are done in their order.

    Args:
        batch_frames: most frames of all streams in one step, at least one stream's.

    """

    def __init__(self, batch_frames: int = 16) -> None:
        self._limit = batch_frames
        self._streams: dict[int, _Stream] = {}
        # Streams that wait, the one that has waited longest in front; a dict for its order.
        self._waiting: dict[int, None] = {}

    def __len__(self) -> int:
        """Streams that wait for a step."""
        return len(self._waiting)

    @property
    def streams(self) -> int:
        """Streams that have a state."""
        return len(self._streams)

    def knows(self, stream: int) -> bool:
        """Whether the stream has a state."""
        return stream in self._streams

    def open(self, stream: int, state: Any) -> None:
        """Begin a stream."""
        self._streams[stream] = _Stream(stream, state, deque())

    def close(self, stream: int) -> None:
        """Forget a stream and its requests; unknown ones are ignored."""
        self._streams.pop(stream, None)
        self._waiting.pop(stream, None)

    def submit(self, stream: int, request: int, codes: Codes) -> None:
        """Add a request of at least one frame to an open stream."""
        self._streams[stream].requests.append(_Request(request, codes, 0, []))
        self._waiting.setdefault(stream)

    def next(self) -> Batch | None:
        """The next step, None if nothing waits. ``done`` must be told of it before another is asked for."""
        if not self._waiting:
            return None
        first = self._streams[next(iter(self._waiting))]
        count = first.ready()
        most = max(1, self._limit // count)
        chosen = [first]
        for ident in self._waiting:
            if len(chosen) >= most:
                break
            stream = self._streams[ident]
            if stream is not first and stream.ready() == count:
                chosen.append(stream)
        pieces = [s.requests[0].codes[s.requests[0].done :][:count] for s in chosen]
        return Batch(tuple(s.ident for s in chosen), np.stack(pieces), tuple(s.state for s in chosen))

    def done(self, batch: Batch, samples: NDArray[np.float32], states: Any) -> list[Finished]:
        """Take the result of a step; the requests that it completes.

        Args:
            batch: what ``next`` gave.
            samples: float32 ``[B, n * 1024]``.
            states: the new states, ``B`` of them.

        """
        finished: list[Finished] = []
        for ident, row, state in zip(batch.streams, samples, states, strict=True):
            stream = self._streams[ident]
            stream.state = state
            head = stream.requests[0]
            head.samples.append(row)
            head.done += batch.codes.shape[1]
            del self._waiting[ident]  # to the back
            if head.done == len(head.codes):
                stream.requests.popleft()
                finished.append(Finished(ident, head.ident, np.concatenate(head.samples)))
            if stream.requests:
                self._waiting[ident] = None
        return finished
