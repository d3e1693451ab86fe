"""Tells a codec process that hangs from one that works slowly.

A process that was asked and gives nothing is looked at now and then. On a machine with more to do than cores
it may be given a small share of one, so the time on the wall alone says little: what it has used of a
processor does. One that uses none waits for something that never comes; one that has used many times what a
step takes goes round in circles; both are to be replaced. One that has used less than that is slow, and is
left alone until nobody who waits can want the result any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

LOOK_S = 1.0
"""How often a process that is silent is looked at."""

IDLE_S = 10.0
"""Silent, and no processor time used for so long: it hangs."""

BUSY_S = 20.0
"""Silent, with so much processor time used: it goes round in circles. A full step takes half a second."""

SILENT_S = 120.0
"""Silent for so long: whatever it does is too late."""


def processor_s(pid: int) -> float | None:
    """Processor seconds that a process and its threads have used; None where the system does not say.

    See proc_pid_stat(5), utime and stime; the resolution is 10 ms.
    """
    try:
        # The name of the program comes before and may hold anything, spaces and brackets too.
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class Vigil:
    """Watch over one silence of one process.

    Where processor time is not to be had, the wall alone counts, with the long bound.

    Args:
        used: processor seconds of the process so far, or None.
        clock: monotonic seconds.
    """

    def __init__(self, used: Callable[[], float | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._used, self._clock = used, clock
        self.heard()

    def heard(self) -> None:
        """The process gave something, or has something to do now: the silence begins anew. Cheap."""
        self._since = self._moved = self._clock()
        self._first: float | None = None
        self._last: float | None = None

    def look(self) -> str:
        """What is wrong with the process, "" for nothing; to be asked every ``LOOK_S`` of a silence."""
        now, used = self._clock(), self._used()
        if now - self._since >= SILENT_S:
            return "silent for too long"
        if used is None:
            return ""
        if self._first is None or self._last is None:
            self._first = self._last = used
        if used > self._last:
            self._moved, self._last = now, used
        if used - self._first >= BUSY_S:
            return "busy without a result"
        if now - self._moved >= IDLE_S:
            return "silent and idle"
        return ""
