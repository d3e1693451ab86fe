"""The built-in voice: a small English model on the CPU, one worker process per core, nothing to download.

``EmbeddedEngine`` is loaded on first use, so that a worker process, which imports this package too, does not
pay for the parent's half of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]


def __getattr__(name: str) -> Any:
    if name == "EmbeddedEngine":
        from .engine import EmbeddedEngine

        return EmbeddedEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
