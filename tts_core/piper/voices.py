"""The voices of a folder: ``NAME.onnx`` with ``NAME.onnx.json`` beside it, as Piper's own list names them.

A voice with several speakers is offered as ``NAME`` (its first one) and as ``NAME#SPEAKER`` for each.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections import Counter
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
MAX_SPEAKERS = 10_000
"""Of one voice; the largest known has 904."""
RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
"""Hz that the rest of the gateway takes."""
_EDGE = 1 << 16
_TAG = re.compile(r"(?P<language>[a-z]{2,3})[_-](?P<region>[A-Za-z]{2}|[0-9]{3})(?![A-Za-z])")


class _Audio(msgspec.Struct):
    sample_rate: Annotated[int, msgspec.Meta(ge=8000, le=48000)]


class _Espeak(msgspec.Struct):
    voice: str = ""


class _Language(msgspec.Struct):
    code: str = ""


class _Inference(msgspec.Struct):
    length_scale: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 1.0
    noise_scale: float = 0.0
    noise_w: float = 0.0


class _Config(msgspec.Struct):
    """What we need of a description."""

    audio: _Audio
    espeak: _Espeak = msgspec.field(default_factory=_Espeak)
    language: _Language = msgspec.field(default_factory=_Language)
    inference: _Inference = msgspec.field(default_factory=_Inference)
    dataset: str = ""
    num_speakers: Annotated[int, msgspec.Meta(ge=0, le=MAX_SPEAKERS)] = 1
    speaker_id_map: dict[str, Annotated[int, msgspec.Meta(ge=0, lt=MAX_SPEAKERS)]] = msgspec.field(
        default_factory=dict
    )


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
        SettingsError: there is no such folder, no voice in it, a description that is none, or a file or voice
            that cannot be offered.
    """
    try:
        models = sorted(folder.glob("*.onnx")) if folder is not None and folder.is_dir() else None
        models = models and [path for path in models if _beside(path).is_file()]
    except OSError as error:
        raise SettingsError(f"VOXWIRE_PIPER_VOICES cannot be read: {error.strerror}") from None
    if models is None:
        raise SettingsError(
            "the engine 'piper' needs a folder of voices (NAME.onnx with NAME.onnx.json): "
            "set VOXWIRE_PIPER_VOICES"
        )
    if not models:
        raise SettingsError("VOXWIRE_PIPER_VOICES has no voice: NAME.onnx with NAME.onnx.json beside it")
    voices = tuple(_voice(path) for path in models)
    ((ident, count),) = Counter(info.id for voice in voices for info in voice.infos).most_common(1)
    if count > 1:
        raise SettingsError(f"VOXWIRE_PIPER_VOICES: there are two voices {ident!r}")
    return voices


def common_rate(voices: Sequence[Voice]) -> int:
    """The lowest of ``RATES`` to which all of them can be brought, Hz."""
    return min(rate for rate in RATES if rate >= max(v.rate for v in voices))


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
    if not name or not name.isprintable():  # nor is a name that is no UTF-8
        raise SettingsError(f"VOXWIRE_PIPER_VOICES: {path.name!r} cannot be the name of a voice")
    try:
        raw = _read(_beside(path), MAX_CONFIG)
        config = msgspec.json.decode(raw, type=_Config)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.ValidationError) else "it is not JSON"
        raise SettingsError(
            f"VOXWIRE_PIPER_VOICES: {name}.onnx.json does not describe a voice: {reason}"
        ) from None
    digest = _digest(path, raw)
    parts = name.split("-")
    title = config.dataset or (parts[1] if len(parts) > 2 else name)
    speakers = sorted(config.speaker_id_map.items(), key=lambda item: item[1])
    if config.num_speakers > 1 and speakers and speakers[-1][1] >= config.num_speakers:
        raise SettingsError(
            f"VOXWIRE_PIPER_VOICES: {name}.onnx.json does not describe a voice: speaker_id_map has numbers"
            " beyond num_speakers"
        )
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
    start, end = _read(path, _EDGE), _read(path, _EDGE, end=True)
    size = str(path.stat().st_size).encode()
    return hashlib.sha256(config + size + start + end).hexdigest()[:12]


def _read(path: Path, most: int, *, end: bool = False) -> bytes:
    """The start of a file, or its end. Raises SettingsError, also for a pipe, which would be waited for."""
    try:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        with path.open("rb") as file:
            if end:
                file.seek(max(0, path.stat().st_size - most))
            return file.read(most)
    except OSError as error:
        raise SettingsError(f"VOXWIRE_PIPER_VOICES: {path.name} cannot be read: {error.strerror}") from None
