"""Hears from the heads' belief whether the model still says its text.

The model knows what it says as soon as it has latched onto the text: after the onset its heads are sure of
some codes. Where it has not, as happens with one or two words, their belief stays flat and what follows is
speech of its own making until it is stopped (GEPARD technical report, arXiv 2609.04222: section 1.4 names
the probes of entropy and stop probability, 3.3 says that the stop head cannot tell, as it is nearly binary).
The report gives no number for the entropy, and ours was not tried on real weights: it is set where only a
belief that is next to even counts, and it only ever leads to another try before anything was heard, and to a
tighter bound after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

ONSET = 4
"""First frames that do not count: at a beginning every model is unsure."""

WINDOW = 8
"""Frames over which belief must stay flat: a third of a second, so that a pause or a breath is none."""

FLAT = 0.92
"""Entropy, 1 being an even belief over all codes, from which on it counts as flat."""


class Guard:
    """The entropy of one request's frames, looked at as they come.

    Args:
        onset: first frames that are passed over.
        window: frames whose mean counts.
        flat: mean from which on the request is derailed; above 1 never.
    """

    def __init__(self, *, onset: int = ONSET, window: int = WINDOW, flat: float = FLAT) -> None:
        self._skip = onset
        self._flat = flat
        self._last: deque[float] = deque(maxlen=window)
        self._derailed = False

    @property
    def derailed(self) -> bool:
        """Whether the belief was flat over a whole window; stays so once it is."""
        return self._derailed

    def push(self, entropy: Iterable[float]) -> bool:
        """Take the entropy of the next frames, 0 to 1 each; ``derailed`` after them."""
        for value in entropy:
            if self._skip:
                self._skip -= 1
                continue
            self._last.append(float(value))
            full = len(self._last) == self._last.maxlen
            if full and sum(self._last) >= self._flat * len(self._last):
                self._derailed = True
        return self._derailed
