"""A model of frames in a process of its own, as the gateway sees it. Holds no model's stack.

A dead process, or one that gives nothing for too long, fails every request it holds with EngineCrashed and
shows in ``alive``; who supervises it calls ``start`` again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError
from tts_core.child.link import Link
from tts_core.child.program import Program
from tts_core.errors import (
    BadRequest,
    Busy,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    SettingsError,
    VoxwireError,
)

from . import model_wire as wire
from .config import GepardConfig
from .frames import FrameBatch, FrameRequest, check_request

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""When to try again where the model is full: a clause takes a few seconds."""

_KINDS = (BadRequest, Busy, EngineError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the model may take, in seconds.

    Args:
        first: to a request's first frame, waiting included, and for the answer to a question.
        step: between frames of a request.
        stuck: without any sign of life while it holds requests; then it is killed.
    """

    first: float
    step: float
    stuck: float


class _Job:
    """A request that the model holds, and what of its frames nobody has read yet."""

    __slots__ = ("_batches", "_changed", "_error")

    def __init__(self) -> None:
        self._batches: list[FrameBatch] = []
        self._error: VoxwireError | None = None
        self._changed = asyncio.Event()

    def put(self, batch: FrameBatch) -> None:
        self._batches.append(batch)
        self._changed.set()

    def fail(self, error: VoxwireError) -> None:
        self._error = self._error or error
        self._changed.set()

    async def next(self) -> FrameBatch:
        """Everything that has come since the last call, as one batch."""
        while not self._batches:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
        batches, self._batches = self._batches, []
        if len(batches) == 1:
            return batches[0]
        return FrameBatch(
            np.concatenate([batch.codes for batch in batches]),
            np.concatenate([batch.entropy for batch in batches]),
            batches[-1].finish,
        )


@dataclass(eq=False)
class _Life:
    """A process from its start to its death."""

    link: Link[wire.Message, wire.Ready] = field(init=False)
    jobs: dict[int, _Job] = field(default_factory=dict)
    asked: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    watchdog: asyncio.TimerHandle | None = None

    def fail(self, error: VoxwireError) -> None:
        """End all that waits for the process."""
        for job in self.jobs.values():
            job.fail(error)
        for future in self.asked.values():
            if not future.done():
                future.set_exception(error)
        self.jobs.clear()
        self.asked.clear()
        if self.watchdog is not None:
            self.watchdog.cancel()


class ModelProcess:
    """Fulfils ``FrameModel`` by a worker. Belongs to one event loop.

    Args:
        program: the worker.
        options: what it loads the model with.
        config: of the model, which requests are checked against.
        slots: requests that run at once.
        waiting: requests that may wait beside them; more are refused with Busy.
        limits: see there.
    """

    def __init__(
        self,
        program: Program,
        options: dict[str, Any],
        config: GepardConfig,
        *,
        slots: int,
        waiting: int,
        limits: Limits,
    ) -> None:
        self._program, self._options, self._config = program, options, config
        self._slots, self._most, self._limits = slots, slots + waiting, limits
        self._starting = asyncio.Lock()
        self._ids = itertools.count(1)
        self._life: _Life | None = None
        self._last: _Life | None = None
        self._running = 0
        self._counts = {"requests": 0.0, "frames": 0.0, "busy_s": 0.0, "crashes": 0.0, "load_s": 0.0}

    @property
    def alive(self) -> bool:
        """Whether the process is up and its model loaded."""
        return self._life is not None

    @property
    def slots(self) -> int:
        """Requests that run at once."""
        return self._slots

    @property
    def running(self) -> int:
        """Requests that were begun and are not over."""
        return self._running

    @property
    def pid(self) -> int | None:
        """Process id; None while there is none."""
        return self._life.link.pid if self._life is not None else None

    async def start(self) -> None:
        """Start the process, or start it anew if it has died; nothing happens while it is alive.

        Raises:
            SettingsError: the model cannot be served with these options; says what to change.
            EngineError: it did not come up, or not in time.
        """
        async with self._starting:
            if self.alive:
                return
            await self._end(EngineCrashed("the model died under the request"))
            life = self._last = _Life()
            life.link = Link(
                self._program,
                wire.LANGUAGE,
                wire.Ready,
                lambda message, payload: self._message(life, message, payload),
                lambda: self._lost(life),
                kinds=(*_KINDS, SettingsError),
            )
            ready = await life.link.start(wire.Load(self._options))
            self._counts["load_s"] = ready.load_s
            self._life = life

    async def close(self) -> None:
        """Kill the process; running requests end with EngineError. Idempotent; ``start`` starts a new one."""
        async with self._starting:
            await self._end(EngineError("the model was closed"))

    async def generate(self, request: FrameRequest) -> AsyncGenerator[FrameBatch, None]:
        """Make frames; see ``FrameModel.generate``. It is sent when the first batch is asked for.

        Raises:
            BadRequest: the request does not fit the model.
            TextTooLong: prompt and frames are longer than its window.
            Busy: too many requests wait.
            EngineCrashed: the model is not running, or died under the request.
            EngineTimeout: no frame in time.
            EngineError: closed, or the model failed on this text.
        """
        self._check(request)
        life = self._life
        if life is None:
            raise EngineCrashed("the model is not running")
        if self._running >= self._most:
            raise Busy("too many requests wait for the model", retry_after=RETRY_S)
        ident, job = next(self._ids), _Job()
        life.jobs[ident] = job
        self._running += 1
        self._counts["requests"] += 1
        try:
            life.link.send(*wire.Generate.of(ident, request))
            if life.watchdog is None:
                self._watch(life)
            deadline, finish = self._limits.first, ""
            while not finish:
                try:
                    async with asyncio.timeout(deadline):
                        batch = await job.next()
                except TimeoutError:
                    raise EngineTimeout("the model gave no frame in time") from None
                deadline, finish = self._limits.step, batch.finish
                yield batch
        finally:
            self._running -= 1
            if life.jobs.pop(ident, None) is not None:
                life.link.send(wire.Cancel(ident))  # taken before the next step
                if not life.jobs:
                    self._watch(life)

    async def ask(self, name: str, *arguments: Any) -> Any:
        """Have the model's ``name`` called between two steps; what it gave, plain values.

        Raises:
            EngineCrashed: the model is not running.
            EngineTimeout: no answer in time.
            EngineError: it has no such method.
        """
        life = self._life
        if life is None:
            raise EngineCrashed("the model is not running")
        ident = next(self._ids)
        answer = life.asked[ident] = asyncio.get_running_loop().create_future()
        life.link.send(wire.Ask(ident, name, arguments))
        try:
            async with asyncio.timeout(self._limits.first):
                return await answer
        except TimeoutError:
            raise EngineTimeout("the model does not answer") from None
        finally:
            life.asked.pop(ident, None)

    async def forget(self, fingerprint: str) -> None:
        """Have the model overwrite a prefix; one that died has none. Raises EngineTimeout, EngineError."""
        with contextlib.suppress(EngineCrashed):
            await self.ask("forget", fingerprint)

    async def stats(self) -> dict[str, float]:
        """Counters by name: ``requests``, ``frames``, ``busy_s`` of work and ``crashes`` so far.

        And ``load_s`` of the last start; ``running`` and ``waiting`` now.
        """
        running = min(self._running, self._slots)
        return {**self._counts, "running": float(running), "waiting": float(self._running - running)}

    def _check(self, request: FrameRequest) -> None:
        check_request(request, self._config)

    def _message(self, life: _Life, message: wire.Message, payload: memoryview) -> None:
        if isinstance(message, wire.Step):
            self._counts["busy_s"] += message.busy_s
            for ident, batch in message.batches(payload):
                self._counts["frames"] += len(batch.codes)
                job = life.jobs.pop(ident, None) if batch.finish else life.jobs.get(ident)
                if job is not None:
                    job.put(batch)
        elif isinstance(message, wire.Answer):
            self._answer(life, message.id).set_result(message.value)
        elif isinstance(message, Failed):
            error = message.error(*_KINDS)
            if isinstance(error, Busy):
                error.retry_after = RETRY_S
            job = life.jobs.pop(message.id, None)
            if job is not None:
                job.fail(error)
            else:
                self._answer(life, message.id).set_exception(error)
        else:
            raise FrameError("the worker sent a message that is not for us")
        self._watch(life)

    @staticmethod
    def _answer(life: _Life, ident: int) -> asyncio.Future[Any]:
        """What waits for the answer to a question; where nobody does, something to throw it away with."""
        future = life.asked.pop(ident, None)
        if future is None or future.done():
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.exception())
        return future

    def _lost(self, life: _Life) -> None:
        if self._life is life:
            self._life = None
            self._counts["crashes"] += 1
            log.error("the model's process died", extra={"requests": len(life.jobs)})
        life.fail(EngineCrashed("the model died under the request"))

    async def _end(self, error: VoxwireError) -> None:
        """Kill the process, if there is one, and wait until the system has cleaned it up."""
        self._life, life, self._last = None, self._last, None
        if life is not None:
            life.fail(error)
            await life.link.close()

    def _watch(self, life: _Life) -> None:
        """Begin anew to wait for a sign of life, if one is due."""
        if life.watchdog is not None:
            life.watchdog.cancel()
            life.watchdog = None
        if life.jobs:
            loop = asyncio.get_running_loop()
            life.watchdog = loop.call_later(self._limits.stuck, self._stuck, life)

    def _stuck(self, life: _Life) -> None:
        log.error("the model's process gave nothing for too long and is killed")
        life.link.kill()
