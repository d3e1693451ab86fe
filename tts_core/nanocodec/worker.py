"""A codec process: decodes the streams, or encodes the clips, of the service that started it.

Started as ``python -c "from tts_core.nanocodec.worker import main; main(FD)"`` with one end of a socket pair.
It ends when the other end closes, and the kernel ends it when its parent dies. It opens no connection and
reads one file. One thread each: on a CPU the work is bound by arithmetic, and threads would only share a core
with the next process.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..errors import VoxwireError
from . import wire
from .backends import Decoder, open_decoder
from .batcher import Batcher
from .fsq import CHANNELS

log = logging.getLogger(__name__)

WARM_UP = (1, 2, 4, 8)
"""Frames decoded before the process is ready: the sizes of the ramp, so that no caller pays for first use."""

_Serve = Callable[[], None]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ENCODER_NICENESS = 10
"""Enrolling a voice is never as urgent as a call in progress on the same core."""


def main(fd: int) -> None:
    """Serve the service at the other end of ``fd`` until it goes away; never returns."""
    _die_with_parent()
    with socket.socket(fileno=fd) as sock:
        sock.setblocking(True)
        try:
            Worker(sock).run()
        except (EOFError, OSError):
            log.debug("the service is gone")
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        log.debug("no parent-death signal here; the end of the socket serves")


class Worker:
    """The loop of one process over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = wire.Reader()

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the service is gone."""
        configure = self._receive()
        if not isinstance(configure, wire.Configure):
            raise wire.WireError("the first message must be Configure")
        try:
            encodes = configure.role == "encode"
            serve = self._encoding(configure) if encodes else self._decoding(configure)
        except VoxwireError as error:
            self._send(wire.Failed(0, error.message))
            return
        except Exception:
            log.exception("codec process cannot start")
            self._send(wire.Failed(0, "the codec could not be loaded"))
            return
        self._send(wire.Ready())
        serve()

    # -- decoding -------------------------------------------------------------------------------------

    def _decoding(self, configure: wire.Configure) -> _Serve:
        decoder = open_decoder(configure.backend, Path(configure.model), device=configure.device)
        warm_up(decoder)
        batcher = Batcher(configure.batch_frames)

        def serve() -> None:
            while True:
                while not len(batcher) or self._has_more():
                    self._take(self._receive(), batcher, decoder)
                self._step(batcher, decoder)

        return serve

    def _take(self, message: wire.Message | wire.Data, batcher: Batcher, decoder: Decoder) -> None:
        if isinstance(message, wire.Close):
            batcher.close(message.stream)
        elif isinstance(message, wire.Data) and message.array.dtype == np.uint8 and len(message.array):
            if not batcher.knows(message.stream):
                batcher.open(message.stream, decoder.new_state())
            batcher.submit(message.stream, message.request, message.array)
        else:
            raise wire.WireError("a decoding process takes codes and Close")

    def _step(self, batcher: Batcher, decoder: Decoder) -> None:
        batch = batcher.next()
        if batch is None:
            return
        started = time.perf_counter()
        # An error here is none of a stream's doing (its codes were checked): the process is not to be
        # trusted any more, and its end is what tells the service.
        samples, states = decoder.step(batch.codes, batch.states)
        finished = batcher.done(batch, samples, states)
        busy = time.perf_counter() - started
        for done in finished:
            self._send(wire.Data(done.stream, done.request, done.samples))
        self._send(wire.Step(batch.codes.shape[0] * batch.codes.shape[1], busy))

    # -- encoding -------------------------------------------------------------------------------------

    def _encoding(self, configure: wire.Configure) -> _Serve:
        os.nice(_ENCODER_NICENESS)
        import torch

        from .encoder import Encoder

        torch.set_num_threads(1)
        encoder = Encoder.load(Path(configure.model))

        def serve() -> None:
            while True:
                message = self._receive()
                if not isinstance(message, wire.Data) or message.array.dtype != np.float32:
                    raise wire.WireError("an encoding process takes samples")
                try:
                    codes = encoder.encode(message.array)
                except VoxwireError as error:
                    self._send(wire.Failed(message.request, error.message))
                else:
                    self._send(wire.Data(0, message.request, codes))

        return serve

    # -- socket ---------------------------------------------------------------------------------------

    def _has_more(self) -> bool:
        return bool(select.select((self._sock,), (), (), 0)[0])

    def _receive(self) -> wire.Message | wire.Data:
        while True:
            count = self._sock.recv_into(self._reader.buffer())
            if not count:
                raise EOFError
            message = self._reader.received(count)
            if message is not None:
                return message

    def _send(self, message: wire.Message | wire.Data) -> None:
        head, body = wire.encode(message)
        self._sock.sendall(head)
        if body:
            self._sock.sendall(body)


def warm_up(decoder: Decoder) -> None:
    """Decode some frames of silence in the sizes that will come."""
    for count in WARM_UP:
        decoder.step(np.zeros((1, count, CHANNELS), np.uint8), [decoder.new_state()])
