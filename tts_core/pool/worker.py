"""A worker process: speaks one request at a time for the engine that started it."""

from __future__ import annotations

import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar, cast

from ..child.failure import Failed
from ..child.frames import FrameError, Language, M, raw
from ..child.serve import Channel, handshake
from ..engine import Samples
from ..errors import EngineError
from . import wire

log = logging.getLogger(__name__)

C = TypeVar("C")
"""The first message: what to load."""


class Block(Protocol):
    """A stretch of samples, and the marks that became known with it, as in ``wire.Audio``."""

    @property
    def pcm(self) -> Samples:
        """float32 ``[n]``."""
        ...

    @property
    def marks(self) -> tuple[tuple[int, int, int, int], ...]:
        """Text start and end, sample start and end."""
        ...

    @property
    def last(self) -> bool:
        """Whether it is the request's last."""
        ...


class Speaker(Protocol):
    """One voice, loaded."""

    def speak(self, text: str, speed: float, seed: int | None, stop: Callable[[], bool]) -> Iterator[Block]:
        """The audio of ``text``; nothing for text without sound.

        ``stop`` is asked before each long step; where it says True the audio ends there.
        """
        ...


class PoolWorker(ABC, Generic[C, M]):
    """The loop of one worker over a blocking socket.

    Args:
        sock: to the engine.
        language: of both.
        first: type of the first message.
        name: of the engine in errors, as in "the built-in voice".
        rate: of the audio, in Hz; None where ``load`` sets it.
    """

    def __init__(
        self, sock: socket.socket, language: Language[M], first: type[C], *, name: str, rate: int = 0
    ) -> None:
        self.rate = rate
        self._channel = Channel(sock, language)
        self._first = first
        self._name = name
        self._cancelled = 0

    @abstractmethod
    def load(self, configure: C) -> tuple[Mapping[str, Speaker], wire.Ready]:
        """Load as the first message says: the voices by name, and how fast they speak."""

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the engine is gone."""
        handshake(self._channel, self._first, self._load, failure=f"{self._name} could not be loaded")

    def _load(self, configure: C) -> tuple[M, Callable[[], None]]:
        speakers, ready = self.load(configure)

        def serving() -> None:
            while True:
                message, _ = self._channel.receive()
                if isinstance(message, wire.Speak):
                    self._speak(message, speakers)

        return cast("M", ready), serving

    def _speak(self, request: wire.Speak, speakers: Mapping[str, Speaker]) -> None:
        started = time.perf_counter()
        at = 0

        def stop() -> bool:
            return self._is_cancelled(request.id)

        try:
            block = None
            for block in speakers[request.voice].speak(request.text, request.speed, request.seed, stop):
                self._send(wire.Audio(request.id, at, block.last, block.marks), raw(block.pcm))
                at += len(block.pcm)
                if stop():
                    break
            if block is None and not stop():
                self._send(wire.Audio(request.id, 0, True, ()))
        except (OSError, EOFError, FrameError):
            raise
        except Exception as error:
            log.exception("request failed")
            told = (
                error if isinstance(error, EngineError) else EngineError(f"{self._name} failed on this text")
            )
            self._send(Failed.of(request.id, told))
        self._send(wire.Done(request.id, at / self.rate, time.perf_counter() - started))

    def _send(self, message: wire.Audio | wire.Done | Failed, payload: memoryview | bytes = b"") -> None:
        self._channel.send(cast("M", message), payload)

    def _is_cancelled(self, request: int) -> bool:
        while self._channel.waiting():
            message, _ = self._channel.receive()
            if not isinstance(message, wire.Cancel):
                raise FrameError("only Cancel may come while a request runs")
            self._cancelled = message.id
        return self._cancelled == request
