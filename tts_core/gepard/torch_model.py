"""``FrameModel`` without vLLM: the plain loop in a process of its own, for small machines.

Requests take turns, a frame each, so a few run side by side and every one is as fast as the machine divided
by their number. A worker that dies, or gives nothing for too long, is started again; what it held ends with
``EngineCrashed``. After too many deaths in a row it stays dead, and ``alive`` says so.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np

from tts_core.errors import (
    BadRequest,
    Busy,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    TextTooLong,
    VoxwireError,
)

from . import torch_wire as wire
from .checkpoint import Checkpoint
from .config import dtype_of
from .frames import FrameBatch, FrameRequest, check_request

log = logging.getLogger(__name__)

START_S = 120.0
"""Deadline from the start of a worker to its Ready: a gigabyte from a cold disk takes a minute."""

STUCK_S = 30.0
"""A worker that holds requests and gives nothing for this long is killed; a step takes far below a second."""

WAIT_S = 60.0
"""Longest that a request waits for its next frame, its turn to begin included."""

BACKOFF_S = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Pauses before a worker is started again, by how often in a row it died without finishing a request."""

_COMMAND = "import sys; from tts_core.gepard.torch_worker import main; main(int(sys.argv[1]))"
_KINDS: dict[str, type[VoxwireError]] = {k.code: k for k in (BadRequest, TextTooLong, EngineError)}


class _Job:
    """A request: waiting, with the worker under the number ``ident``, or over."""

    __slots__ = ("_batches", "_changed", "_error", "ident", "request")

    def __init__(self, request: FrameRequest) -> None:
        self.request = request
        self.ident = 0
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


class TorchModel:
    """Fulfils ``FrameModel``. Belongs to one event loop.

    Args:
        checkpoint: what to serve.
        dtype: number type to compute in.
        slots: requests that take turns.
        waiting: requests that may wait for a turn; more are refused with Busy.
        threads: of torch in the worker; None for torch's own choice, one per core.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        dtype: str = "float32",
        slots: int = 4,
        waiting: int = 64,
        threads: int | None = None,
    ) -> None:
        self._config = checkpoint.config
        self._order = wire.Load(str(checkpoint.directory.resolve()), dtype_of(dtype), threads or 0)
        self._slots = slots
        self._most_waiting = waiting
        self._running: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._ids = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._closed = False
        self._deaths = 0
        self._counts = {"requests": 0.0, "frames": 0.0, "busy_s": 0.0, "crashes": 0.0, "load_s": 0.0}

    @property
    def alive(self) -> bool:
        """Whether the worker is up."""
        return self._writer is not None

    @property
    def slots(self) -> int:
        """Requests that take turns; more wait."""
        return self._slots

    @property
    def running(self) -> int:
        """Requests that have turns or wait for one."""
        return len(self._running) + len(self._waiting)

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while there is none."""
        return self._process.pid if self._process is not None and self.alive else None

    async def start(self) -> None:
        """Start the worker and wait until it is warm.

        Raises:
            EngineError: it could not load, died, or took more than ``START_S``.
        """
        if self._closed:
            raise EngineError("the model is closed")
        if not self.alive:
            await self._launch()

    async def close(self) -> None:
        """Kill the worker; requests end with EngineError. Idempotent."""
        self._closed = True
        self._fail(EngineError("the model is closed"), waiting=True)
        for task in (self._restarting, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._end()

    async def generate(self, request: FrameRequest) -> AsyncGenerator[FrameBatch, None]:
        """Make frames; see ``FrameModel.generate``. It is queued when the first batch is asked for.

        Raises:
            BadRequest: the request does not fit the model.
            TextTooLong: prompt and frames are longer than its window.
            Busy: too many wait.
            EngineCrashed: the worker died under the request.
            EngineTimeout: no frame for ``WAIT_S``.
            EngineError: not started, closed, given up, or the model failed on this text.
        """
        check_request(request, self._config)
        if self._closed or not (self.alive or self._restarting):
            raise EngineError("the model is not running")
        if len(self._waiting) >= self._most_waiting:
            raise Busy("too many requests wait for the model", retry_after=1.0)
        job = _Job(request)
        self._waiting.append(job)
        self._counts["requests"] += 1
        self._fill()
        try:
            finish = ""
            while not finish:
                try:
                    async with asyncio.timeout(WAIT_S):
                        batch = await job.next()
                except TimeoutError:
                    raise EngineTimeout("the model gave no frame in time") from None
                finish = batch.finish
                yield batch
        finally:
            self._drop(job)

    async def stats(self) -> dict[str, float]:
        """Requests, frames, seconds of work and crashes so far; seconds of the last start; load now."""
        return {**self._counts, "running": float(len(self._running)), "waiting": float(len(self._waiting))}

    # -- requests -------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give turns to those who wait, as long as there are some."""
        while self.alive and self._waiting and len(self._running) < self._slots:
            job = self._waiting.popleft()
            job.ident = next(self._ids)
            self._running[job.ident] = job
            self._send(wire.Generate.of(job.ident, job.request))
        if self._watchdog is None or not self._running:
            self._watch()

    def _drop(self, job: _Job) -> None:
        """Forget a job, whatever became of it; the worker drops it before its next step."""
        if job in self._waiting:
            self._waiting.remove(job)
        if self._running.pop(job.ident, None) is not None:
            self._send(wire.Cancel(job.ident))
            self._fill()

    def _fail(self, error: VoxwireError, *, waiting: bool) -> None:
        jobs = [*self._running.values(), *(self._waiting if waiting else ())]
        self._running.clear()
        if waiting:
            self._waiting.clear()
        for job in jobs:
            job.fail(error)

    def _message(self, message: wire.Message) -> None:
        self._watch()
        if isinstance(message, wire.Frames):
            self._counts["busy_s"] += message.busy_s
            self._counts["frames"] += len(message.codes) // 32
            job = self._running.get(message.id)
            if job is None:
                return
            job.put(message.batch())
            if message.finish:
                self._deaths = 0
                del self._running[message.id]
        elif isinstance(message, wire.Failed):
            job = self._running.pop(message.id, None)
            if job is not None:
                kind = _KINDS.get(message.code, EngineError)
                job.fail(kind(message.message, field=message.field))
        else:
            raise wire.WireError("the worker sent a message that is not for us")
        self._fill()

    # -- the worker -----------------------------------------------------------------------------------

    async def _launch(self) -> None:
        """Start a worker and wait until it is warm. Raises EngineError; no worker is left then."""
        ours, theirs = socket.socketpair()
        spawning = asyncio.ensure_future(asyncio.to_thread(_spawn, theirs, self._order.threads))
        try:
            self._process = await asyncio.shield(spawning)
            ours.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=ours)
        except OSError as error:
            ours.close()
            raise EngineError("the model's worker could not be started") from error
        except asyncio.CancelledError:
            ours.close()
            spawning.add_done_callback(_abandon)
            raise
        try:
            writer.write(wire.encode(self._order))
            messages = wire.Reader()
            async with asyncio.timeout(START_S):
                first = await _first(reader, messages)
        except (TimeoutError, wire.WireError, OSError) as error:
            writer.transport.abort()
            await self._end()
            raise EngineError("the model's worker died or was not ready in time") from error
        except BaseException:
            writer.transport.abort()
            await self._end()
            raise
        if not isinstance(first, wire.Ready):
            writer.transport.abort()
            await self._end()
            raise EngineError(first.message if isinstance(first, wire.Failed) else "the worker broke off")
        self._counts["load_s"] = first.load_s
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader, messages))
        self._fill()

    async def _read(self, reader: asyncio.StreamReader, messages: wire.Reader) -> None:
        """Take what the worker sends until it is gone, then see to another."""
        try:
            while data := await reader.read(1 << 16):
                for message in messages.feed(data):
                    self._message(message)
        except (OSError, wire.WireError):
            log.exception("the model's worker broke the protocol")
        finally:
            self._lost()

    def _lost(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        self._watch()
        if self._closed:
            return
        log.error("the model's worker died", extra={"requests": len(self._running)})
        self._counts["crashes"] += 1
        self._fail(EngineCrashed("the model died while it spoke"), waiting=False)
        self._restarting = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        try:
            while True:
                await self._end()
                if self._deaths >= len(BACKOFF_S):
                    log.error("the model's worker died too often and is not started again")
                    self._restarting = None
                    self._fail(EngineError("the model is not running"), waiting=True)
                    return
                self._deaths += 1
                await asyncio.sleep(BACKOFF_S[self._deaths - 1])
                try:
                    await self._launch()
                except EngineError:
                    log.exception("the model's worker could not be started again")
                else:
                    return
        finally:
            self._restarting = None

    async def _end(self) -> None:
        """Kill the process, if there is one, and wait until the system has cleaned it up."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            try:
                await asyncio.to_thread(process.wait, 5.0)
            except subprocess.TimeoutExpired:
                log.warning("worker did not end after SIGKILL", extra={"pid": process.pid})

    def _send(self, message: wire.Message) -> None:
        if self._writer is not None:
            self._writer.write(wire.encode(message))

    def _watch(self) -> None:
        """Begin anew to wait for a sign of life, if one is due."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if self.alive and self._running:
            self._watchdog = asyncio.get_running_loop().call_later(STUCK_S, self._stuck)

    def _stuck(self) -> None:
        log.error("the model's worker gave nothing for too long and is killed")
        if self._process is not None:
            self._process.kill()


def _spawn(theirs: socket.socket, threads: int) -> subprocess.Popen[bytes]:
    """Start a worker on its end of the socket pair, which is closed here. Blocks until the program runs."""
    # Without the gateway's settings, which may hold secrets.
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")}
    env["HF_HUB_OFFLINE"] = "1"
    if threads:
        env["OMP_NUM_THREADS"] = str(threads)
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(path for path in (root, env.get("PYTHONPATH", "")) if path)
    with theirs:
        # A session of its own: the terminal's Ctrl-C reaches the gateway alone, which ends its workers.
        return subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=env,
        )


def _abandon(spawning: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """End a process whose start was given up."""
    if not spawning.cancelled() and spawning.exception() is None:
        spawning.result().kill()
        spawning.result().wait()


async def _first(reader: asyncio.StreamReader, messages: wire.Reader) -> wire.Message:
    """The first message. Raises WireError if there is none."""
    while data := await reader.read(1 << 16):
        for message in messages.feed(data):
            return message
    raise wire.WireError("the worker is gone")
