"""Who speaks: a recording as 256 numbers that are alike for recordings of one person.

    model = SpeakerModel.load(path)                      # the file of `voxwire models convert-speaker`
    same = model.similarity(model.embed(a, rate), model.embed(b, rate)) >= THRESHOLD
    require_one_speaker(model.windows(a, rate))          # refused as reference_several_speakers

The model is Resemblyzer 0.1.4 (a d-vector encoder after Wan et al., 2018, trained on LibriSpeech and
VoxCeleb): windows of 1.6 s, 1.3 of them a second, whose vectors are averaged. It is run by ONNX Runtime on
one thread, which holds no lock of Python meanwhile. All calls but ``similarity`` block and belong into a
thread; a model may be used by several.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.intake.refusal import ReferenceRefused
from gateway.trust.convert import PINNED
from gateway.trust.graph import FRAMES, INPUT, OUTPUT, WIDTH
from gateway.trust.mel import HOP, RATE, mel
from telephony.dsp.resample import Resampler
from tts_core.errors import SettingsError

THRESHOLD = 0.84
"""Similarity from which two recordings count as of the same person (V3), for at most 1 % false accepts.

``python -m tests.bench speaker --kokoro PACKAGE --voices 23``, 27 speakers, 80 clips of 3 to 6 s: false
accepts 0.45 % of 3,081 cross pairs as recorded, 0.45 % over the phone (8 kHz mu-law), 0.49 % of 6,162 with
one of each; none of 79 (158) pairs of one speaker was not recognised. The least alike pair of one speaker has
0.846, the most alike pair of two 0.872. The threshold was chosen on this same set, which is small. It is easy
on one side: 25 of the speakers are synthetic, and each was recorded once. People vary from day to day and
from microphone to microphone: expect them to be refused more often. It is hard on the other: the synthetic
speakers read the same texts, many come of one model, and two people on one telephone line have up to 0.83.
"""

ONE_SPEAKER = 0.82
"""Similarity of the two halves of a recording from which it counts as of one person (V4).

Measured as above, on clips of 7 windows (6 s of speech) and more: 54 of one speaker had 0.843 and more; of
two speakers, half and half, 5 % of 57 and 2 % of another 101 were let through. Two people on one
telephone line who sound alike may not be seen: the one such call at hand has 0.85.
"""
ONE_SPEAKER_SHORT = 0.77
"""The same for fewer windows, whose halves vary more: 0.771 and more in 54 of one speaker."""

SEVERAL_SPEAKERS = "several_speakers"
TOO_LITTLE_SPEECH = "too_little_speech"
LEAST_S = 1.0
"""Seconds of speech, without pauses, below which nothing is said about a recording."""
MOST_S = 60.0
"""Seconds of speech that are looked at."""

_STEP = 77
"""Frames between windows: 1.3 a second, as the published model was evaluated with."""
_COVERAGE = 0.75
"""Share of a last window that must be there."""
_BATCH = 32
_MANY = 7
"""Windows from which the halves of a recording are steady."""
_LEVEL_DB = -30.0
_BAND_RATE = 8000
_TICK = RATE // 100
_QUIET_DB = 30.0
_BRIDGE = 10
"""Ticks of 10 ms on either side of speech that are kept."""
_MOST_FILE = 16 << 20

Samples = NDArray[np.float32]
Vectors = NDArray[np.float32]


class SpeakerModel:
    """The loaded model. ``digest`` is the SHA-256 of its file."""

    digest = PINNED

    def __init__(self, model: bytes) -> None:
        """Prefer :meth:`load`, which lets nothing through but the pinned file."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @classmethod
    def load(cls, path: Path) -> SpeakerModel:
        """Load the converted file. Blocks for a part of a second.

        Raises:
            SettingsError: there is no such file, or it is not, byte for byte, the pinned one.

        """
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_FILE + 1)
        except OSError as error:
            raise SettingsError(
                f"speaker_model = {str(path)!r} cannot be read ({error.strerror}); make it with "
                "'voxwire models convert-speaker'"
            ) from None
        if hashlib.sha256(data).hexdigest() != PINNED:
            raise SettingsError(
                f"speaker_model = {str(path)!r} is damaged or of another model; make it with "
                "'voxwire models convert-speaker' from the wheel of Resemblyzer 0.1.4"
            )
        return cls(data)

    def embed(self, pcm: Samples, rate: int) -> Vectors:
        """The voice of a recording: float32 ``[256]`` of length 1.

        Args:
            pcm: float32 ``[n]``, mono, within -1..1; pauses are left out, loudness does not matter.
            rate: Hz, one of :data:`telephony.dsp.fir.RATES`.

        Raises:
            ReferenceRefused: ``too_little_speech``: less than ``LEAST_S`` of it.
            UnsupportedFormat: the rate is another.

        """
        return _unit(self.windows(pcm, rate).mean(axis=0))

    def windows(self, pcm: Samples, rate: int) -> Vectors:
        """The voice in each window of 1.6 s, in order: float32 ``[m, 256]`` of length 1, ``m`` >= 1.

        Arguments and errors as for ``embed``.
        """
        return self.windows_of(speech(pcm, rate))

    def windows_of(self, pcm: Samples) -> Vectors:
        """The same of float32 ``[n]`` at 16 kHz as it is, without the search for speech."""
        bands = mel(np.pad(pcm, (0, max(0, FRAMES * HOP - len(pcm)) + FRAMES * HOP)))
        starts = window_starts(len(pcm))
        made = np.empty((len(starts), WIDTH), np.float32)
        for at in range(0, len(starts), _BATCH):
            batch = np.stack([bands[start : start + FRAMES] for start in starts[at : at + _BATCH]], axis=1)
            made[at : at + _BATCH] = self._session.run([OUTPUT], {INPUT: batch})[0]
        return _unit(made)

    @staticmethod
    def similarity(a: Vectors, b: Vectors) -> float:
        """Cosine of two vectors of length 1: 0 to 1, as no number in them is below zero."""
        return float(np.dot(a, b))


def window_starts(samples: int) -> list[int]:
    """First frame of each window of a recording of so many samples (Resemblyzer's compute_partial_slices)."""
    frames = -(-(samples + 1) // HOP)
    starts = list(range(0, max(1, frames - FRAMES + _STEP + 1), _STEP))
    covered = (samples - starts[-1] * HOP) / (FRAMES * HOP)
    return starts[:-1] if covered < _COVERAGE and len(starts) > 1 else starts


def speech(pcm: Samples, rate: int) -> Samples:
    """What speaks in a recording: float32 ``[m]`` at 16 kHz, at the level that the model was trained with.

    Only the phone's band is kept, whatever the recording has, and the level is brought to -30 dB from below
    and above: else the same person with another microphone is another voice (a clip and the same over the
    phone: one in six not recognised). Pauses are shortened to a fifth of a second. Resemblyzer's detector of
    voice (WebRTC's) is replaced by one of energy.
    """
    for source, target in ((rate, _BAND_RATE), (_BAND_RATE, RATE)):
        if source != target:
            resampler = Resampler(source, target)
            pcm = np.concatenate([resampler.process(pcm), resampler.flush()])
    ticks = pcm[: len(pcm) // _TICK * _TICK].reshape(-1, _TICK)
    power = np.mean(np.square(ticks, dtype=np.float64), axis=1)
    loud = float(np.partition(power, -(len(power) // 10 + 1))[-(len(power) // 10 + 1)]) if len(power) else 0.0
    heard = (power >= loud * 10 ** (-_QUIET_DB / 10)) & (power > 1e-9)
    if heard.sum() * _TICK < LEAST_S * RATE:
        raise ReferenceRefused(TOO_LITTLE_SPEECH, f"there is less than {LEAST_S:g} s of speech in it")
    kept = np.convolve(heard, np.ones(2 * _BRIDGE + 1), "same") > 0.5
    spoken = ticks[kept].reshape(-1)[: int(MOST_S * RATE)]
    level = 10 * np.log10(float(np.mean(np.square(spoken, dtype=np.float64))))
    gain = 10 ** ((_LEVEL_DB - level) / 20)
    return (spoken * np.float32(gain)).astype(np.float32)


def halves(windows: Vectors) -> float:
    """Similarity of the two groups into which the windows of a recording fall apart most, 0 to 1.

    Two means, begun from the two windows that are least alike. 1.0 where a group is a single window, which
    is as likely a cough as a person.
    """
    alike = windows @ windows.T
    first, second = np.unravel_index(int(np.argmin(alike)), alike.shape)
    one, two = windows[first], windows[second]
    mine = np.zeros(len(windows), np.bool_)
    for _ in range(20):
        mine = windows @ one >= windows @ two
        if min(mine.sum(), (~mine).sum()) < 2:
            return 1.0
        one, two = _unit(windows[mine].mean(axis=0)), _unit(windows[~mine].mean(axis=0))
    return float(np.dot(one, two))


def one_speaker(windows: Vectors) -> bool:
    """Whether the windows of a recording are of one person (V4)."""
    return halves(windows) >= (ONE_SPEAKER if len(windows) >= _MANY else ONE_SPEAKER_SHORT)


def require_one_speaker(windows: Vectors) -> None:
    """Raise ReferenceRefused with the reason ``several_speakers`` unless one person speaks."""
    if not one_speaker(windows):
        raise ReferenceRefused(SEVERAL_SPEAKERS, "more than one person speaks in it")


def _unit(vectors: Vectors) -> Vectors:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    made: Vectors = (vectors / np.maximum(length, 1e-9)).astype(np.float32)
    return made


__all__ = [
    "ONE_SPEAKER", "SEVERAL_SPEAKERS", "THRESHOLD", "TOO_LITTLE_SPEECH", "Samples", "SpeakerModel", "Vectors",
    "halves", "one_speaker", "require_one_speaker",
]  # fmt: skip
