"""The worker of ``ModelProcess``: steps a model, and between two steps takes what its owner sends.

What model that is, a module says that has a ``main`` of its own: ``torch_turns`` or ``plugin.stepper``.
"""

from __future__ import annotations

import gc
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError
from tts_core.child.serve import Channel, handshake, serve
from tts_core.errors import EngineError, VoxwireError
from tts_core.nanocodec import fsq

from . import model_wire as wire
from .frames import Entropy, Finish, FrameRequest

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Given:
    """What a step of a model gave, of all requests together: a step's time is short, and they are many.

    Args:
        parts: whose the frames are, in their order: the request, how many, and its finish as in FrameBatch.
        codes: uint8 ``[n, 32]``, the frames of all parts.
        entropy: float32 ``[n]``, as in FrameBatch.
        failures: requests that ended by an error. Such an error, as a finish, is the last word on a request.
    """

    parts: Sequence[tuple[int, int, Finish]]
    codes: fsq.Codes
    entropy: Entropy
    failures: Sequence[tuple[int, VoxwireError]] = field(default=())


class Served(Protocol):
    """A model, as the loop here needs it. Requests are known by numbers."""

    @property
    def busy(self) -> bool:
        """Whether a step has something to do."""
        ...

    def begin(self, ident: int, request: FrameRequest) -> None:
        """Take a request. Raises a VoxwireError for one that cannot be served."""
        ...

    def cancel(self, ident: int) -> None:
        """Drop a request at once. One that is over is ignored."""
        ...

    def step(self) -> Given:
        """Work for a moment: what it gave to whom. What it raises is the end of the model."""
        ...

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Do something between two steps and give back plain values. Raises EngineError for no such thing."""
        ...


def run(fd: int, load: Callable[[Mapping[str, Any]], Served], *, family: bool = False) -> None:
    """Serve the owner on the socket ``fd``; never returns.

    Args:
        fd: see ``child.serve.serve``.
        load: gets the options of ``Load``, gives the warm model, or raises a VoxwireError for the owner.
        family: see ``child.serve.serve``.
    """
    serve(fd, lambda sock: work(sock, load), family=family)


def work(sock: socket.socket, load: Callable[[Mapping[str, Any]], Served]) -> None:
    """Load, and serve until the model fails. Raises EOFError or OSError when the owner is gone."""
    channel = Channel(sock, wire.LANGUAGE)

    def begin(order: wire.Load) -> tuple[wire.Message, Callable[[], None]]:
        started = time.perf_counter()
        model = load(order.options)
        # A model's stack leaves a million objects for good: looking through them would hold up a step.
        gc.collect()
        gc.freeze()
        return wire.Ready(time.perf_counter() - started), Loop(channel, model).run

    handshake(channel, wire.Load, begin, failure="the model could not be loaded")


class Loop:
    """Step by step through a model's life."""

    def __init__(self, channel: Channel[wire.Message], model: Served) -> None:
        self._channel, self._model = channel, model

    def run(self) -> None:
        """Serve until the model fails. Raises as ``work``.

        It waits for the owner only while the model has nothing to do.
        """
        while True:
            while not self._model.busy or self._channel.waiting():
                self._take(*self._channel.receive())
            started = time.perf_counter()
            try:
                given = self._model.step()
            except Exception:
                log.exception("the model failed")
                return
            self._tell(given, time.perf_counter() - started)

    def _take(self, message: wire.Message, payload: memoryview) -> None:
        if isinstance(message, wire.Cancel):
            self._model.cancel(message.id)
            return
        if not isinstance(message, wire.Generate | wire.Ask):
            raise FrameError("only requests, cancels and questions may come once loaded")
        try:
            if isinstance(message, wire.Generate):
                self._model.begin(message.id, message.request(payload))
            else:
                value = self._model.call(message.name, message.arguments)
                self._channel.send(wire.Answer(message.id, value))
        except VoxwireError as error:
            self._channel.send(Failed.of(message.id, error))
        except Exception as error:
            if isinstance(error, OSError | FrameError):
                raise
            log.exception("the model failed on a message")
            self._channel.send(Failed.of(message.id, EngineError("the model failed on the request")))

    def _tell(self, given: Given, busy_s: float) -> None:
        if given.parts:
            self._channel.send(*wire.Step.of(given.parts, given.codes, given.entropy, busy_s))
        for ident, error in given.failures:
            self._channel.send(Failed.of(ident, error))


def unknown(name: str) -> EngineError:
    """What ``Served.call`` raises for a name that it does not know."""
    return EngineError(f"the model has no method {name!r}")
