"""The engine: Piper's voices of a folder, in worker processes (``tts_core.pool``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..engine import EngineInfo, Samples
from ..errors import EngineError, SettingsError
from ..pool.engine import PoolEngine
from . import wire
from .link import WorkerLink, open_link
from .voices import SPEAKER, common_rate, find, languages, revision

SPEEDS = (0.5, 2.0)
LOADED = 4
"""Voices that a worker holds loaded, about 120 MB each; another one is read when it is first asked for."""
STUCK_S = 15.0
"""A piece of a sentence is one step of the network: up to two seconds on a busy core, and reading a voice
takes some more.
"""


class PiperEngine(PoolEngine[wire.Message]):
    """Piper's voices on the CPU. Fulfils ``tts_core.engine.Engine``.

    Its rate is the highest among the voices, or the next that is usual; the others are brought to it. Audio
    comes sentence by sentence, a long one in pieces, with its word marks. They are the model's own phoneme
    durations where ``onnx`` is installed beside ``piper-tts``, else phonemes are taken to be equally long.

    Piper draws its noise inside the network, unseeded. A request with a seed is spoken without noise: the
    same text, voice and speed then give the same samples, whatever the seed is. Without one, no two are
    alike.

    Args:
        voices: folder of ``NAME.onnx`` with ``NAME.onnx.json``.
        python: interpreter that has ``piper-tts``; None for our own.
        workers: worker processes; None for one per core this process may use.
        loaded: voices that each of them holds loaded.
        speed: speed of a request that asks for 1.0; multiplied with the request's own.

    Raises:
        SettingsError: there is no voice in the folder, or no such interpreter.
    """

    def __init__(
        self,
        voices: Path | None = None,
        *,
        python: Path | None = None,
        workers: int | None = None,
        loaded: int = LOADED,
        speed: float = 1.0,
    ) -> None:
        self._voices = find(voices)
        if python is not None and not os.access(python, os.X_OK):
            raise SettingsError("VOXWIRE_PIPER_PYTHON is not a program; it is a Python that has piper-tts")
        self._python = str(python or "")
        self._loaded = loaded
        super().__init__(
            EngineInfo(
                name="piper",
                revision=revision(self._voices),
                native_rate=common_rate(self._voices),
                voices=tuple(info for voice in self._voices for info in voice.infos),
                languages=languages(self._voices),
                speed_range=SPEEDS,
            ),
            workers,
            name="piper",
            speed=speed,
        )

    @property
    def stuck_s(self) -> float:
        """See ``STUCK_S``."""
        return STUCK_S

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """Raise EngineError: these voices cannot be changed."""
        raise EngineError("piper cannot clone voices")

    def _open(
        self, on_message: Callable[[wire.Message, memoryview], None], on_lost: Callable[[], None]
    ) -> WorkerLink:
        return open_link(self._python, on_message, on_lost)

    def _configure(self) -> wire.Configure:
        return wire.Configure(
            voices=tuple(
                wire.VoiceFile(
                    str(v.path), ((v.name, None), *((v.name + SPEAKER + s, n) for s, n in v.speakers))
                )
                for v in self._voices
            ),
            rate=self._info.native_rate,
            loaded=self._loaded,
        )
