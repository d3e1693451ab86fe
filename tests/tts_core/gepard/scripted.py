"""A model of frames and a codec that do as they are told, in the loop's time: for what real ones do rarely.

A frame is ``[n % 8, 0, ...]`` for the n-th, and sounds as 1024 samples of a level of its own, so that a test
can tell which frames it hears.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tts_core.engine import Samples
from tts_core.errors import EngineCrashed, EngineError, VoxwireError
from tts_core.gepard.budget import FRAME_S
from tts_core.gepard.frames import Finish, FrameBatch, FrameRequest
from tts_core.nanocodec import fsq


@dataclass
class Script:
    """One request: how many frames before it stops (None: never), how sure, and what goes wrong when."""

    frames: int | None = 20
    entropy: Sequence[float] = (0.5,)
    silent: int = 0
    fail_at: int | None = None
    error: VoxwireError = field(default_factory=lambda: EngineCrashed("scripted"))


class ScriptedModel:
    """A FrameModel; the scripts are used up one a request, the last one for all that follow."""

    def __init__(self, *scripts: Script, step_s: float = FRAME_S / 15, slots: int = 4) -> None:
        self.scripts = list(scripts) or [Script()]
        self.step_s = step_s
        self.slots = slots
        self.running = 0
        self.alive = False
        self.starts = 0
        self.refuses: list[VoxwireError] = []
        self.requests: list[FrameRequest] = []
        self.forgotten: list[str] = []

    async def start(self) -> None:
        self.starts += 1
        if self.refuses:
            raise self.refuses.pop(0)
        self.alive = True

    async def close(self) -> None:
        self.alive = False

    async def stats(self) -> dict[str, float]:
        return {}

    async def forget(self, fingerprint: str) -> None:
        self.forgotten.append(fingerprint)

    async def generate(self, request: FrameRequest) -> AsyncGenerator[FrameBatch, None]:
        self.requests.append(request)
        script = self._script(request)
        loop = asyncio.get_running_loop()
        cap = request.sampling.max_frames
        stops = script.frames is not None and script.frames < cap
        total = cap if script.frames is None else min(cap, script.frames)
        began, made = loop.time(), 0
        finish: Finish = ""
        self.running += 1
        try:
            while not finish:
                # Frame n is there after n + 1 steps, the stop a step after the last.
                ready = int((loop.time() - began) / self.step_s + 1e-6)
                if ready <= made:
                    await asyncio.sleep(began + (made + 1) * self.step_s - loop.time())
                    continue
                upto = min(ready, total)
                if not self.alive:
                    raise EngineCrashed("scripted")
                if script.fail_at is not None and upto > script.fail_at:
                    raise script.error
                numbers = range(made, upto)
                codes = np.zeros((len(numbers), fsq.CHANNELS), np.uint8)
                codes[:, 0] = [0 if n < script.silent else 1 + n % 7 for n in numbers]
                entropy = [script.entropy[min(n, len(script.entropy) - 1)] for n in numbers]
                made = upto
                if made == total and not stops:
                    finish = "length"
                elif ready > total:
                    finish = "stop"
                yield FrameBatch(codes, np.array(entropy, np.float32), finish)
        finally:
            self.running -= 1

    def _script(self, request: FrameRequest) -> Script:
        if request.id.startswith("warm"):
            return Script(None)
        return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]


class PlainStream:
    """A CodecStream."""

    def __init__(self, codec: PlainCodec) -> None:
        self._codec = codec
        self._closed = False

    def decode(self, codes: fsq.Codes) -> asyncio.Future[Samples]:
        if self._closed:
            raise EngineError("closed")
        self._codec.sizes.append(len(codes))
        return asyncio.ensure_future(self._decode(codes))

    async def _decode(self, codes: fsq.Codes) -> Samples:
        await asyncio.sleep(self._codec.frame_s * len(codes))
        if self._codec.fails:
            raise self._codec.fails.pop(0)
        return sound(codes)

    def close(self) -> None:
        if not self._closed:
            self._codec.open_streams -= 1
        self._closed = True


class PlainCodec:
    """A CodecService whose frames sound as their first code says: 0 is silence."""

    def __init__(self, *, frame_s: float = 0.001) -> None:
        self.frame_s = frame_s
        self.alive = False
        self.duty = 0.25
        self.open_streams = 0
        self.sizes: list[int] = []
        self.fails: list[VoxwireError] = []

    async def start(self) -> None:
        self.alive = True

    async def close(self) -> None:
        self.alive = False

    def open(self) -> PlainStream:
        if not self.alive:
            raise EngineError("not running")
        self.open_streams += 1
        return PlainStream(self)

    async def encode(self, pcm: Samples) -> fsq.Codes:
        count = -(-len(pcm) // fsq.SAMPLES_PER_FRAME)
        return np.ones((count, fsq.CHANNELS), np.uint8)


def sound(codes: fsq.Codes) -> Samples:
    """What frames sound like: a level each."""
    levels = codes[:, 0].astype(np.float32) / 10
    return np.repeat(levels, fsq.SAMPLES_PER_FRAME)


def numbers(pcm: Samples) -> list[int]:
    """The first codes of the frames in ``pcm``, which must be whole ones."""
    frames = pcm.reshape(-1, fsq.SAMPLES_PER_FRAME)
    assert np.all(frames == frames[:, :1])
    return [round(float(level) * 10) for level in frames[:, 0]]
