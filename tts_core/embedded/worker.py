"""A worker process: speaks one request at a time for the engine that started it.

Started as ``python -c "from tts_core.embedded.worker import main; main(FD)"`` with one end of a socket
pair. It ends when the other end closes, and the kernel ends it when its parent dies, even in the middle of
a run. It opens no network connection: everything is read from files that were verified by hash.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import EngineError
from . import wire
from .voices import assets, read_verified

if TYPE_CHECKING:
    from .model import Acoustics
    from .speaker import Speaker

log = logging.getLogger(__name__)

WARM_UP = (
    "Okay.",
    "I can help you with that order right now, just one moment please.",
)
"""Spoken once per voice before the worker is ready, so that no caller pays for first-time work."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(fd: int) -> None:
    """Serve the engine at the other end of ``fd`` until it goes away; never returns."""
    _die_with_parent()
    # Nothing made while loading is garbage; warm_up turns the collector on again.
    gc.disable()
    # The audio must not depend on whether SciPy happens to be installed, and importing it costs 0.2 s.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    with socket.socket(fileno=fd) as sock:
        sock.setblocking(True)
        try:
            Worker(sock).run()
        except (EOFError, OSError):
            log.debug("the engine is gone")
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        log.debug("no parent-death signal here; the end of the socket serves")


class Worker:
    """The loop of one worker over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = wire.Reader()
        self._cancelled = 0

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the engine is gone."""
        configure = self._receive()
        if not isinstance(configure, wire.Configure):
            raise wire.WireError("the first message must be Configure")
        try:
            speakers = load(configure)
            audio_s, busy_s = warm_up(speakers)
        except EngineError as error:
            self._send(wire.Failed(0, error.message))
            return
        except Exception:
            log.exception("worker cannot start")
            self._send(wire.Failed(0, "the built-in voice could not be loaded"))
            return
        self._send(wire.Ready(audio_s, busy_s))
        while True:
            message = self._receive()
            if isinstance(message, wire.Speak):
                self._speak(message, speakers[message.voice])

    def _speak(self, request: wire.Speak, speaker: Speaker) -> None:
        from .vocoder import RATE

        started = time.perf_counter()
        at = 0

        def stop() -> bool:
            return self._is_cancelled(request.id)

        try:
            block = None
            for block in speaker.speak(request.text, request.speed, request.seed, stop):
                self._send(wire.Audio(request.id, at, block.last, block.marks, block.pcm))
                at += len(block.pcm)
                if stop():
                    break
            if block is None and not stop():
                self._send(wire.Audio(request.id, 0, True, (), wire.NO_SAMPLES))
        except (OSError, EOFError, wire.WireError):
            raise
        except Exception:
            log.exception("request failed")
            self._send(wire.Failed(request.id, "the built-in voice failed on this text"))
        self._send(wire.Done(request.id, at / RATE, time.perf_counter() - started))

    def _is_cancelled(self, request: int) -> bool:
        while select.select((self._sock,), (), (), 0)[0]:
            message = self._receive()
            if not isinstance(message, wire.Cancel):
                raise wire.WireError("only Cancel may come while a request runs")
            self._cancelled = message.id
        return self._cancelled == request

    def _receive(self) -> wire.Message | wire.Audio:
        while True:
            count = self._sock.recv_into(self._reader.buffer())
            if not count:
                raise EOFError
            message = self._reader.received(count)
            if message is not None:
                return message

    def _send(self, message: wire.Message | wire.Audio) -> None:
        head, samples = wire.encode(message)
        self._sock.sendall(head)
        if samples:
            self._sock.sendall(samples)


def load(configure: wire.Configure) -> dict[str, Speaker]:
    """Load every voice. The network loads in a thread beside the lexicon: it does not hold the lock.

    Raises:
        EngineError: a model file is not the released one.

    """
    from .speaker import Speaker

    def network(voice: wire.VoiceFile) -> Acoustics:
        from .model import Acoustics

        return Acoustics(
            read_verified(voice.id, Path(voice.path), voice.sha256), durations=configure.durations
        )

    with ThreadPoolExecutor(1) as beside:
        networks = [beside.submit(network, v) for v in configure.voices]
        from .phones import Pronouncer, vocabulary

        directory = assets()
        ids = vocabulary(directory)
        pronouncers = {
            british: Pronouncer(directory, british=british)
            for british in dict.fromkeys(v.british for v in configure.voices)
        }
        return {
            voice.id: Speaker(
                voice.id,
                net.result(),
                pronouncers[voice.british],
                ids,
                trim=configure.trim,
                gain=configure.gain,
            )
            for voice, net in zip(configure.voices, networks, strict=True)
        }


def warm_up(speakers: dict[str, Speaker]) -> tuple[float, float]:
    """Speak once with every voice; seconds of audio and of wall time of the last, already warm, sentence."""
    from .vocoder import RATE

    audio = busy = 0.0
    for speaker in speakers.values():
        for text in WARM_UP:
            started = time.perf_counter()
            audio = sum(len(block.pcm) for block in speaker.speak(text)) / RATE
            busy = time.perf_counter() - started
    # The heaps of the lexicon never change again: keep the collector from walking them.
    gc.collect()
    gc.freeze()
    gc.enable()
    return audio, busy
