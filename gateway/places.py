"""So many at once and not one more, who is refused at once: for work that holds much memory.

One tenant gets no more than half of them: whoever sends slowly must not keep all others out.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from tts_core.errors import Busy


class Places:
    """``most`` places; ``words`` say to who gets none what the others do."""

    def __init__(self, most: int, words: str, *, retry_after: float) -> None:
        self._most = most
        self._share = max(1, most // 2)
        self._by_tenant: Counter[str] = Counter()
        self._words = words
        self._retry_after = retry_after
        self.taken = 0

    @contextlib.contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """A place of the tenant's for the block. Raises Busy."""
        if self.taken >= self._most or self._by_tenant[tenant] >= self._share:
            raise Busy(self._words, retry_after=self._retry_after)
        self.taken += 1
        self._by_tenant[tenant] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]


__all__ = ["Places"]
