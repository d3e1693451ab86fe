"""CPU time of NeMo's decoder. Runs in the environment ``nemo``.

    python nemo_speed.py CODEC.safetensors FRAMES...

The last line is ``{"version": "3.0.0", "ms": {"1": CPU ms of a whole clip of one frame, ...}}``, on one
thread, the least of several rounds.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from tts_core.nanocodec.fsq import LEVELS
from tts_core.nanocodec.nemo import NemoDecoder

ROUNDS = 5


def main(model: str, *counts: str) -> None:
    torch.set_num_threads(1)
    decoder = NemoDecoder.load(Path(model))
    found: dict[str, float] = {}
    for count in counts:
        codes = (np.random.default_rng(0).random((int(count), len(LEVELS))) * np.array(LEVELS)).astype(
            np.uint8
        )
        times = []
        for _ in range(1 + ROUNDS):
            start = time.process_time()
            decoder.whole(codes)
            times.append(time.process_time() - start)
        found[count] = min(times[1:]) * 1000
    print(json.dumps({"version": version("nemo_toolkit"), "ms": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
