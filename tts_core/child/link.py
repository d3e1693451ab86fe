"""One worker process as its owner sees it: started, spoken to, watched, ended."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import EngineError, VoxwireError
from .failure import Failed
from .frames import Bytes, FrameError, Language, M
from .pipe import Pipe, open_pipe
from .program import Program, kill

log = logging.getLogger(__name__)

R = TypeVar("R")
"""The message with which a worker says that it is warm."""

END_S = 5.0
"""How long ``close`` waits for a killed process; one in an uninterruptible call may take longer."""


class Link(Generic[M, R]):
    """A worker process and the socket to it; good for one start. Belongs to one event loop.

    Args:
        program: what to start.
        language: of its messages; ``failure.Failed`` is one of them.
        ready: type of the worker's first message, unless that is ``Failed``.
        on_message: gets every message after Ready with its payload; may raise FrameError, which drops the
            worker.
        on_lost: called once when the worker is gone for whatever reason, also when it never became ready.
        kinds: errors of a failed start that are passed on as they are; others become EngineError.
    """

    def __init__(
        self,
        program: Program,
        language: Language[M],
        ready: type[R],
        on_message: Callable[[M, memoryview], None],
        on_lost: Callable[[], None],
        *,
        kinds: tuple[type[VoxwireError], ...] = (EngineError,),
    ) -> None:
        self._program = program
        self._language = language
        self._kind = ready
        self._on_message = on_message
        self._on_lost = on_lost
        self._kinds = kinds
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe[M] | None = None
        self._ready: asyncio.Future[R] | None = None
        self._lost = False

    @property
    def pid(self) -> int | None:
        """Process id, None before the start. It leads its session and its group of processes."""
        return self._process.pid if self._process is not None else None

    @property
    def unsent(self) -> int:
        """Bytes sent that the worker has not taken yet."""
        return self._pipe.unsent if self._pipe is not None else 0

    async def start(self, first: M, payload: Bytes = b"") -> R:
        """Start the process, send it ``first`` and wait until it is warm. Cancelling ends it.

        Raises:
            EngineError: it could not load, died, or took longer than ``Program.start_s``. It is gone then.
            VoxwireError: one of ``kinds``, with the words of the worker.
        """
        name = self._program.name
        self._ready = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair()
        # In a thread: until the new program runs, its parent's thread stands still.
        spawning = asyncio.ensure_future(asyncio.to_thread(self._program.spawn, theirs))
        try:
            self._process = await asyncio.shield(spawning)
            self._pipe = await open_pipe(ours, self._language, self._message, self._gone, name=name)
        except OSError as error:
            ours.close()
            raise EngineError(f"{name} could not be started") from error
        except asyncio.CancelledError:
            self._ready.cancel()  # nobody waits for it any more
            ours.close()
            spawning.add_done_callback(_end)
            raise
        try:
            self.send(first, payload)
            async with asyncio.timeout(self._program.start_s):
                return await self._ready
        except TimeoutError as error:
            raise EngineError(f"{name} was not ready in time") from error
        finally:
            if not self._ready.done() or self._ready.cancelled() or self._ready.exception() is not None:
                await self.close()

    def send(self, message: M, payload: Bytes = b"") -> None:
        """Send a message with a copy of ``payload``; what is sent to a worker that is gone is dropped.

        Raises:
            FrameError: too large for a frame.
        """
        if self._pipe is not None:
            self._pipe.send(message, payload)

    def kill(self) -> None:
        """End the process, and what it started, now; ``on_lost`` follows."""
        if self._process is not None:
            kill(self._process)
        if self._pipe is not None:
            self._pipe.abort()

    async def close(self) -> None:
        """End the process and wait until the system has cleaned it up. Idempotent."""
        self.kill()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, END_S)
            except subprocess.TimeoutExpired:
                log.warning(
                    "a worker did not end after SIGKILL",
                    extra={"worker": self._program.name, "pid": self.pid},
                )

    def _message(self, message: M, payload: memoryview) -> None:
        if self._ready is None or self._ready.done():
            self._on_message(message, payload)
        elif isinstance(message, self._kind):
            self._ready.set_result(message)
        elif isinstance(message, Failed):
            self._ready.set_exception(message.error(*self._kinds))
        else:
            raise FrameError("the first message must be Ready or Failed")

    def _gone(self) -> None:
        if self._lost:
            return
        self._lost = True
        if self._process is not None:
            kill(self._process)  # it ends by itself, unless it hangs
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(EngineError(f"{self._program.name} died while it started"))
        self._on_lost()


def _end(spawning: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """End a process whose start was abandoned."""
    if not spawning.cancelled() and spawning.exception() is None:
        kill(spawning.result())
        spawning.result().wait()
