"""One codec process as the service sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..child.link import Link
from ..child.program import Program
from . import wire

PROGRAM = Program(
    "a codec process",
    "tts_core.nanocodec.worker:main",
    start_s=120.0,  # some seconds are usual (with torch), a cold disk or a busy machine takes longer
)

CodecLink: TypeAlias = Link[wire.Message, wire.Ready]


def open_link(
    on_message: Callable[[wire.Message, memoryview], None], on_lost: Callable[[], None]
) -> CodecLink:
    """A codec process to start; a start that fails raises EngineError."""
    return Link(PROGRAM, wire.LANGUAGE, wire.Ready, on_message, on_lost)
