"""A worker process: speaks one request at a time with the voices of a folder.

It opens no network connection. Piper is imported here and nowhere else.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..child.serve import serve
from ..errors import EngineError
from ..pool.worker import PoolWorker
from . import wire
from .speaker import WARM_UP, Model, Speaker

RETRY_S = 60.0
"""A voice that could not be loaded is tried again after this long: a disk or memory may have been full."""


def main(fd: int) -> None:
    """Serve the engine at the other end of ``fd`` until it goes away; never returns."""
    logging.getLogger("piper").setLevel(logging.ERROR)  # it would write what is spoken
    serve(fd, lambda sock: Worker(sock).run())


class Worker(PoolWorker[wire.Configure, wire.Message]):
    """The loop of one worker over a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, wire.LANGUAGE, wire.Configure, name="piper")

    def load(self, configure: wire.Configure) -> tuple[Voices, wire.Ready]:
        """Load as many voices as are held at once, and speak with each."""
        self.rate = configure.rate
        voices = Voices(configure)
        audio = busy = 0.0
        for voice in configure.voices[: configure.loaded]:
            speaker = voices[voice.ids[0][0]]
            began = time.perf_counter()
            audio = sum(len(block.pcm) for block in speaker.speak(WARM_UP)) / self.rate
            busy = time.perf_counter() - began
        return voices, wire.Ready(audio, busy)


class Voices(Mapping[str, Speaker]):
    """The voices by id; those used last are held loaded, another one is read when it is asked for.

    One that cannot be loaded raises EngineError; so it does at once, and costs no other its place, until
    ``RETRY_S`` later, when it is tried again. ``clock`` in monotonic seconds.
    """

    def __init__(self, configure: wire.Configure, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rate, self._most = configure.rate, max(1, configure.loaded)
        self._files = {ident: (Path(v.path), number) for v in configure.voices for ident, number in v.ids}
        self._models: OrderedDict[Path, Model] = OrderedDict()
        self._broken: dict[Path, tuple[str, float]] = {}
        """What is wrong with those that could not be loaded, and when they are tried again."""

    def __getitem__(self, ident: str) -> Speaker:
        path, number = self._files[ident]
        model = self._models.get(path)
        if model is None:
            model = self._load(path)
        self._models.move_to_end(path)
        return model.speaker(number)

    def _load(self, path: Path) -> Model:
        wrong, until = self._broken.get(path, ("", 0.0))
        if self._clock() < until:
            raise EngineError(wrong)
        if len(self._models) >= self._most:
            self._models.popitem(last=False)
        try:
            model = self._models[path] = Model(path, self._rate)
        except EngineError as error:
            self._broken[path] = error.message, self._clock() + RETRY_S
            raise
        self._broken.pop(path, None)
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def loaded(self) -> list[str]:
        """File names of the models held, the one used last at the end."""
        return [path.name for path in self._models]
