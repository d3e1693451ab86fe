"""Keeps Python's cycle collector from holding the event loop up.

A full collection walks every object: with a thousand calls that is tens of milliseconds, far above the
loop's 5 ms. What start-up made lives for good and is taken out of its sight; young objects are still
collected, which is where cycles of a request die; full collections are made rare.
"""

from __future__ import annotations

import gc

YOUNG = 5_000
"""Allocations (net) between collections of the youngest objects: each takes well under a millisecond."""
MIDDLE = 20
FULL = 1_000
"""Collections of the middle generation before a full one: minutes apart under load, never in a quiet hour."""


def settle() -> None:
    """Call once, when everything that lives for good has been made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, FULL)
