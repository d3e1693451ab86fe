"""Piper voices on the CPU, in many languages: any folder of ``NAME.onnx`` with ``NAME.onnx.json``.

Piper (``piper-tts``) is GPL-3.0 and no part of the base install: it is imported by the worker processes
alone, which may run under a Python of their own (``VOXWIRE_PIPER_PYTHON``); what passes between them and the
gateway is text and samples. A voice's licence is that of its maker; see its MODEL_CARD.

- ``voices``: what lies in the folder.
- ``engine``, ``link``, ``wire``: the engine's side.
- ``worker``, ``speaker``: the worker's side.
- ``words``: which phonemes each word of the text became.
- ``sound``: silence left out, rates made alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import PiperEngine

__all__ = ["PiperEngine"]


def __getattr__(name: str) -> Any:
    if name == "PiperEngine":
        from .engine import PiperEngine

        return PiperEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
