"""The built-in engine, in worker processes (``tts_core.pool``).

The network does not scale over threads of one process, so there is one worker per core.
"""

from __future__ import annotations

from collections.abc import Callable

from ..engine import EngineInfo, Samples
from ..errors import EngineError
from ..pool.engine import PoolEngine
from . import wire
from .gain import MAKE_UP
from .link import WorkerLink, open_link
from .trim import Trim
from .voices import available, revision

RATE = 24_000
SPEEDS = (0.5, 2.0)


class EmbeddedEngine(PoolEngine[wire.Message]):
    """The built-in voice on the CPU. Fulfils ``tts_core.engine.Engine``.

    24 kHz; word marks with the first chunk of the sentence they belong to; cannot clone. The same text,
    voice, speed and seed give the same samples; without a seed it is derived from the text.

    Args:
        workers: worker processes, each one core and about 250 MB; None for one per core this process may use.
        speed: speed of a request that asks for 1.0; multiplied with the request's own.
        trim: how much silence is kept (``Trim``).
        gain: make-up gain before the soft limiter.
        home: directory of further voices; None for ``HIBARI_HOME``.
        durations: False to do as if the model did not tell durations.

    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        speed: float = 1.0,
        trim: Trim | None = None,
        gain: float = MAKE_UP,
        home: str | None = None,
        durations: bool = True,
    ) -> None:
        self._trim = trim or Trim()
        self._gain = gain
        self._durations = durations
        self._voices = available(home)
        info = EngineInfo(
            name="embedded",
            revision=revision(tuple(v for v, _ in self._voices)),
            native_rate=RATE,
            voices=tuple(v.info for v, _ in self._voices),
            speed_range=SPEEDS,
        )
        super().__init__(info, workers, name="the built-in voice", speed=speed)

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """Raise EngineError: the built-in voice cannot be changed."""
        raise EngineError("the built-in engine cannot clone voices")

    def _open(
        self, on_message: Callable[[wire.Message, memoryview], None], on_lost: Callable[[], None]
    ) -> WorkerLink:
        return open_link(on_message, on_lost)

    def _configure(self) -> wire.Configure:
        return wire.Configure(
            voices=tuple(wire.VoiceFile(v.id, str(path), v.sha256, v.british) for v, path in self._voices),
            trim=self._trim,
            gain=self._gain,
            durations=self._durations,
        )
