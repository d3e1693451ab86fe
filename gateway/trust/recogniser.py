"""Speech recognition for the answers to challenges, in a process of its own.

The engine is faster-whisper (MIT) on a Whisper model that was converted for CTranslate2. The process keeps
the model and hears one recording at a time, which it takes from an anonymous memory file; both sides
overwrite the sound afterwards (trust.md V13). One that fails, or is left in the middle, is ended and
replaced. It is never told which words are expected: it would hear them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gateway.intake.activity import RATE, Samples
from gateway.places import Places
from gateway.wav import header
from sessions.events import AudioFormat, Encoding
from tts_core.errors import Busy, EngineError, SettingsError

WORKER = Path(__file__).with_name("recogniser_worker.py")
START_S = 60.0
"""For a process to load its model; a second where the disk is warm."""
DEADLINE_S = 20.0
"""For one recording, from the wish to its text."""
WAITING = 4
"""Recordings heard or waiting at once; one more is refused as busy."""
MOST_TEXT = 4000
_LINE = 1 << 16
_FLOAT = AudioFormat(Encoding.PCM_F32LE, RATE)

_log = logging.getLogger(__name__)


class _Failed(Exception):
    """A process said what went wrong, or ended without a word."""


@dataclass(eq=False, slots=True)
class _Child:
    process: asyncio.subprocess.Process
    memory: int
    ended: bool = False

    async def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            raise _Failed("it ended") from None
        if not isinstance(answer, dict) or "failed" in answer:
            raise _Failed(str(answer.get("failed", "")) if isinstance(answer, dict) else "")
        return answer

    async def hear(self, pcm: Samples, language: str) -> str:
        assert self.process.stdin is not None
        await asyncio.to_thread(_fill, self.memory, pcm)
        self.process.stdin.write(json.dumps({"language": language}).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # then it has ended, which reading tells
            await self.process.stdin.drain()
        text = str((await self.read()).get("text", ""))[:MOST_TEXT]
        _wipe(self.memory)
        return text

    async def end(self) -> None:
        """Kill it and overwrite what it was given. Idempotent."""
        if self.ended:
            return
        self.ended = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        _wipe(self.memory)
        os.close(self.memory)


class Recogniser:
    """Turns recordings into text, one after the other.

    Args:
        model: folder of a Whisper model for CTranslate2.
        python: interpreter with faster-whisper (None: our own).
        deadline: seconds for one recording, the wait for its turn included.
        waiting: recordings heard or waiting at once; half of them of one tenant.
    """

    def __init__(
        self,
        model: Path,
        *,
        python: Path | None = None,
        deadline: float = DEADLINE_S,
        waiting: int = WAITING,
    ) -> None:
        self._model = model.absolute()
        self._python = str(python.absolute() if python else sys.executable)
        self.deadline = deadline
        self.places = Places(waiting, "other recordings are being listened to", retry_after=5.0)
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[_Child] | None = None
        self._closed = False

    async def start(self) -> None:
        """Make the first process ready. Raises SettingsError in words of its cause."""
        if not (self._model / "model.bin").is_file():
            raise SettingsError(
                f"consent_asr = {str(self._model)!r} has no model.bin: it is no Whisper model"
            )
        try:
            await asyncio.shield(self._prepare())
        except (_Failed, OSError, TimeoutError) as error:
            self._next = None
            why = str(error) or type(error).__name__
            lacks = "ModuleNotFoundError" in why
            raise SettingsError(
                f"speech recognition for consents does not start with {self._python!r}: "
                + ("it lacks faster-whisper (the extra 'consent', or name a Python that has it by "
                   "VOXWIRE_CONSENT_PYTHON)" if lacks else f"{why}; is consent_asr a Whisper model?")
            ) from None  # fmt: skip

    async def close(self) -> None:
        """End the process. What is being heard fails."""
        self._closed = True
        task, self._next = self._next, None
        if task is not None:
            await _end_prepared(task)

    async def hear(self, pcm: Samples, language: str) -> str:
        """What is said, as the model writes it, at most 4000 characters.

        Args:
            pcm: float32 ``[n]``, mono, 22,050 Hz; left as it is.
            language: primary tag, as ``en``.

        Raises Busy when it takes too long, its turn included; EngineError when the process failed.
        Cancelled, it ends the process.
        """
        try:
            async with asyncio.timeout(self.deadline), self._turn:
                return await self._hear(pcm, language)
        except TimeoutError:
            raise Busy("the recording could not be listened to in time", retry_after=5.0) from None
        except (_Failed, OSError) as error:
            _log.error("speech recognition failed", extra={"reason": str(error) or type(error).__name__})
            raise EngineError("the recording could not be listened to") from None

    async def _hear(self, pcm: Samples, language: str) -> str:
        child = await self._ready()
        if child.process.returncode is not None:  # it was ended while it waited
            await self._end(child)
            child = await self._ready()
        try:
            return await child.hear(pcm, language)
        except BaseException:
            await asyncio.shield(self._end(child))
            raise

    async def _ready(self) -> _Child:
        task = self._prepare()
        try:
            child = await asyncio.shield(task)  # it stays for the next one if we are cancelled
        except (_Failed, OSError, TimeoutError):
            self._next = None
            raise
        return child

    async def _end(self, child: _Child) -> None:
        """End a process and begin the next one."""
        self._next = None
        await child.end()
        if not self._closed:
            self._prepare()

    def _prepare(self) -> asyncio.Task[_Child]:
        """The process that is ready, or will be."""
        if self._next is None:
            self._next = asyncio.create_task(self._spawn(), name="recogniser")
            self._next.add_done_callback(_quiet)
        return self._next

    async def _spawn(self) -> _Child:
        memory = os.memfd_create("answer", os.MFD_CLOEXEC)
        try:
            process = await asyncio.create_subprocess_exec(
                self._python, "-I", "-B", str(WORKER), str(self._model), str(memory),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                pass_fds=(memory,), start_new_session=True, cwd="/", limit=_LINE,
                env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
            )  # fmt: skip
        except BaseException:
            os.close(memory)
            raise
        child = _Child(process, memory)
        try:
            async with asyncio.timeout(START_S):
                await child.read()
        except BaseException:
            await asyncio.shield(child.end())
            raise
        return child


async def _end_prepared(task: asyncio.Task[_Child]) -> None:
    if task.done():
        if not task.cancelled() and task.exception() is None:
            await task.result().end()
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _quiet(task: asyncio.Task[_Child]) -> None:
    """A process that could not be made ready is met by who needs the next one."""
    if not task.cancelled():
        task.exception()


def _fill(memory: int, pcm: Samples) -> None:
    """A WAV file of these samples, written without a copy of them."""
    os.pwrite(memory, header(_FLOAT, len(pcm)), 0)
    at = os.fstat(memory).st_size
    view = np.ascontiguousarray(pcm, "<f4").data.cast("B")
    while len(view):
        written = os.pwrite(memory, view, at)
        at, view = at + written, view[written:]


def _wipe(memory: int) -> None:
    size = os.fstat(memory).st_size
    os.pwrite(memory, bytes(size), 0)
    os.ftruncate(memory, 0)


__all__ = ["Recogniser"]
