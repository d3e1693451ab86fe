"""Lays Resemble's mark in speech: float32 of 24 kHz on standard input, the same marked on standard output.

Runs in the environment "perth" (tests/envs.py). The argument is the path of gateway/trust/perth_worker.py.
"""

from __future__ import annotations

import os
import sys

RATE = 24_000


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the package prints
    import runpy

    import numpy as np
    import torch

    # The spectrogram that the package needs, as our worker gives it.
    runpy.run_path(sys.argv[1])["stand_in"](torch)
    import perth  # type: ignore[import-not-found, unused-ignore]

    speech = np.frombuffer(sys.stdin.buffer.read(), "<f4")
    marked = perth.PerthImplicitWatermarker().apply_watermark(speech, sample_rate=RATE)
    out.write(marked.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
