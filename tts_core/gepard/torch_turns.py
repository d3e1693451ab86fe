"""The plain loop for several requests: they take turns, a frame each. Runs in a ``model_worker``."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tts_core.errors import EngineError, VoxwireError

from .checkpoint import Checkpoint
from .frames import NO_CODES, NO_ENTROPY, FrameBatch, FrameRequest
from .model_worker import Given, run, unknown
from .prompt import build_prompt
from .reference import ReferenceModel
from .sampling import Sampling

log = logging.getLogger(__name__)


def main(fd: int) -> None:
    """Be a worker; never returns."""
    run(fd, load)


def load(options: Mapping[str, Any]) -> Turns:
    """Load the model and speak two frames, so that no caller pays for first-time work.

    Args:
        options: ``directory`` of the checkpoint, ``dtype``, ``slots`` (requests that take turns) and
            ``threads`` of torch, 0 for its own choice.

    Raises:
        SettingsError: the checkpoint cannot be served.
    """
    if options["threads"]:
        torch.set_num_threads(options["threads"])
    model = ReferenceModel.load(Checkpoint.open(Path(options["directory"])), options["dtype"])
    ids = build_prompt(model.config, (0,))
    for _ in model.frames(FrameRequest("warm", ids, None, Sampling(max_frames=2))):
        pass
    return Turns(model, options["slots"])


class Turns:
    """Requests in turns. Fulfils ``model_worker.Served``.

    Args:
        model: what makes the frames.
        slots: requests that take turns; more wait for one of them to end.
    """

    def __init__(self, model: ReferenceModel, slots: int) -> None:
        self._model, self._slots = model, slots
        self._turns: deque[tuple[int, Iterator[FrameBatch]]] = deque()
        self._waiting: deque[tuple[int, Iterator[FrameBatch]]] = deque()

    @property
    def busy(self) -> bool:
        """Whether there are requests."""
        return bool(self._turns)

    def begin(self, ident: int, request: FrameRequest) -> None:
        """Give a request its turn, or a place in the line."""
        self._waiting.append((ident, self._model.frames(request)))
        self._fill()

    def cancel(self, ident: int) -> None:
        """Take a request out."""
        self._turns = deque(turn for turn in self._turns if turn[0] != ident)
        self._waiting = deque(turn for turn in self._waiting if turn[0] != ident)
        self._fill()

    def step(self) -> Given:
        """One frame of the request whose turn it is. A request that fails ends alone."""
        ident, frames = self._turns.popleft()
        failure: VoxwireError
        try:
            batch = next(frames)
        except VoxwireError as error:
            failure = error
        except Exception:
            log.exception("request failed")
            failure = EngineError("the model failed on this text")
        else:
            if not batch.finish:
                self._turns.append((ident, frames))
            self._fill()
            return Given(((ident, len(batch.codes), batch.finish),), batch.codes, batch.entropy)
        self._fill()
        return Given((), NO_CODES, NO_ENTROPY, ((ident, failure),))

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """``forget``: there is nothing, a prefix lives with its request. Raises EngineError for the rest."""
        if name != "forget":
            raise unknown(name)

    def _fill(self) -> None:
        while self._waiting and len(self._turns) < self._slots:
            # Its first frame is the next thing made: who waits for a first sound waits most.
            self._turns.appendleft(self._waiting.popleft())
