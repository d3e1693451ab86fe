"""Requests in, spread over worker processes, chunks out.

Each worker works on one request at a time. Requests wait here, not in the workers: an abandoned one is gone
at once, and the most urgent goes first. A worker that dies is started again; the request it held is run once
more if nothing of it has been delivered, else it fails with EngineCrashed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, cast

import numpy as np

from ..child.failure import Failed
from ..child.frames import M, numbers
from ..child.link import Link
from ..engine import Capacity, EngineInfo, SpeechChunk, SpeechRequest, WordMark
from ..errors import BadRequest, EngineCrashed, EngineError, TextTooLong, UnknownVoice
from . import wire

log = logging.getLogger(__name__)

MAX_TEXT = 4000
"""Characters of one request; a segment is at most some hundred."""

STUCK_S = 3.0
"""Of an engine whose blocks are half a second of work apart at most."""

BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pause before starting a worker again, by how often in a row it died without finishing a request."""

GIVE_UP = 4
"""Failed starts in a row, with no worker alive, after which waiting requests fail instead of waiting on."""

_DECAY = 0.9
"""Weight of the past in the measured speed, per request."""


class _Job:
    """One request: waiting, at a worker, or over."""

    __slots__ = (
        "_changed",
        "cancelled",
        "chunks",
        "delivered",
        "ended",
        "error",
        "request",
        "retried",
        "running",
    )

    def __init__(self, request: SpeechRequest) -> None:
        self.request = request
        self.chunks: deque[SpeechChunk] = deque()
        self.error: EngineError | None = None
        self.delivered = False
        self.retried = False
        self.cancelled = False
        self.running = False
        self.ended = False
        self._changed = asyncio.Event()

    def put(self, chunk: SpeechChunk) -> None:
        self.chunks.append(chunk)
        self.ended = chunk.last
        self._changed.set()

    def fail(self, error: EngineError) -> None:
        if self.error is None:
            self.error = error
        self._changed.set()

    async def next(self) -> SpeechChunk:
        while not self.chunks:
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()
        self.delivered = True
        return self.chunks.popleft()


@dataclass(slots=True)
class _Seat(Generic[M]):
    """A place for a worker: the process in it changes, the seat stays."""

    link: Link[M, wire.Ready] | None = None
    ready: bool = False
    job: _Job | None = None
    job_id: int = 0
    watchdog: asyncio.TimerHandle | None = None
    deaths: int = 0
    restart: asyncio.Task[None] | None = None


class PoolEngine(ABC, Generic[M]):
    """An engine of workers. Fulfils ``tts_core.engine.Engine`` but for ``enroll``.

    Args:
        info: facts about the engine.
        workers: processes; None for one per core this process may use.
        name: of its workers in messages and the log, as in "a worker of the built-in voice".
        speed: speed of a request that asks for 1.0; multiplied with the request's own.

    """

    def __init__(self, info: EngineInfo, workers: int | None, *, name: str, speed: float = 1.0) -> None:
        self._info = info
        self._name = name
        self._speed = speed
        self._names = frozenset(v.id for v in info.voices)
        self._seats: list[_Seat[M]] = [_Seat() for _ in range(workers or len(os.sched_getaffinity(0)))]
        self._waiting: list[tuple[float, int, _Job]] = []
        self._queued = 0
        self._order = itertools.count()
        self._ids = itertools.count(1)
        self._started = False
        self._closed = False
        self._audio_s = 0.0
        self._busy_s = 0.0

    @property
    def stuck_s(self) -> float:
        """A worker that gives nothing for this long while it holds a request is killed.

        Its request can then still be run again, if that is before the listener's patience ends.
        """
        return STUCK_S

    @abstractmethod
    def _open(
        self, on_message: Callable[[M, memoryview], None], on_lost: Callable[[], None]
    ) -> Link[M, wire.Ready]:
        """A worker to start; a start that fails raises EngineError."""

    @abstractmethod
    def _configure(self) -> M:
        """The first message to a worker: what to load."""

    # -- contract -------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self._info

    async def start(self) -> None:
        """Start the workers and wait until all are warm. Raises EngineError when one cannot start."""
        if self._closed:
            raise EngineError("the engine is closed")
        if self._started:
            return
        self._started = True
        starts = [asyncio.ensure_future(self._launch(seat)) for seat in self._seats]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.close()
            raise

    async def close(self) -> None:
        """Kill the workers; running and waiting requests end with EngineError. Idempotent."""
        self._closed = True
        error = EngineError("the engine is closed")
        for _, _, job in self._waiting:
            job.fail(error)
        self._waiting.clear()
        self._queued = 0
        tasks: list[asyncio.Future[None]] = []
        for seat in self._seats:
            if seat.job is not None:
                seat.job.fail(error)
            self._vacate(seat)
            if seat.restart is not None:
                seat.restart.cancel()
                tasks.append(seat.restart)
            if seat.link is not None:
                tasks.append(asyncio.ensure_future(seat.link.close()))
            seat.ready = False
        await asyncio.gather(*tasks, return_exceptions=True)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Speak one segment; see ``Engine.synthesize``. It is queued when the first chunk is asked for.

        Raises:
            BadRequest: speed out of range, or a conditioning, which none of these voices has.
            UnknownVoice: no such voice.
            TextTooLong: more than ``MAX_TEXT`` characters.
            EngineCrashed: the worker died after part of the audio was delivered, or twice.
            EngineError: not started, closed, or the worker failed on this text.

        """
        self._check(request)
        job = _Job(request)
        self._enqueue(job)
        try:
            while True:
                chunk = await job.next()
                yield chunk
                if chunk.last:
                    return
        finally:
            self._drop(job)

    def capacity(self) -> Capacity:
        """Measured speed of the workers alive, and the present load."""
        alive = sum(seat.ready for seat in self._seats)
        one = self._audio_s / self._busy_s if self._busy_s > 0 else 0.0
        return Capacity(
            xrt=one * alive,
            slots=len(self._seats),
            free=sum(seat.ready and seat.job is None for seat in self._seats),
            queued=self._queued,
            alive=alive,
        )

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers alive."""
        return tuple(
            s.link.pid for s in self._seats if s.ready and s.link is not None and s.link.pid is not None
        )

    # -- requests -------------------------------------------------------------------------------------

    def _check(self, request: SpeechRequest) -> None:
        if self._closed or not self._started:
            raise EngineError("the engine is not running")
        if request.voice not in self._names:
            raise UnknownVoice("there is no such voice", field="voice")
        if request.conditioning is not None:
            raise BadRequest("the voices of this engine take no conditioning", field="voice")
        speed, (low, high) = request.speed * self._speed, self._info.speed_range
        if not math.isfinite(speed) or not low <= speed <= high:
            raise BadRequest(f"speed must be from {low} to {high}", field="speed")
        if len(request.text) > MAX_TEXT:
            raise TextTooLong(f"a segment may have {MAX_TEXT} characters", field="text")

    def _enqueue(self, job: _Job) -> None:
        deadline = job.request.deadline
        heapq.heappush(self._waiting, (math.inf if deadline is None else deadline, next(self._order), job))
        self._queued += 1
        self._dispatch()

    def _drop(self, job: _Job) -> None:
        """The reader is gone: take the job out of the queue, or tell its worker to stop."""
        if job.cancelled:
            return
        job.cancelled = True
        job.chunks.clear()
        if job.ended:
            return
        if not job.running:
            before = len(self._waiting)
            self._waiting = [entry for entry in self._waiting if entry[2] is not job]
            if len(self._waiting) != before:
                heapq.heapify(self._waiting)
                self._queued -= 1
            return
        for seat in self._seats:
            if seat.job is job and seat.link is not None:
                seat.link.send(cast("M", wire.Cancel(seat.job_id)))

    def _dispatch(self) -> None:
        for seat in self._seats:
            if not self._waiting:
                return
            if not seat.ready or seat.job is not None or seat.link is None:
                continue
            _, _, job = heapq.heappop(self._waiting)
            self._queued -= 1
            job.running = True
            seat.job, seat.job_id = job, next(self._ids) & 0xFFFFFFFF
            self._watch(seat)
            r = job.request
            speak = wire.Speak(seat.job_id, r.text, r.voice, r.speed * self._speed, r.seed)
            seat.link.send(cast("M", speak))

    # -- workers --------------------------------------------------------------------------------------

    async def _launch(self, seat: _Seat[M]) -> None:
        link = self._open(
            lambda message, payload: self._message(seat, link, message, payload),
            lambda: self._lost(seat, link),
        )
        seat.link = link
        ready = await link.start(self._configure())
        self._measure(ready.audio_s, ready.busy_s)
        seat.ready = True
        self._dispatch()

    async def _relaunch(self, seat: _Seat[M]) -> None:
        while not self._closed:
            await asyncio.sleep(BACKOFF_S[min(seat.deaths, len(BACKOFF_S)) - 1])
            try:
                await self._launch(seat)
                return
            except EngineError as error:
                seat.deaths += 1
                log.error("worker did not start again", extra={"reason": error.message})
                if seat.deaths >= GIVE_UP and not any(s.ready for s in self._seats):
                    self._fail_waiting(EngineCrashed(f"{self._name} cannot be started"))

    def _fail_waiting(self, error: EngineError) -> None:
        for _, _, job in self._waiting:
            job.fail(error)
        self._waiting.clear()
        self._queued = 0

    def _message(self, seat: _Seat[M], link: Link[M, wire.Ready], message: M, payload: memoryview) -> None:
        if seat.link is not link or seat.job is None:
            return
        job = seat.job
        self._watch(seat)
        if isinstance(message, wire.Audio):
            if message.id == seat.job_id and not job.cancelled:
                words = tuple(WordMark(*mark) for mark in message.marks)
                job.put(SpeechChunk(numbers(payload, np.float32), message.start, words, message.last))
        elif isinstance(message, Failed):
            job.fail(EngineError(message.message))
        elif isinstance(message, wire.Done) and message.id == seat.job_id:
            seat.deaths = 0
            self._measure(message.audio_s, message.busy_s)
            self._vacate(seat)
            self._dispatch()

    def _measure(self, audio_s: float, busy_s: float) -> None:
        # A request that was stopped early gives no audio for its work and says nothing of the speed.
        if audio_s <= 0 or busy_s <= 0:
            return
        self._audio_s = self._audio_s * _DECAY + audio_s
        self._busy_s = self._busy_s * _DECAY + busy_s

    def _vacate(self, seat: _Seat[M]) -> None:
        if seat.watchdog is not None:
            seat.watchdog.cancel()
            seat.watchdog = None
        if seat.job is not None:
            seat.job.running = False
            seat.job = None

    def _watch(self, seat: _Seat[M]) -> None:
        """Begin to wait for the next message of a worker at work."""
        if seat.watchdog is not None:
            seat.watchdog.cancel()
        seat.watchdog = asyncio.get_running_loop().call_later(self.stuck_s, self._stuck, seat)

    def _stuck(self, seat: _Seat[M]) -> None:
        seat.watchdog = None
        log.error("a worker gives nothing any more: replacing it")
        if seat.link is not None:
            seat.link.kill()

    def _lost(self, seat: _Seat[M], link: Link[M, wire.Ready]) -> None:
        """A worker's socket closed: it died, was killed, or broke the protocol."""
        if seat.link is not link or self._closed or not seat.ready:
            return
        seat.ready = False
        seat.deaths += 1
        job = seat.job
        self._vacate(seat)
        log.warning("a worker died; starting another", extra={"engine": self._name})
        if job is not None and not job.cancelled:
            if job.delivered or job.retried:
                job.fail(EngineCrashed("the engine died while it spoke"))
            else:
                job.retried = True
                job.chunks.clear()
                self._enqueue(job)
        seat.restart = asyncio.get_running_loop().create_task(self._replace(seat, link))

    async def _replace(self, seat: _Seat[M], link: Link[M, wire.Ready]) -> None:
        await link.close()
        await self._relaunch(seat)
