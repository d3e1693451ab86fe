"""So many at once and not one more, who is refused at once: for work that holds much memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tts_core.errors import Busy


class Places:
    """``most`` places; ``words`` say to who gets none what the others do."""

    def __init__(self, most: int, words: str, *, retry_after: float) -> None:
        self._most = most
        self._words = words
        self._retry_after = retry_after
        self.taken = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """A place for the block. Raises Busy."""
        if self.taken >= self._most:
            raise Busy(self._words, retry_after=self._retry_after)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


__all__ = ["Places"]
