"""One worker process as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ..child.link import Link
from ..child.program import Program
from . import wire

PROGRAM = Program(
    "a worker of piper",
    "tts_core.piper.worker:main",
    start_s=100.0,  # 2 s a voice are usual, a cold disk or a busy machine takes longer
)

WorkerLink: TypeAlias = Link[wire.Message, wire.Ready]


def open_link(
    python: str, on_message: Callable[[wire.Message, memoryview], None], on_lost: Callable[[], None]
) -> WorkerLink:
    """A worker to start, under that Python (empty: ours); a start that fails raises EngineError."""
    return Link(replace(PROGRAM, python=python), wire.LANGUAGE, wire.Ready, on_message, on_lost)
