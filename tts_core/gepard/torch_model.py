"""``FrameModel`` without vLLM: the plain loop in a process of its own, for small machines.

Requests take turns, a frame each, so a few run side by side and every one is as fast as the machine divided
by their number.
"""

from __future__ import annotations

from tts_core.child.program import Program

from .checkpoint import Checkpoint
from .config import dtype_of
from .model_process import Limits, ModelProcess

START_S = 120.0
"""Deadline from the start of a worker to its Ready: a gigabyte from a cold disk takes a minute."""

LIMITS = Limits(first=60.0, step=60.0, stuck=30.0)
"""A step takes far below a second; the wait for a turn is part of a request's first and other frames."""


class TorchModel(ModelProcess):
    """Fulfils ``FrameModel``. Belongs to one event loop.

    Args:
        checkpoint: what to serve.
        dtype: number type to compute in.
        slots: requests that take turns.
        waiting: requests that may wait for a turn; more are refused with Busy.
        threads: of torch in the worker; None for torch's own choice, one per core.
        limits: see ``Limits``.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        dtype: str = "float32",
        slots: int = 4,
        waiting: int = 64,
        threads: int | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        program = Program(
            "the plain model",
            "tts_core.gepard.torch_turns:main",
            START_S,
            threads=threads,
            env={"HF_HUB_OFFLINE": "1"},
        )
        options = {
            "directory": str(checkpoint.directory.resolve()),
            "dtype": dtype_of(dtype),
            "slots": slots,
            "threads": threads or 0,
        }
        super().__init__(program, options, checkpoint.config, slots=slots, waiting=waiting, limits=limits)
