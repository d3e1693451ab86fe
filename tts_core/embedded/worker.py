"""A worker process: speaks one request at a time for the engine that started it.

It opens no network connection: everything is read from files that were verified by hash.
"""

from __future__ import annotations

import gc
import logging
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ..child.failure import Failed
from ..child.frames import FrameError, raw
from ..child.serve import Channel, handshake, serve
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


def main(fd: int) -> None:
    """Serve the engine at the other end of ``fd`` until it goes away; never returns."""
    # Nothing made while loading is garbage; warm_up turns the collector on again.
    gc.disable()
    # The audio must not depend on whether SciPy happens to be installed, and importing it costs 0.2 s.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    serve(fd, lambda sock: Worker(sock).run())


class Worker:
    """The loop of one worker over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock, wire.LANGUAGE)
        self._cancelled = 0

    def run(self) -> None:
        """Load, then serve. Raises EOFError when the engine is gone."""
        handshake(self._channel, wire.Configure, self._load, failure="the built-in voice could not be loaded")

    def _load(self, configure: wire.Configure) -> tuple[wire.Ready, Callable[[], None]]:
        speakers = load(configure)
        audio_s, busy_s = warm_up(speakers)

        def serving() -> None:
            while True:
                message, _ = self._channel.receive()
                if isinstance(message, wire.Speak):
                    self._speak(message, speakers[message.voice])

        return wire.Ready(audio_s, busy_s), serving

    def _speak(self, request: wire.Speak, speaker: Speaker) -> None:
        from .vocoder import RATE

        started = time.perf_counter()
        at = 0

        def stop() -> bool:
            return self._is_cancelled(request.id)

        try:
            block = None
            for block in speaker.speak(request.text, request.speed, request.seed, stop):
                self._channel.send(wire.Audio(request.id, at, block.last, block.marks), raw(block.pcm))
                at += len(block.pcm)
                if stop():
                    break
            if block is None and not stop():
                self._channel.send(wire.Audio(request.id, 0, True, ()))
        except (OSError, EOFError, FrameError):
            raise
        except Exception:
            log.exception("request failed")
            error = EngineError("the built-in voice failed on this text")
            self._channel.send(Failed.of(request.id, error))
        self._channel.send(wire.Done(request.id, at / RATE, time.perf_counter() - started))

    def _is_cancelled(self, request: int) -> bool:
        while self._channel.waiting():
            message, _ = self._channel.receive()
            if not isinstance(message, wire.Cancel):
                raise FrameError("only Cancel may come while a request runs")
            self._cancelled = message.id
        return self._cancelled == request


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
