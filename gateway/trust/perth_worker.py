"""Answers how sure Resemble's detector is of its mark: run as a program, ``python -I perth_worker.py``.

It may run under another Python than the gateway's, as the package asks for torch and an old setuptools, and
imports nothing of ours. On standard input: the number of samples (uint32) and the samples (float32), little-
endian, 22,050 Hz, over and over. On standard output: one JSON line at the start (``"ready"`` or
``{"error": why}``), then a number a request.

Resemble's package sets its detector to None where a dependency of it is missing, and offers a dummy that
finds nothing: neither passes for a detector here (trust.md S35). Of torchaudio, whose wheels fit no CPU build
of torch, it needs one spectrogram, which is given to it where torchaudio cannot be imported. Its weights are
a pickle; torch reads numbers alone out of it (``weights_only``, the default since 2.6), and an older torch is
refused.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import types
from typing import Any, BinaryIO

RATE = 22_050
MOST = 64 * RATE
"""Most samples of a request."""


class Unable(Exception):
    """Why there is no detector."""


def load() -> Any:
    """The detector. Raises Unable with what is missing."""
    try:
        import torch

        stand_in(torch)
        import perth  # type: ignore[import-not-found, unused-ignore]
    except Exception as error:
        raise Unable(f"resemble-perth cannot be imported ({type(error).__name__})") from None
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
        raise Unable("torch is older than 2.6")
    detector = getattr(perth, "PerthImplicitWatermarker", None)
    if detector is None:
        try:
            from perth.perth_net.perth_net_implicit import (  # type: ignore[import-not-found, unused-ignore]
                perth_watermarker,
            )
        except Exception as error:
            missing = getattr(error, "name", None) or type(error).__name__
            raise Unable(f"resemble-perth is not whole: {missing} is missing") from None
        detector = perth_watermarker.PerthImplicitWatermarker
    torch.set_num_threads(1)
    try:
        return detector()
    except Exception as error:
        raise Unable(f"resemble-perth's weights cannot be read ({type(error).__name__})") from None


def stand_in(torch: Any) -> None:
    """Offer ``torchaudio.transforms`` with what the detector uses, where the package is missing or broken."""
    try:
        import torchaudio  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except (ImportError, OSError):
        transforms = types.ModuleType("torchaudio.transforms")
        package = types.ModuleType("torchaudio")
        package.transforms = transforms  # type: ignore[attr-defined]
        sys.modules |= {"torchaudio": package, "torchaudio.transforms": transforms}
    else:
        return

    class Spectrogram(torch.nn.Module):  # type: ignore[misc]
        """The complex short-time spectrum, as torchaudio's with ``power=None``, and its inverse."""

        def __init__(
            self, *, n_fft: int, win_length: int, hop_length: int, window_fn: Any, **_: object
        ) -> None:
            super().__init__()
            self.sizes = {"n_fft": n_fft, "hop_length": hop_length, "win_length": win_length}
            self.register_buffer("window", window_fn(win_length))

        def forward(self, x: Any) -> Any:
            return torch.stft(x, **self.sizes, window=self.window, return_complex=True)

    class InverseSpectrogram(Spectrogram):
        def forward(self, x: Any) -> Any:
            return torch.istft(x, **self.sizes, window=self.window)

    class TimeStretch(torch.nn.Module):  # type: ignore[misc]
        """Of training alone; the file of weights holds its numbers, too."""

        def __init__(self, *, n_freq: int, hop_length: int) -> None:
            super().__init__()
            self.register_buffer("phase_advance", torch.zeros(n_freq, 1))

    transforms.Spectrogram = Spectrogram  # type: ignore[attr-defined]
    transforms.InverseSpectrogram = InverseSpectrogram  # type: ignore[attr-defined]
    transforms.TimeStretch = TimeStretch  # type: ignore[attr-defined]


def serve(detector: Any, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end."""
    import numpy as np

    while len(head := requests.read(4)) == 4:
        (count,) = struct.unpack("<I", head)
        if not 0 < count <= MOST:
            return
        data = bytearray(requests.read(4 * count))
        if len(data) != 4 * count:
            return
        heard = np.frombuffer(data, "<f4")
        sure = float(np.mean(detector.get_watermark(heard, sample_rate=RATE, round=False)))
        heard.fill(0)
        _say(answers, sure if sure == sure else 0.0)  # noqa: PLR0124 - NaN: where all is silence


def _say(answers: BinaryIO, what: object) -> None:
    answers.write(json.dumps(what).encode() + b"\n")
    answers.flush()


def main() -> int:
    """Serve standard input; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        detector = load()
    except Unable as error:
        _say(answers, {"error": str(error)})
        return 1
    _say(answers, "ready")
    serve(detector, sys.stdin.buffer, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
