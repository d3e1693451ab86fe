"""A gateway inside the test: the real application on a real port, with an engine that speaks a tone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from gateway.app import create_app, runner
from gateway.services import SERVICES, Services
from gateway.settings import Settings
from tts_core.engine import Capacity, EngineInfo, Samples, SpeechChunk, SpeechRequest, VoiceInfo, WordMark
from tts_core.errors import EngineError


class ToneEngine:
    """The engine contract without a model: 60 ms of tone a character, in chunks of 100 ms, at once."""

    def __init__(self) -> None:
        self.info = EngineInfo(
            name="tone",
            revision="1",
            native_rate=24000,
            voices=(VoiceInfo("tone", "Tone"), VoiceInfo("other", "Other", gender="female")),
        )
        self.alive = 0
        self.requests: list[SpeechRequest] = []

    async def start(self) -> None:
        self.alive = 1

    async def close(self) -> None:
        self.alive = 0

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        raise EngineError("this engine cannot clone")

    def capacity(self) -> Capacity:
        return Capacity(xrt=200.0, slots=4, free=4, queued=0, alive=self.alive)

    async def synthesize(self, request: SpeechRequest) -> AsyncIterator[SpeechChunk]:
        self.requests.append(request)
        total = 1440 * len(request.text)
        tone = (0.3 * np.sin(np.arange(total) * 2 * np.pi * 440 / 24000)).astype(np.float32)
        marks, at = [], 0
        for word in request.text.split():
            start = request.text.index(word, at)
            at = start + len(word)
            marks.append(WordMark(start, at, 1440 * start, 1440 * at))
        for first in range(0, max(total, 1), 2400):
            end = first + 2400
            words = tuple(mark for mark in marks if first <= mark.sample_start < end)
            yield SpeechChunk(tone[first:end], first, words, last=end >= total)
            await asyncio.sleep(0)


@dataclass(slots=True)
class Running:
    """A gateway that listens: its address and its inside."""

    url: str
    port: int
    app: web.Application
    services: Services
    engine: ToneEngine

    @property
    def key(self) -> str:
        """The generated key of this machine."""
        return (self.services.settings.data_dir / "local.key").read_text().strip()


Start = Callable[..., Awaitable[Running]]


async def open_gateway(stack: contextlib.AsyncExitStack, folder: Path, **values: Any) -> Running:
    """Start a gateway with these settings on a free port; it is stopped with ``stack``."""
    settings = replace(Settings(data_dir=folder, port=0), **values)
    engine = ToneEngine()
    app = create_app(settings, engine=engine)
    made = runner(app)
    stack.push_async_callback(made.cleanup)
    await made.setup()
    await web.TCPSite(made, settings.host, settings.port).start()
    port = made.addresses[0][1]
    return Running(f"http://127.0.0.1:{port}", port, app, app[SERVICES], engine)
