"""One authenticated connection or call: its contexts by id, and the rules about ids and numbers.

Without I/O. A dialect keeps whatever drives a context as the value.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Generic, TypeVar

from tts_core.errors import BadRequest, Draining, LimitExceeded

T = TypeVar("T")

REMEMBERED = 32
"""Ended contexts kept for a late cancel, which asks what was heard."""


class UnknownContext(BadRequest):
    """The client named a context that is not open."""

    code = "unknown_context"


class Session(Generic[T]):
    """Contexts of one connection.

    Args:
        tenant: whose session it is.
        max_contexts: contexts open at once; one more is refused alone and the session lives on
            (protocols.md R7).
        reuse_ids: whether the id of an ended context may be used again.
        keep_ended: whether somebody may still ask an ended context something. Else its id alone is known.
    """

    def __init__(
        self, tenant: str, *, max_contexts: int, reuse_ids: bool = True, keep_ended: bool = True
    ) -> None:
        self.id = f"s_{secrets.token_hex(12)}"
        self.tenant = tenant
        self.max_contexts = max_contexts
        self.draining = False
        self._reuse = reuse_ids
        self._open: dict[str, T] = {}
        self._keep = keep_ended
        self._ended: OrderedDict[str, T | None] = OrderedDict()
        self._indexes = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, context_id: object) -> bool:
        return context_id in self._open

    def may_open(self, context_id: str, *, finishing: bool = False) -> None:
        """Raise Draining, BadRequest (id in use) or LimitExceeded when the context cannot be opened.

        ``finishing``: it belongs to something that was begun before the drain, a call.
        """
        if self.draining and not finishing:
            raise Draining("the gateway is restarting and takes no new contexts", retry_after=1.0)
        if context_id in self._open or (not self._reuse and context_id in self._ended):
            raise BadRequest("this context id is in use", field="context_id")
        if len(self._open) >= self.max_contexts:
            raise LimitExceeded(
                f"at most {self.max_contexts} contexts may be open on one connection", retry_after=1.0
            )

    def open(self, context_id: str, value: T, *, finishing: bool = False) -> int:
        """Add a context as ``may_open`` allows; returns its index, counted from 1 and never used twice."""
        self.may_open(context_id, finishing=finishing)
        self._ended.pop(context_id, None)
        self._open[context_id] = value
        self._indexes += 1
        return self._indexes

    def get(self, context_id: str) -> T:
        """The open context; UnknownContext if there is none."""
        try:
            return self._open[context_id]
        except KeyError:
            raise UnknownContext("no open context has this id", field="context_id") from None

    def find(self, context_id: str) -> T | None:
        """The open context or None."""
        return self._open.get(context_id)

    def ended(self, context_id: str) -> T | None:
        """A context that ended lately, or None; always None unless they are kept."""
        return self._ended.get(context_id)

    def knew(self, context_id: str) -> bool:
        """Whether a context of this id ended lately."""
        return context_id in self._ended

    def close(self, context_id: str, value: T) -> None:
        """The context ended; ignored if the id belongs to a newer one by now."""
        if self._open.get(context_id) is not value:
            return
        del self._open[context_id]
        self._ended[context_id] = value if self._keep else None
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def all(self) -> list[T]:
        """The open contexts, oldest first."""
        return list(self._open.values())
