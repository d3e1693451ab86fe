"""The worker process of ``TorchModel``: the plain loop, several requests in turns.

Started as ``python -c "from tts_core.gepard.torch_worker import main; main(FD)"`` with one end of a socket
pair. It ends when the other end closes, and the kernel ends it when its parent dies.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch

from tts_core.errors import EngineError, VoxwireError

from . import torch_wire as wire
from .checkpoint import Checkpoint
from .frames import FrameBatch, FrameRequest
from .prompt import build_prompt
from .reference import ReferenceModel
from .sampling import Sampling

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_RECEIVE = 1 << 16


def main(fd: int) -> None:
    """Serve the other end of ``fd`` until it goes away; never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with socket.socket(fileno=fd) as sock:
        sock.setblocking(True)
        try:
            Worker(sock).run()
        except (EOFError, OSError):
            log.debug("the engine is gone")
    os._exit(0)


class Worker:
    """The loop of one worker over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = wire.Reader()
        self._turns: deque[tuple[int, Iterator[FrameBatch]]] = deque()

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the engine is gone."""
        messages = self._receive()
        while not messages:
            messages = self._receive()
        if not isinstance(messages[0], wire.Load):
            raise wire.WireError("the first message must be Load")
        try:
            model, seconds = load(messages[0])
        except VoxwireError as error:
            self._send(wire.Failed.of(0, error))
            return
        except Exception:
            log.exception("worker cannot start")
            self._send(wire.Failed.of(0, EngineError("the model could not be loaded")))
            return
        self._send(wire.Ready(seconds))
        while True:
            while not self._turns or select.select((self._sock,), (), (), 0)[0]:
                for message in self._receive():
                    self._take(model, message)
            self._step()

    def _take(self, model: ReferenceModel, message: wire.Message) -> None:
        if isinstance(message, wire.Generate):
            try:
                # Its first frame is the next thing made: who waits for a first sound waits most.
                self._turns.appendleft((message.id, model.frames(message.request())))
            except VoxwireError as error:
                self._send(wire.Failed.of(message.id, error))
        elif isinstance(message, wire.Cancel):
            self._turns = deque(turn for turn in self._turns if turn[0] != message.id)
        else:
            raise wire.WireError("only Generate and Cancel may come once loaded")

    def _step(self) -> None:
        """One frame of the request whose turn it is."""
        ident, frames = self._turns.popleft()
        started = time.perf_counter()
        try:
            batch = next(frames)
        except VoxwireError as error:
            self._send(wire.Failed.of(ident, error))
            return
        except Exception:
            log.exception("request failed")
            self._send(wire.Failed.of(ident, EngineError("the model failed on this text")))
            return
        if not batch.finish:
            self._turns.append((ident, frames))
        self._send(wire.Frames.of(ident, batch, time.perf_counter() - started))

    def _receive(self) -> list[wire.Message]:
        data = self._sock.recv(_RECEIVE)
        if not data:
            raise EOFError
        return self._reader.feed(data)

    def _send(self, message: wire.Message) -> None:
        self._sock.sendall(wire.encode(message))


def load(order: wire.Load) -> tuple[ReferenceModel, float]:
    """Load the model and speak two frames, so that no caller pays for first-time work; seconds it took.

    Raises:
        SettingsError: the checkpoint cannot be served.
    """
    started = time.perf_counter()
    if order.threads:
        torch.set_num_threads(order.threads)
    model = ReferenceModel.load(Checkpoint.open(Path(order.directory)), order.dtype)
    ids = build_prompt(model.config, (0,))
    for _ in model.frames(FrameRequest("warm", ids, None, Sampling(max_frames=2))):
        pass
    return model, time.perf_counter() - started
