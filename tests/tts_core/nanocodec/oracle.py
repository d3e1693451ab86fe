"""NeMo's own answers about a codec file, from its own environment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.envs import ROOT, ensure
from tests.tts_core.nanocodec.cases import Codec, some_codes

SCRIPT = ROOT / "tests" / "peers" / "nemo_oracle.py"
DEADLINE_S = 280.0
FRAMES = 40
"""More than the decoder looks back."""


@dataclass(frozen=True)
class Oracle:
    """What ``AudioCodecModel.restore_from`` gives for the clip and for ``codes``, and our backend on NeMo."""

    codes: Any
    tokens_of_clip: Any
    samples: Any
    samples_of_tokens: Any
    streamed: Any
    streamed_sizes: list[int]


def ask(codec: Codec, clip: Any, folder: Path) -> Oracle:
    codes = some_codes(FRAMES)
    asked, answered = folder / "asked.npz", folder / "answered.npz"
    sizes = [1, 2, 4, 8, 16, 9]
    np.savez(asked, codes=codes, clip=clip, sizes=np.array(sizes))
    done = subprocess.run(
        [str(ensure("nemo")), str(SCRIPT), str(codec.nemo), str(codec.path), str(asked), str(answered)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(answered) as answer:
        return Oracle(
            codes,
            answer["tokens_of_clip"],
            answer["samples"],
            answer["samples_of_tokens"],
            answer["streamed"],
            sizes,
        )
