"""One worker process as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..child.link import Link
from ..child.program import Program
from . import wire

PROGRAM = Program(
    "a worker of the built-in voice",
    "tts_core.embedded.worker:main",
    start_s=30.0,  # 1 s is usual, a cold disk or a busy machine takes longer
    env={"HF_HUB_OFFLINE": "1"},
)

WorkerLink: TypeAlias = Link[wire.Message, wire.Ready]


def open_link(
    on_message: Callable[[wire.Message, memoryview], None], on_lost: Callable[[], None]
) -> WorkerLink:
    """A worker to start; a start that fails raises EngineError."""
    return Link(PROGRAM, wire.LANGUAGE, wire.Ready, on_message, on_lost)
