"""One codec process as the service sees it: started, spoken to, ended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import EngineError
from . import wire

log = logging.getLogger(__name__)

START_S = 120.0
"""Deadline from the start of a process to its Ready: some seconds are usual (with torch), a cold disk or a
busy machine takes longer.
"""

_COMMAND = "import sys; from tts_core.nanocodec.worker import main; main(int(sys.argv[1]))"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

OnMessage = Callable[[wire.Message | wire.Data], None]


def environment() -> dict[str, str]:
    """Environment of a process: ours without the gateway's settings, which may hold secrets."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("VOXWIRE_")}
    env.update(_ONE_THREAD)
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(p for p in (root, env.get("PYTHONPATH", "")) if p)
    return env


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start a process on its end of the socket pair, which is closed here. Blocks until the program runs."""
    with theirs:
        # A session of its own: the terminal's Ctrl-C reaches the gateway alone, which ends its processes.
        return subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=environment(),
        )


def _end(spawning: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """End a process whose start was abandoned."""
    if not spawning.cancelled() and spawning.exception() is None:
        spawning.result().kill()
        spawning.result().wait()


class _Pipe(asyncio.BufferedProtocol):
    """Receives frames straight into their final buffers."""

    def __init__(self, on_message: OnMessage, on_lost: Callable[[], None]) -> None:
        self._reader = wire.Reader()
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            message = self._reader.received(nbytes)
        except wire.WireError:
            log.exception("a codec process broke the protocol")
            if self._transport is not None:
                self._transport.abort()
            return
        if message is not None:
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


class CodecLink:
    """A codec process and the socket to it.

    ``on_message`` gets every frame after Ready, ``on_lost`` is called once when the process is gone for
    whatever reason, also when it never became ready.
    """

    def __init__(self, on_message: OnMessage, on_lost: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] | None = None
        self._lost = False

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return self._process.pid if self._process is not None else None

    async def start(self, configure: wire.Configure) -> None:
        """Start the process and wait until it is warm.

        Raises:
            EngineError: it could not load, died, or took more than 120 s. It is gone then.

        """
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        ours, theirs = socket.socketpair()
        # In a thread: until the new program runs, its parent's thread stands still.
        spawning = asyncio.ensure_future(asyncio.to_thread(_spawn, theirs))
        try:
            self._process = await asyncio.shield(spawning)
            ours.setblocking(False)
            transport, _ = await loop.connect_accepted_socket(lambda: _Pipe(self._message, self._gone), ours)
        except OSError as error:
            ours.close()
            raise EngineError("a codec process could not be started") from error
        except asyncio.CancelledError:
            self._ready.cancel()  # nobody waits for it any more
            ours.close()
            spawning.add_done_callback(_end)
            raise
        self._transport = transport
        self.send(configure)
        try:
            async with asyncio.timeout(START_S):
                await self._ready
        except TimeoutError as error:
            raise EngineError("a codec process was not ready in time") from error
        finally:
            if not self._ready.done() or self._ready.cancelled() or self._ready.exception() is not None:
                await self.close()

    def send(self, message: wire.Message | wire.Data) -> None:
        """Send a message; what is sent to a process that is gone is dropped."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(wire.encode(message)))  # a copy: the sender may change its array

    def kill(self) -> None:
        """End the process now; ``on_lost`` follows."""
        if self._process is not None:
            self._process.kill()
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the process and wait until the system has cleaned it up."""
        self.kill()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, 5.0)
            except subprocess.TimeoutExpired:
                log.warning("a codec process did not end after SIGKILL", extra={"pid": self._process.pid})

    def _message(self, message: wire.Message | wire.Data) -> None:
        if self._ready is not None and not self._ready.done():
            if isinstance(message, wire.Ready):
                self._ready.set_result(None)
            elif isinstance(message, wire.Failed):
                self._ready.set_exception(EngineError(message.message))
            return
        self._on_message(message)

    def _gone(self) -> None:
        if self._lost:
            return
        self._lost = True
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(EngineError("a codec process died while it started"))
        self._on_lost()
