"""Looks for Resemble's mark (resemble-perth) in references, in a child process. An option: off by default.

It has no key, so anybody can lay it, and it takes people in a room with an echo for marked (10 of 16 clips at
the bar of 0.5); the bar here is higher. What it adds: speech of Chatterbox and others that carries no mark of
ours. Where the option is set and the detector does not come up, the gateway does not start; where it fails
later, the reference is refused (trust.md S35).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
from pathlib import Path

from gateway.intake.clip import Clip
from gateway.intake.quality import Finding
from gateway.trust.marks import verdict
from sessions.consent import ConsentRecord
from tts_core.errors import EngineError, EngineTimeout, SettingsError

WORKER = Path(__file__).with_name("perth_worker.py")
START_S = 120.0
"""For torch and the weights; 5 s on an idle core, much more the first time."""
LOOK_S = 12.0
"""For one reference: 54 ms of work a second of sound."""
SURE = 0.9
_PIECE = 1 << 18


class PerthCheck:
    """A ``gateway.trust.check.Check``. One reference at a time.

    Args:
        python: the interpreter that has the package; "on" is our own.
        start_s, look_s: deadlines.
    """

    def __init__(self, python: str = "on", *, start_s: float = START_S, look_s: float = LOOK_S) -> None:
        self._python = sys.executable if python == "on" else python
        self._start_s, self._look_s = start_s, look_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Bring the detector up. Raises SettingsError saying why it cannot be."""
        process = None
        try:
            async with asyncio.timeout(self._start_s):
                process = await asyncio.create_subprocess_exec(
                    self._python,
                    "-I",
                    str(WORKER),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={"PATH": os.defpath, "OMP_NUM_THREADS": "1"},
                )
                said = await _line(process)
        except (OSError, TimeoutError, ValueError, EOFError) as error:
            await _end(process)
            raise _unable(_why(error)) from None
        except BaseException:
            await _end(process)
            raise
        if said != "ready":
            await _end(process)
            raise _unable(str(said.get("error", "")) if isinstance(said, dict) else "it is another program")
        self._process = process

    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        """A refusal or, for a licensed voice, a warning.

        Raises EngineTimeout and EngineError where the detector gave no answer; it is then started anew for
        the next. Cancelled, it ends the process, which may hold the clip.
        """
        async with self._turn:
            if self._process is None or self._process.returncode is not None:
                try:
                    await self.start()
                except SettingsError:
                    raise EngineError("the recording could not be checked") from None
            try:
                async with asyncio.timeout(self._look_s):
                    sure = await self._ask(clip)
            except TimeoutError:
                await self.close()
                raise EngineTimeout("the recording could not be checked in time") from None
            except (OSError, EOFError, ValueError):
                await self.close()
                raise EngineError("the recording could not be checked") from None
            except BaseException:
                await self.close()
                raise
        return verdict(sure >= SURE, record)

    async def close(self) -> None:
        """End the process. A second call does nothing."""
        process, self._process = self._process, None
        await _end(process)

    async def _ask(self, clip: Clip) -> float:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(struct.pack("<I", len(clip.pcm)))
        data = clip.pcm.data.cast("B")  # little-endian, as all that we run on
        for at in range(0, len(data), _PIECE):  # the pipe's own buffer stays small
            process.stdin.write(data[at : at + _PIECE])
            await process.stdin.drain()
        said = await _line(process)
        if not isinstance(said, float | int):
            raise ValueError("no number")
        return float(said)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):  # an OSError, too
        return "it took too long to start"
    return "there is no such Python" if isinstance(error, OSError) else "its process ended"


def _unable(why: str) -> SettingsError:
    return SettingsError(
        f"reference_perth is set but Resemble's detector does not work: {why}; accepted: off, or a Python "
        "with resemble-perth, torch, librosa, pyyaml and setuptools below 81"
    )


async def _line(process: asyncio.subprocess.Process) -> object:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise EOFError
    said: object = json.loads(line)
    return said


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await asyncio.shield(process.wait())


__all__ = ["PerthCheck"]
