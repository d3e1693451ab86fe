"""The voices of a folder: ``NAME.onnx`` with ``NAME.onnx.json`` beside it, as Piper's own list names them.

A voice with several speakers is offered as ``NAME`` (its first one) and as ``NAME#SPEAKER`` for each.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from ..engine import VoiceInfo
from ..errors import SettingsError

SPEAKER = "#"
MAX_CONFIG = 4 << 20
"""Bytes of a description; those with a thousand speakers have 30 kB."""
_EDGE = 1 << 16
_TAG = re.compile(r"(?P<language>[a-z]{2,3})[_-](?P<region>[A-Za-z]{2}|[0-9]{3})(?![A-Za-z])")


class _Audio(msgspec.Struct):
    sample_rate: Annotated[int, msgspec.Meta(ge=8000, le=48000)]


class _Espeak(msgspec.Struct):
    voice: str = ""


class _Language(msgspec.Struct):
    code: str = ""


class _Config(msgspec.Struct):
    """What we need of a description."""

    audio: _Audio
    espeak: _Espeak = msgspec.field(default_factory=_Espeak)
    language: _Language = msgspec.field(default_factory=_Language)
    dataset: str = ""
    num_speakers: int = 1
    speaker_id_map: dict[str, int] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice of the folder. ``rate`` in Hz; ``speakers`` by name, empty where there is but one."""

    name: str
    path: Path
    rate: int
    language: str
    title: str
    speakers: tuple[tuple[str, int], ...]
    digest: str

    @property
    def infos(self) -> Iterator[VoiceInfo]:
        """The voice and its speakers, as clients see them."""
        yield VoiceInfo(self.name, self.title, self.language, description=f"Piper, {self.name}")
        for speaker, _ in self.speakers:
            title = f"{self.title}, {speaker}"
            description = f"Piper, {self.name}, speaker {speaker}"
            yield VoiceInfo(self.name + SPEAKER + speaker, title, self.language, description=description)


def find(folder: Path | None) -> tuple[Voice, ...]:
    """The voices of ``folder``, by name.

    Raises:
        SettingsError: there is no such folder, no voice in it, or a description that is none.
    """
    if folder is None or not folder.is_dir():
        raise SettingsError(
            "the engine 'piper' needs a folder of voices (NAME.onnx with NAME.onnx.json): "
            "set VOXWIRE_PIPER_VOICES"
        )
    models = [path for path in sorted(folder.glob("*.onnx")) if _beside(path).is_file()]
    if not models:
        raise SettingsError("VOXWIRE_PIPER_VOICES has no voice: NAME.onnx with NAME.onnx.json beside it")
    return tuple(_voice(path) for path in models)


def languages(voices: Sequence[Voice]) -> tuple[str, ...]:
    """Primary tags, each once, in the order of the voices."""
    return tuple(dict.fromkeys(v.language.partition("-")[0] for v in voices))


def revision(voices: Sequence[Voice]) -> str:
    """Changes with any voice's files."""
    return hashlib.sha256("".join(f"{v.name}:{v.digest};" for v in voices).encode()).hexdigest()[:12]


def tag(*names: str) -> str:
    """A BCP 47 tag out of the first name that has one ("en_US-joe-medium", "en-us"); "und" where none has."""
    for name in names:
        if found := _TAG.match(name):
            return f"{found['language']}-{found['region'].upper()}"
    plain = [name for name in names if re.fullmatch(r"[a-z]{2,3}", name)]
    return plain[0] if plain else "und"


def _beside(model: Path) -> Path:
    return model.with_name(model.name + ".json")


def _voice(path: Path) -> Voice:
    name = path.name.removesuffix(".onnx")
    try:
        with _beside(path).open("rb") as file:
            raw = file.read(MAX_CONFIG)
        config = msgspec.json.decode(raw, type=_Config)
        digest = _digest(path, raw)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        raise SettingsError(f"VOXWIRE_PIPER_VOICES: {name}.onnx.json does not describe a voice") from None
    parts = name.split("-")
    title = config.dataset or (parts[1] if len(parts) > 2 else name)
    speakers = sorted(config.speaker_id_map.items(), key=lambda item: item[1])
    if config.num_speakers > 1 and not speakers:
        speakers = [(str(i), i) for i in range(config.num_speakers)]
    return Voice(
        name,
        path,
        config.audio.sample_rate,
        tag(config.language.code, name, config.espeak.voice),
        title.replace("_", " ").title(),
        tuple(speakers) if config.num_speakers > 1 else (),
        digest,
    )


def _digest(path: Path, config: bytes) -> str:
    """Of description and model; of the latter the size and both ends, for there may be gigabytes of them."""
    size = path.stat().st_size
    sha = hashlib.sha256(config + str(size).encode())
    with path.open("rb") as file:
        sha.update(file.read(_EDGE))
        file.seek(max(0, size - _EDGE))
        sha.update(file.read(_EDGE))
    return sha.hexdigest()[:12]
