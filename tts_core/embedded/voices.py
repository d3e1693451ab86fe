"""The voices of the built-in engine: which there are, where their files lie, and what they must hash to.

The default voice is in the ``hibari-tts`` wheel. The others are separate files of the same shape which are
never downloaded: they are offered when the operator has put them into the directory named by
``HIBARI_HOME``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..engine import VoiceInfo
from ..errors import EngineError

MODEL_VERSION = "0.2.1"
"""Release of hibari-tts that the hashes and the name of the duration tensor belong to."""

DEFAULT_VOICE = "heart"


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice as released: file name, SHA-256 of the file, and which English it reads."""

    id: str
    file: str
    sha256: str
    language: str
    gender: str
    description: str
    bundled: bool = False

    @property
    def british(self) -> bool:
        """Whether British spelling-to-sound rules apply."""
        return self.language == "en-GB"

    @property
    def info(self) -> VoiceInfo:
        """The voice as clients see it."""
        return VoiceInfo(self.id, self.id.capitalize(), self.language, self.gender, self.description)


def _voice(
    name: str, file: str, sha256: str, language: str, gender: str, *, bundled: bool = False
) -> tuple[str, Voice]:
    accent = "American" if language == "en-US" else "British"
    voice = Voice(name, file, sha256, language, gender, f"{accent} English, {gender}", bundled)
    return name, voice


# Hashes: the voice table of hibari-tts 0.2.1.
RELEASED: Mapping[str, Voice] = dict(
    (
        _voice(
            "heart",
            "hibari.onnx",
            "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
            "en-US",
            "female",
            bundled=True,
        ),
        _voice(
            "emma",
            "bf_emma.int8.onnx",
            "f709f0488ee63b583a22189a955aaf4257b9806dd330be3490661e53af0a89c1",
            "en-GB",
            "female",
        ),
        _voice(
            "fenrir",
            "am_fenrir_v2.int8.onnx",
            "f59fbd87908c91f827bc21b1b89443757b9a8580db9eee20aa948deb731321f4",
            "en-US",
            "male",
        ),
        _voice(
            "fable",
            "bm_fable.int8.onnx",
            "c28529302f2d27cd12f62625c24425888c4e3c2675583100ec530259136b8bc6",
            "en-GB",
            "male",
        ),
        _voice(
            "kore",
            "af_kore.int8.onnx",
            "346885752673e45d42f9864c9e2432094bc4b6385df060d4b83273da764d2fa9",
            "en-US",
            "female",
        ),
    )
)


def assets() -> Path:
    """Directory of the model package's own files, without importing it.

    Raises:
        EngineError: hibari-tts is not installed.

    """
    spec = find_spec("hibari")
    if spec is None or spec.origin is None:
        raise EngineError("the built-in voice is not installed (hibari-tts)")
    return Path(spec.origin).parent / "assets"


def available(home: str | None = None) -> tuple[tuple[Voice, Path], ...]:
    """Voices whose files exist, the default first. ``home``: instead of ``HIBARI_HOME``."""
    found = []
    home = home if home is not None else os.environ.get("HIBARI_HOME", "")
    for voice in RELEASED.values():
        if voice.bundled:
            found.append((voice, assets() / voice.file))
        elif home and (Path(home) / voice.file).is_file():
            found.append((voice, Path(home) / voice.file))
    return tuple(found)


def read_verified(voice_id: str, path: Path, sha256: str) -> bytes:
    """Read a model file; the bytes returned are the bytes that were hashed.

    Raises:
        EngineError: the file cannot be read or is not the released one.

    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EngineError(f"the model file of voice '{voice_id}' cannot be read") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise EngineError(
            f"the model file of voice '{voice_id}' is not the released one: "
            f"its SHA-256 is {found[:12]}..., expected {sha256[:12]}..."
        )
    return data


def revision(voices: tuple[Voice, ...]) -> str:
    """Changes when any voice's audio would: the model release and the hash of every voice's weights."""
    return "+".join([MODEL_VERSION, *(f"{v.id}-{v.sha256[:12]}" for v in voices)])
