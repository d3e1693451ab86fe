"""What Resemblyzer itself makes of samples. Runs in the environment ``nemo``, which has torch and librosa.

    python resemblyzer_oracle.py PACKAGES ASKED.npz ANSWERED.npz

``PACKAGES`` is the folder of packages that holds Resemblyzer, ``ASKED`` has clips as float32 ``[n]`` at 16
kHz; ``ANSWERED`` gets ``mel NAME`` [frames, 40], ``windows NAME`` [m, 256], ``embedding NAME`` [256] of each.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np


def load(packages: str) -> Any:
    """Resemblyzer, with stand-ins for what only its search for speech needs, which is not asked for here."""
    for name, attribute in (("webrtcvad", "Vad"), ("scipy.ndimage.morphology", "binary_dilation")):
        stand_in = types.ModuleType(name)
        setattr(stand_in, attribute, None)
        sys.modules[name] = stand_in
    folder = Path(packages) / "resemblyzer"
    spec = importlib.util.spec_from_file_location(
        "resemblyzer", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["resemblyzer"] = module
    spec.loader.exec_module(module)
    return module


def main(packages: str, asked: str, answered: str) -> None:
    resemblyzer = load(packages)
    encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)
    found = {}
    with np.load(asked) as clips:
        for name in clips.files:
            found[f"mel {name}"] = sys.modules["resemblyzer.audio"].wav_to_mel_spectrogram(clips[name])
            whole, windows, _ = encoder.embed_utterance(clips[name], return_partials=True)
            found[f"windows {name}"], found[f"embedding {name}"] = windows, whole
    np.savez(answered, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
