"""Keeps Python's cycle collector from holding the event loop up.

A full collection walks every object: with a thousand calls that is tens of milliseconds, far above the
loop's 5 ms. What start-up made lives for good and is taken out of its sight; young objects are still
collected; full collections are made rare. What they would free must therefore be little: everything that is
made for a text or a call is let go by hand when it is over, so that no cycle is left.
"""

from __future__ import annotations

import gc

YOUNG = 5_000
"""Allocations (net) between collections of the youngest objects: each takes well under a millisecond."""
MIDDLE = 20
FULL = 50
"""Collections of the middle generation before a full one.

A text leaves nothing to the collector, and a connection a few small objects of asyncio's: it takes hundreds
of thousands of them to bring about a full collection, and to make what waits for it some tens of megabytes.
"""


def settle() -> None:
    """Call once, when everything that lives for good has been made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, FULL)


def strip(error: BaseException | None) -> None:
    """Drop the frames that an error and those that led to it hold; for one that somebody keeps."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
