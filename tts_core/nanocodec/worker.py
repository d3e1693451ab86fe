"""A codec process: decodes the streams, or encodes the clips, of the service that started it.

It opens no connection and reads one file. One thread each: on a CPU the work is bound by arithmetic, and
threads would only share a core with the next process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..child.failure import Failed
from ..child.frames import FrameError, numbers, raw
from ..child.serve import Channel, handshake, serve
from ..errors import VoxwireError
from . import wire
from .backends import Decoder, open_decoder
from .batcher import Batcher
from .fsq import CHANNELS

WARM_UP = (1, 2, 4, 8)
"""Frames decoded before the process is ready: the sizes of the ramp, so that no caller pays for first use."""

_ENCODER_NICENESS = 10
"""Enrolling a voice is never as urgent as a call in progress on the same core."""

_Serve = Callable[[], None]


def main(fd: int) -> None:
    """Serve the service at the other end of ``fd`` until it goes away; never returns."""
    serve(fd, lambda sock: Worker(sock).run())


class Worker:
    """The loop of one process over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock, wire.LANGUAGE)

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the service is gone."""
        handshake(self._channel, wire.Configure, self._load, failure="the codec could not be loaded")

    def _load(self, configure: wire.Configure) -> tuple[wire.Ready, _Serve]:
        encodes = configure.role == "encode"
        return wire.Ready(), self._encoding(configure) if encodes else self._decoding(configure)

    # -- decoding -------------------------------------------------------------------------------------

    def _decoding(self, configure: wire.Configure) -> _Serve:
        decoder = open_decoder(configure.backend, Path(configure.model), device=configure.device)
        warm_up(decoder)
        batcher = Batcher(configure.batch_frames)

        def serving() -> None:
            while True:
                while not len(batcher) or self._channel.waiting():
                    self._take(*self._channel.receive(), batcher, decoder)
                self._step(batcher, decoder)

        return serving

    def _take(self, message: wire.Message, payload: memoryview, batcher: Batcher, decoder: Decoder) -> None:
        if isinstance(message, wire.Close):
            batcher.close(message.stream)
        elif isinstance(message, wire.Codes) and len(payload):
            codes = numbers(payload, np.uint8, CHANNELS)
            if not batcher.knows(message.stream):
                batcher.open(message.stream, decoder.new_state())
            batcher.submit(message.stream, message.request, codes)
        else:
            raise FrameError("a decoding process takes codes and Close")

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
            self._channel.send(wire.Samples(done.stream, done.request), raw(done.samples))
        self._channel.send(wire.Step(batch.codes.shape[0] * batch.codes.shape[1], busy))

    # -- encoding -------------------------------------------------------------------------------------

    def _encoding(self, configure: wire.Configure) -> _Serve:
        os.nice(_ENCODER_NICENESS)
        import torch

        from .encoder import Encoder

        torch.set_num_threads(1)
        encoder = Encoder.load(Path(configure.model))

        def serving() -> None:
            while True:
                message, payload = self._channel.receive()
                if not isinstance(message, wire.Samples):
                    raise FrameError("an encoding process takes samples")
                try:
                    codes = encoder.encode(numbers(payload, np.float32))
                except VoxwireError as error:
                    self._channel.send(Failed.of(message.request, error))
                else:
                    self._channel.send(wire.Codes(0, message.request), raw(codes))

        return serving


def warm_up(decoder: Decoder) -> None:
    """Decode some frames of silence in the sizes that will come."""
    for count in WARM_UP:
        decoder.step(np.zeros((1, count, CHANNELS), np.uint8), [decoder.new_state()])
