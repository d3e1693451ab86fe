"""Tells a model that hangs from one that nobody asks.

A process that is alive and gives nothing is not seen by anybody: each request runs into its own deadline, and
the gateway goes on promising speech.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_S = 20.0
"""Nobody who asked got a frame for so long: some milliseconds are usual."""

PATIENT_S = 4.0
"""Who waited less than this may have left for reasons of their own."""

STARVED = 3
"""So many who waited in vain count when nobody waits at the moment."""


class Hunger:
    """Who waits for frames of one model, and since when nobody got any.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting = 0
        self._starved = 0
        self._since: float | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around each wait for frames; one that ends without an error has got some."""
        asked = self._clock()
        self._waiting += 1
        if self._since is None:
            self._since = asked
        fed = False
        try:
            yield
            fed = True
        finally:
            self._waiting -= 1
            if fed:
                self._starved = 0
                self._since = self._clock() if self._waiting else None
            elif self._clock() - asked >= PATIENT_S:
                self._starved += 1
            elif not self._waiting and not self._starved:
                self._since = None

    @property
    def stuck(self) -> bool:
        """Whether the model hangs."""
        if self._since is None or self._clock() - self._since < STUCK_S:
            return False
        return self._waiting > 0 or self._starved >= STARVED

    def forget(self) -> None:
        """Another model is there: begin anew."""
        self._starved = 0
        self._since = self._clock() if self._waiting else None
