from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.gateway.intake.media import FORMATS, Samples, ffmpeg, voice_like, wav
from tts_core.embedded.model import Acoustics
from tts_core.embedded.phones import Pronouncer, vocabulary
from tts_core.embedded.speaker import Speaker
from tts_core.embedded.voices import assets, available, read_verified

TEXT = (
    "Thank you for calling the support desk. My name is Anna, and I will be helping you today with whatever "
    "you need. Please tell me a little about the problem."
)


@cache
def _speech() -> Samples:
    voice, path = available("")[0]
    speaker = Speaker(
        "heart",
        Acoustics(read_verified(voice.id, path, voice.sha256)),
        Pronouncer(assets()),
        vocabulary(assets()),
    )
    return np.concatenate([block.pcm for block in speaker.speak(TEXT)])


@pytest.fixture(scope="session")
def speech() -> Samples:
    """Some ten seconds of the embedded voice at 24 kHz, float32."""
    return _speech()


@pytest.fixture(scope="session")
def files() -> dict[str, bytes]:
    """Two seconds, between half-second silences, in every format."""
    quiet = np.zeros(11_025, np.float32)
    made = wav(np.concatenate([quiet, voice_like(2.0), quiet]), 22_050)
    return {name: bytes(ffmpeg(made, *arguments)) for name, arguments in FORMATS.items()}
