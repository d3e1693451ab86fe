"""A general normaliser (wetext) in a helper process, for the little that the pre-pass leaves open.

One call costs 2-15 ms and holds the interpreter lock, so it never runs on the event loop's process. The
helper reads one JSON line per request and writes one per answer, in order. A full queue, a late answer or a
dead helper means "no answer": the caller has its own reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections import OrderedDict, deque
from pathlib import Path

MAX_CHARS = 80
MAX_WAITING = 16
DEADLINE_S = 0.05
START_S = 20.0
CACHE = 1024
_WORKER = Path(__file__).with_name("library_worker.py")
_GOOD = re.compile(r"[A-Za-z][A-Za-z ,.'-]*")


def acceptable(text: str, answer: str | None) -> str | None:
    """The library's answer where it is plain words of a sane length, else None."""
    if not answer or len(answer) > 12 * len(text) + 40 or not _GOOD.fullmatch(answer):
        return None
    # A word of three letters or more with no vowel is a unit left as it was.
    if any(len(w) > 1 and not re.search(r"[aeiouyAEIOUY]", w) for w in answer.split()):
        return None
    return answer


class Library:
    """Client of the helper process.

    ``deadline``: seconds to wait for one answer. Not safe for use from several event loops.
    """

    def __init__(self, *, deadline: float = DEADLINE_S) -> None:
        self._deadline = deadline
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[str | None]] = deque()
        self._cache: OrderedDict[str, str | None] = OrderedDict()
        self._closed = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """True while the helper process can answer."""
        return self._process is not None and self._process.returncode is None and self._reader is not None

    async def start(self) -> None:
        """Start the helper and wait until it has loaded (20 s at most). OSError, TimeoutError on failure."""
        self._closed = False
        if self.alive:
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_WORKER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            ready = await asyncio.wait_for(process.stdout.readline(), START_S)
        except BaseException:
            await _end(process)
            raise
        if ready.strip() != b'"ready"' or self._closed:
            await _end(process)
            return
        self._process = process
        self._reader = asyncio.create_task(self._read(process), name="normaliser-library")

    async def close(self) -> None:
        """End the helper; open requests get no answer. Idempotent."""
        self._closed = True
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        process, self._process = self._process, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if process is not None:
            await _end(process)
        self._fail_waiting()

    async def read(self, text: str) -> str | None:
        """The spoken form of ``text`` (80 characters at most), or None (no answer, or a bad one)."""
        if text in self._cache:
            self._cache.move_to_end(text)
            return self._cache[text]
        if len(text) > MAX_CHARS or len(self._waiting) >= MAX_WAITING:
            return None
        process = self._process
        if not self.alive or process is None or process.stdin is None:
            self._restart()
            return None
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            process.stdin.write(json.dumps(text).encode() + b"\n")
        except (OSError, RuntimeError):
            future.cancel()
            return None
        # The future stays in the queue on a timeout: its answer still has to be taken off the pipe.
        done, _ = await asyncio.wait((future,), timeout=self._deadline)
        if not done or future.cancelled():
            return None
        answer = acceptable(text, future.result())
        self._cache[text] = answer
        if len(self._cache) > CACHE:
            self._cache.popitem(last=False)
        return answer

    def _restart(self) -> None:
        """Bring a dead helper back in the background; nothing waits for it."""
        if self._closed or (self._starting is not None and not self._starting.done()):
            return
        self._starting = asyncio.create_task(self._try_start(), name="normaliser-library-start")

    async def _try_start(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await self.start()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                if self._waiting:
                    future = self._waiting.popleft()
                    if not future.done():
                        answer = json.loads(line)
                        future.set_result(answer if isinstance(answer, str) else None)
        finally:
            if self._process is process:
                self._process, self._reader = None, None
                self._fail_waiting()
                await _end(process)

    def _fail_waiting(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()  # closes the pipes as well
