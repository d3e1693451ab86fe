"""What only the cycle collector would free: work that leaves such things behind costs memory and pauses."""

from __future__ import annotations

import gc
from collections import Counter

OURS = ("gateway.", "sessions.", "tts_core.", "telephony.")


class Left:
    """Counts the objects of our own types that what is done inside leaves to the collector."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()

    def __enter__(self) -> Left:
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        return self

    def __exit__(self, *_: object) -> None:
        gc.collect()
        names = (f"{type(left).__module__}.{type(left).__qualname__}" for left in gc.garbage)
        self.types.update(name for name in names if name.startswith(OURS))
        gc.garbage.clear()
        gc.set_debug(0)
        gc.enable()
        gc.collect()
