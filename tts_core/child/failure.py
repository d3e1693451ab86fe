"""How an error of a worker becomes one of its owner."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import EngineError, VoxwireError


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Request ``id`` failed (0: the worker could not start). The words are ours and safe to show.

    Part of every language of this package: a worker that cannot start answers its first message with it.
    """

    id: int
    code: str
    message: str
    field: str | None = None

    @classmethod
    def of(cls, ident: int, error: VoxwireError) -> Failed:
        """``error`` of request ``ident``."""
        return cls(ident, error.code, error.message, error.field)

    def error(self, *kinds: type[VoxwireError]) -> VoxwireError:
        """The error as the owner raises it.

        With its code, words and field where it is one of ``kinds`` or of their subclasses; any other is an
        EngineError with the same words, for whoever waits is prepared for ``kinds`` alone.
        """
        for kind in _tree(*kinds):
            if kind.code == self.code:
                return kind(self.message, field=self.field)
        return EngineError(self.message)


def _tree(*kinds: type[VoxwireError]) -> Iterator[type[VoxwireError]]:
    for kind in kinds:
        yield kind
        yield from _tree(*kind.__subclasses__())
