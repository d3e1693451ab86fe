"""A worker process: speaks one request at a time for the engine that started it.

It opens no network connection: everything is read from files that were verified by hash.
"""

from __future__ import annotations

import gc
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ..child.serve import serve
from ..pool.worker import PoolWorker
from . import wire
from .voices import assets, read_verified

if TYPE_CHECKING:
    from .model import Acoustics
    from .speaker import Speaker

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


class Worker(PoolWorker[wire.Configure, wire.Message]):
    """The loop of one worker over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        from .vocoder import RATE

        super().__init__(sock, wire.LANGUAGE, wire.Configure, name="the built-in voice", rate=RATE)

    def load(self, configure: wire.Configure) -> tuple[dict[str, Speaker], wire.Ready]:
        """Load and warm up."""
        speakers = load(configure)
        return speakers, wire.Ready(*warm_up(speakers))


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
