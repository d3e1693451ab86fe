"""Makes speaker prefixes in a process of its own, so that neither torch nor the work is in the gateway.

The process starts with the first question, is asked one thing at a time, and ends when nobody asked for a
while: the compressor and torch hold some 400 MB, and a voice is enrolled once in its life. It speaks a few
bytes over a socket pair: see ``enroller_worker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tts_core.errors import BadRequest, EngineCrashed, EngineError, EngineTimeout
from tts_core.nanocodec import fsq

from .enroller_worker import ANSWER, QUESTION
from .frames import Rows

log = logging.getLogger(__name__)

IDLE_S = 60.0
"""The process ends after so long without a question."""

ANSWER_S = 120.0
"""Deadline of an answer, the start of the process included: some seconds are usual."""

MAX_WAITING = 16
"""Questions that may wait."""

_COMMAND = "import sys; from tts_core.gepard.enroller_worker import main; main(int(sys.argv[1]), sys.argv[2])"


class Enroller:
    """The compressor of one checkpoint.

    Args:
        directory: of the checkpoint.
        idle_s: see ``IDLE_S``.
        answer_s: see ``ANSWER_S``.
    """

    def __init__(self, directory: Path, *, idle_s: float = IDLE_S, answer_s: float = ANSWER_S) -> None:
        self._directory = directory
        self._idle_s = idle_s
        self._answer_s = answer_s
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._child: _Child | None = None
        self._idle: asyncio.TimerHandle | None = None
        # One thread: questions of one that was given up end before the next begins.
        self._thread = ThreadPoolExecutor(1, "enroller")
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id; None while there is none."""
        return self._child.pid if self._child is not None else None

    async def null_prefix(self) -> Rows:
        """What the model learned to read where no speaker is named: float32 ``[K, hidden]``.

        Raises:
            EngineError: as ``prefix``.
        """
        return await self._ask(np.zeros((0, fsq.CHANNELS), np.uint8))

    async def prefix(self, codes: fsq.Codes) -> Rows:
        """The prefix of a clip, float32 ``[K, hidden]``, after those that wait.

        Args:
            codes: uint8 ``[T, 32]``, T > 0, of the clip.

        Raises:
            BadRequest: no frames, or more than the model takes.
            EngineCrashed: the process died.
            EngineTimeout: no answer in time.
            EngineError: closed, too many wait, or the model cannot clone.
        """
        if not len(codes):
            raise BadRequest("a reference must have at least one frame", field="reference")
        return await self._ask(fsq.check(codes))

    async def close(self) -> None:
        """End the process; who waits gets EngineError. Idempotent."""
        self._closed = True
        self._stop()
        # Its thread ends with the process, or was idle.
        await asyncio.to_thread(self._thread.shutdown)

    async def _ask(self, codes: fsq.Codes) -> Rows:
        if self._closed:
            raise EngineError("the engine is closed")
        if self._waiting >= MAX_WAITING:
            raise EngineError("too many voices wait to be made")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._exchange(codes)
        finally:
            self._waiting -= 1

    async def _exchange(self, codes: fsq.Codes) -> Rows:
        if self._closed:
            raise EngineError("the engine is closed")
        if self._idle is not None:
            self._idle.cancel()
        child = self._child
        if child is None:
            child = self._child = _Child(self._directory)
        answer = asyncio.get_running_loop().run_in_executor(self._thread, child.ask, codes)
        try:
            async with asyncio.timeout(self._answer_s):
                rows = await answer
        except TimeoutError:
            self._stop()
            raise EngineTimeout("the voice was not made in time") from None
        except OSError:
            self._stop()
            if self._closed:
                raise EngineError("the engine is closed") from None
            raise EngineCrashed("the process that makes voices died") from None
        except asyncio.CancelledError:
            self._stop()
            raise
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._stop)
        return rows

    def _stop(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self._thread.submit(child.reap)


class _Child:
    """The process, spoken to from one thread. Everything but ``kill`` blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ours, self._theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ask(self, codes: fsq.Codes) -> Rows:
        """Ask for the prefix of ``codes``, of none for the null prefix.

        Raises OSError when the process is gone, and what it answers.
        """
        if self._process is None:
            self._start()
        self._ours.sendall(QUESTION.pack(len(codes)) + np.ascontiguousarray(codes).tobytes())
        refused, rows, size = ANSWER.unpack(self._read(ANSWER.size))
        body = self._read(size)
        if refused:
            words = body.decode()
            raise BadRequest(words, field="reference") if refused == 1 else EngineError(words)
        return np.frombuffer(body, "<f4").reshape(rows, -1).astype(np.float32)

    def kill(self) -> None:
        """End the process; a question under way fails."""
        self._killed = True
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            self._process.kill()

    def reap(self) -> None:
        """Let the system clean up after ``kill``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._ours.close()
        self._theirs.close()

    def _start(self) -> None:
        # Without the gateway's settings, which may hold secrets.
        env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")}
        env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        root = str(Path(__file__).parents[2])
        env["PYTHONPATH"] = os.pathsep.join(path for path in (root, env.get("PYTHONPATH", "")) if path)
        with self._theirs:
            # A session of its own: the terminal's Ctrl-C reaches the gateway alone, which ends the process.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [sys.executable, "-P", "-c", _COMMAND, str(self._theirs.fileno()), str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._theirs.fileno(),),
                start_new_session=True,
                env=env,
            )
        if self._killed:  # meanwhile
            raise ConnectionResetError

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._ours.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)
