"""A circuit breaker, without I/O: after a run of failures calls fail at once until a probe succeeds."""

from __future__ import annotations


class Breaker:
    """Counts failures in a row.

    Args:
        threshold: consecutive failures that open it.
        first_probe: seconds from opening to the first probe; doubles up to ``slowest_probe``.
    """

    def __init__(self, threshold: int = 3, first_probe: float = 0.1, slowest_probe: float = 1.0) -> None:
        self.threshold = threshold
        self.first_probe = first_probe
        self.slowest_probe = slowest_probe
        self.open = False
        self.failures = 0
        self.opened = 0
        self.last_error = ""
        self._row = 0
        self._probes = 0

    def succeeded(self) -> None:
        """A call worked. While open this says nothing: it may have begun before the failure."""
        if not self.open:
            self._row = 0

    def failed(self, error: str) -> bool:
        """A call failed with the class name ``error``; True if this opened the breaker."""
        self.failures += 1
        self.last_error = error
        if self.open:
            return False
        self._row += 1
        if self._row < self.threshold:
            return False
        self.open = True
        self.opened += 1
        self._probes = 0
        return True

    def probed(self, *, ok: bool) -> bool:
        """A probe ended; True if this closed the breaker."""
        if not self.open:
            return False
        if not ok:
            self._probes += 1
            return False
        self.open = False
        self._row = 0
        return True

    def probe_delay(self) -> float:
        """Seconds to wait before the next probe; it grows with every probe that failed."""
        return min(self.slowest_probe, self.first_probe * 2.0 ** min(self._probes, 16))
