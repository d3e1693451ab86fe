"""What a decoder is to the process that runs it, and the ways to get one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import SettingsError
from .fsq import Codes

Backend = Literal["onnx", "torch", "nemo"]


class Decoder(Protocol):
    """Decodes streams step by step. A stream's state is opaque, of the decoder's making and never changed."""

    def new_state(self) -> Any:
        """State of a stream that begins."""

    def step(self, codes: Codes, states: Sequence[Any]) -> tuple[NDArray[np.float32], Sequence[Any]]:
        """Decode the next ``n`` frames of ``B`` streams.

        Args:
            codes: uint8 ``[B, n, 32]``, n > 0, within their levels.
            states: the state of each stream.

        Returns:
            Samples float32 ``[B, n * 1024]`` at 22.05 kHz within -1 .. 1, and the new states.

        """


def open_decoder(backend: str, path: Path, *, device: str = "cpu") -> Decoder:
    """Load the decoder of a codec file on one thread.

    Args:
        backend: ``onnx`` (the fastest on a CPU), ``torch`` (also on a GPU), or ``nemo`` (NVIDIA's own
            modules, where ``nemo_toolkit`` is installed).
        path: safetensors file.
        device: for torch and nemo; ONNX Runtime works on the CPU.

    Raises:
        SettingsError: no such backend, or what it needs is not installed.
        EngineError: the file is not what it must be.

    """
    if backend not in get_args(Backend):
        raise SettingsError(f"the codec backend must be one of {', '.join(get_args(Backend))}")
    try:
        if backend == "onnx":
            from .onnx import OnnxDecoder

            return OnnxDecoder.load(path)
        import torch

        torch.set_num_threads(1)
        if backend == "torch":
            from .decoder import TorchDecoder

            return TorchDecoder.load(path, device=device)
        from .nemo import NemoDecoder

        return NemoDecoder.load(path, device=device)
    except ImportError as error:
        raise SettingsError(f"the codec backend {backend} is not installed here") from error
