"""An engine of the pool without a model: a worker that makes a tone for each word.

Its texts may ask for more: a word "pause" stops until the worker is killed or told to stop; "fault" raises;
"refuse" raises with words of ours; "die" ends the process.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tts_core.child.failure import Failed
from tts_core.child.frames import Language
from tts_core.child.link import Link
from tts_core.child.program import Program
from tts_core.child.serve import serve
from tts_core.engine import EngineInfo, Samples, VoiceInfo
from tts_core.errors import EngineError
from tts_core.pool.engine import PoolEngine
from tts_core.pool.wire import Audio, Cancel, Done, Ready, Speak
from tts_core.pool.worker import PoolWorker

RATE = 16000


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """``refuse``: fail to load, with these words."""

    refuse: str = ""


Message = Configure | Speak | Cancel | Ready | Audio | Done | Failed
LANGUAGE: Language[Message] = Language(Message)
PROGRAM = Program("a worker of the toy", "tests.tts_core.pool.toy:main", 60.0)


@dataclass(frozen=True)
class Block:
    pcm: Samples
    marks: tuple[tuple[int, int, int, int], ...]
    last: bool


class Toy:
    """A tone of 0.25 s a word, a block each."""

    def speak(self, text: str, speed: float, seed: int | None, stop: Callable[[], bool]) -> Iterator[Block]:
        words = [m for m in re.finditer(r"\S+", text) if any(c.isalnum() for c in m.group())]
        at = 0
        for i, word in enumerate(words):
            if word.group() == "pause":
                while not stop():
                    time.sleep(0.001)
                return
            if word.group() == "fault":
                raise RuntimeError(f"a secret: {text}")
            if word.group() == "refuse":
                raise EngineError("the voice is broken")
            if word.group() == "die":
                os._exit(3)
            size = round(RATE / 4 / speed)
            pcm = (0.3 * np.sin(np.arange(size) * (0.1 + (seed or 0) % 7 / 100))).astype(np.float32)
            yield Block(pcm, ((word.start(), word.end(), at, at + size),), i == len(words) - 1)
            at += size


class Worker(PoolWorker[Configure, Message]):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, LANGUAGE, Configure, name="the toy", rate=RATE)

    def load(self, configure: Configure) -> tuple[dict[str, Toy], Ready]:
        if configure.refuse:
            raise EngineError(configure.refuse)
        return {"toy": Toy()}, Ready(1.0, 0.01)


def main(fd: int) -> None:
    """A worker's program."""
    serve(fd, lambda sock: Worker(sock).run())


def dies(fd: int) -> None:
    """A program that does not come up."""
    os._exit(1)


class ToyEngine(PoolEngine[Message]):
    """See the module; ``entry`` may be changed for the workers to come."""

    def __init__(
        self, workers: int = 1, *, refuse: str = "", stuck_s: float = 30.0, speed: float = 1.0
    ) -> None:
        info = EngineInfo("toy", "1", RATE, (VoiceInfo("toy", "Toy"),))
        super().__init__(info, workers, name="the toy", speed=speed)
        self.refuse, self.entry, self.patience = refuse, PROGRAM.entry, stuck_s

    @property
    def stuck_s(self) -> float:
        return self.patience

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        raise EngineError("the toy cannot clone")

    def _open(
        self, on_message: Callable[[Message, memoryview], None], on_lost: Callable[[], None]
    ) -> Link[Message, Ready]:
        program = replace(PROGRAM, entry=self.entry)
        return Link(program, LANGUAGE, Ready, on_message, on_lost)

    def _configure(self) -> Configure:
        return Configure(self.refuse)
