"""Why a reference is refused, by name."""

from __future__ import annotations

from tts_core.errors import BadRequest


class ReferenceRefused(BadRequest):
    """A reference recording, or its address, that we do not take.

    ``reason`` is the short name (``too_long``, ``unsupported``, ...), ``code`` the same behind
    ``reference_``. The message is ours alone: nothing of the decoder, the resolver or the other server is in
    it.
    """

    status = 422

    def __init__(self, reason: str, message: str, *, field: str | None = "reference") -> None:
        super().__init__(message, field=field)
        self.reason = reason
        self.code = f"reference_{reason}"


__all__ = ["ReferenceRefused"]
