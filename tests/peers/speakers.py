"""The speaker model, converted once for this machine, and voices that can be had offline to try it with."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import wave
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.envs import cache_root
from gateway.trust.convert import PINNED, convert
from gateway.trust.speaker import SpeakerModel
from telephony.dsp.g711 import mulaw_decode, mulaw_encode
from telephony.dsp.pcm import float_to_int16, int16_to_float
from telephony.dsp.resample import Resampler
from tests import envs

Samples = NDArray[np.float32]
Clip = tuple[Samples, int]
"""Samples, and their rate in Hz."""

TEXTS = (
    "Thank you for calling. Please tell me in a few words why you are calling us today.",
    "The second train to the coast leaves at nine and takes a little more than two hours.",
    "He put the old wooden box under the bed, and nobody thought of it for many years.",
    "Fresh bread, some cheese and a bottle of water are all that you will need up there.",
)
"""Five seconds or so each, with no word of weight in common."""

_PEOPLE = {
    "caller A": ((10.6, 14.4), (18.6, 21.45)),
    "caller B": ((14.8, 17.9), (21.8, 24.9), (24.9, 27.8)),
}
"""When each speaks alone in pyannote's sample of a telephone call, seconds (sample.rttm beside it)."""

_DEADLINE_S = 240.0


def packages(name: str) -> Path:
    """The folder of packages of an environment."""
    (found,) = envs.ensure(name).parents[1].glob("lib/python3*/site-packages")
    return found


def wheel_weights() -> Path:
    """The checkpoint as Resemblyzer ships it."""
    return packages("speaker") / "resemblyzer" / "pretrained.pt"


@cache
def model_file() -> Path:
    """The converted model."""
    path = cache_root() / f"speaker-{PINNED[:16]}.onnx"
    if not path.exists():
        convert(wheel_weights(), path)
    return path


@cache
def model() -> SpeakerModel:
    """The model, loaded."""
    return SpeakerModel.load(model_file())


@cache
def heart(texts: tuple[str, ...] = TEXTS) -> tuple[Clip, ...]:
    """Texts by the embedded voice."""

    def said(_: Path) -> dict[str, Any]:
        from hibari import Hibari

        voice = Hibari(threads=1)
        clips = {str(n): np.asarray(voice(text, seed=n), np.float32) for n, text in enumerate(texts)}
        return {"rate": np.array(24_000), **clips}

    return _kept("heart", texts, said)


@cache
def joe(texts: tuple[str, ...] = TEXTS) -> tuple[Clip, ...]:
    """Texts by a Piper voice."""

    def said(folder: Path) -> dict[str, Any]:
        script, answered = Path(__file__).with_name("piper_voice.py"), folder / "said.npz"
        subprocess.run(
            [str(envs.ensure("piper")), "-P", str(script), str(answered)],
            input=json.dumps(texts).encode(), check=True, timeout=_DEADLINE_S, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with np.load(answered) as found:
            clips = {str(n): int16_to_float(found[str(n)]) for n in range(len(texts))}
            return {"rate": found["rate"], **clips}

    return _kept("joe", texts, said)


def _kept(who: str, texts: tuple[str, ...], speak: Callable[[Path], dict[str, Any]]) -> tuple[Clip, ...]:
    """What was said, once for this machine: one voice takes seconds to load, the other a minute."""
    digest = hashlib.sha256("\n".join((who, *texts)).encode()).hexdigest()[:16]
    path = cache_root() / f"said-{digest}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / "made.npz"
            np.savez(made, **speak(Path(folder)))
            made.replace(path)
    with np.load(path) as said:
        return tuple((said[str(n)], int(said["rate"])) for n in range(len(texts)))


@cache
def call() -> Clip:
    """Half a minute of two people on the phone, who take turns."""
    with wave.open(str(packages("speaker") / "pyannote" / "audio" / "sample" / "sample.wav")) as file:
        raw = file.readframes(file.getnframes())
        return int16_to_float(np.frombuffer(raw, np.int16)), file.getframerate()


def people() -> dict[str, tuple[Clip, ...]]:
    """What each of the two says alone."""
    pcm, rate = call()
    return {
        who: tuple((pcm[int(a * rate) : int(b * rate)], rate) for a, b in turns)
        for who, turns in _PEOPLE.items()
    }


def over_the_phone(clip: Clip) -> Clip:
    """The same at 8 kHz through mu-law."""
    pcm, rate = clip
    resampler = Resampler(rate, 8000)
    narrow = np.concatenate([resampler.process(pcm), resampler.flush()])
    return int16_to_float(mulaw_decode(mulaw_encode(float_to_int16(narrow)))), 8000
