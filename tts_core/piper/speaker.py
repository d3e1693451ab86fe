"""One Piper voice, loaded: text in, blocks of audio with word marks out. Runs in a worker."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..engine import Samples
from ..errors import EngineError
from ..pool.limiter import limit
from .sound import resampled, sounding
from .words import SILENT, Spoken, spoken

log = logging.getLogger(__name__)

PIECE = 110
"""Phonemes of one step, about seven seconds of speech: a longer sentence is cut, so that its first sound does
not wait for its end, and that it can be stopped.
"""
SLACK = 25
LEAD_S = 0.02
"""Silence kept before the first sound of a piece."""
TAILS_S = (0.03, 0.15, 0.04)
"""Silence kept after a piece that ends within a sentence, with one, and with the text."""
TARGET = 0.085
"""RMS of speech, -21 dBFS: the models differ in level by far more than two voices should."""
GAINS = (0.5, 4.0)
WARM_UP = "1, 2, 3, 4, 5, 6, 7, 8, 9."
"""Every language has words for these."""

Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of samples and the marks of the words in it; ``last`` of the request."""

    pcm: Samples
    marks: tuple[Mark, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """Phonemes ``[first, last)`` of a text, spoken in one step; ``tail``: index into ``TAILS_S``."""

    first: int
    last: int
    tail: int


class Speaker:
    """A voice, or one of its speakers.

    Args:
        voice: a ``piper.PiperVoice``.
        rate: of what is given, in Hz.
        number: of the speaker; None for the voice's own.
        gain: what brings the voice to ``TARGET``.
    """

    def __init__(self, voice: Any, rate: int, number: int | None, gain: float) -> None:
        self._voice, self._rate, self._number, self._gain = voice, rate, number, gain

    def speak(
        self,
        text: str,
        speed: float = 1.0,
        seed: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Block]:
        """The audio of ``text``, a block a piece; nothing for text without sound.

        ``stop`` is asked before each piece; where it says True the audio ends there.
        """
        if not any(c.isalnum() for c in text):
            return  # it would say "exclamation"
        voice = self._voice
        # Piper takes what is between double brackets for phonemes: no client may write those.
        text = text.replace("[[", "  ").replace("]]", "  ")
        sentences: list[list[str]] = [s for s in voice.phonemize(text) if s]
        if all(p in SILENT for s in sentences for p in s):
            return
        flat = [p for sentence in sentences for p in sentence]
        words = spoken(text, sentences, lambda w: [p for s in voice.phonemize(w) for p in s])
        pieces = cut(sentences)
        at = 0
        for piece in pieces:
            if stop():
                return
            audio, starts = self._say(flat[piece.first : piece.last], speed, seed)
            begin, end = sounding(audio, voice.config.sample_rate)
            begin = max(0, begin - self._samples(LEAD_S))
            end = min(len(audio), end + self._samples(TAILS_S[piece.tail])) if end else begin
            marks = self._marks(words, piece, starts - begin, end - begin, at)
            pcm = limit(resampled(audio[begin:end], voice.config.sample_rate, self._rate), self._gain)
            yield Block(pcm, marks, piece is pieces[-1])
            at += len(pcm)

    def _samples(self, seconds: float) -> int:
        rate: int = self._voice.config.sample_rate
        return round(seconds * rate)

    def _say(self, phonemes: list[str], speed: float, seed: int | None) -> tuple[Samples, Any]:
        """The samples of a piece, and where each phoneme begins in them, with the end as one more."""
        from piper.config import SynthesisConfig

        voice = self._voice
        noise = None if seed is None else 0.0
        config = SynthesisConfig(
            speaker_id=self._number,
            length_scale=voice.config.length_scale / speed,
            noise_scale=noise,
            noise_w_scale=noise,
        )
        ids = voice.phonemes_to_ids(phonemes)
        audio, counts = voice.phoneme_ids_to_audio(ids, config, include_alignments=True)
        audio = np.atleast_1d(np.asarray(audio, np.float32))
        counts = None if counts is None else np.atleast_1d(counts)
        return audio, starts_of(phonemes, voice.config.phoneme_id_map, counts, len(ids), len(audio))

    def _marks(
        self, words: Sequence[Spoken], piece: _Piece, starts: Any, length: int, at: int
    ) -> tuple[Mark, ...]:
        scale = self._rate / self._voice.config.sample_rate
        marks = []
        for word in words:
            if not piece.first <= word.first < piece.last:
                continue
            ends = (starts[word.first - piece.first], starts[min(word.last, piece.last) - piece.first])
            start, end = (at + round(min(max(0, int(x)), length) * scale) for x in ends)
            marks.append((word.start, word.end, start, end))
        return tuple(marks)


def cut(sentences: Sequence[Sequence[str]]) -> list[_Piece]:
    """Sentences of phonemes as pieces: after a clause of a long one, else between words, else anywhere."""
    out: list[_Piece] = []
    base = 0
    for sentence in sentences:
        at = 0
        while len(sentence) - at > PIECE + SLACK:
            blanks = [i + 1 for i in range(at + PIECE // 3, at + PIECE) if sentence[i] == " "]
            clauses = [i for i in blanks if sentence[i - 2] in ",;:"]
            end = (clauses or blanks or [at + PIECE])[-1]
            out.append(_Piece(base + at, base + end, 0))
            at = end
        out.append(_Piece(base + at, base + len(sentence), 1))
        base += len(sentence)
    out[-1] = _Piece(out[-1].first, out[-1].last, 2)
    return out


def starts_of(
    phonemes: Sequence[str], ids: Mapping[str, Sequence[int]], counts: Any, given: int, samples: int
) -> Any:
    """Where each phoneme begins, in samples, int64 ``[len(phonemes) + 1]``.

    Args:
        phonemes: of a piece.
        ids: the voice's numbers of each.
        counts: samples of each number that was spoken, as the model tells; None where it does not.
        given: how many numbers were spoken.
        samples: of the piece.
    """
    pad = len(ids.get("_", ()))
    sizes = [len(ids[p]) + pad if p in ids else 0 for p in phonemes]
    begin, end = len(ids.get("^", ())) + pad, len(ids.get("$", ()))
    if counts is not None and len(counts) == given == begin + sum(sizes) + end:
        before = np.concatenate(([0], np.cumsum(counts)))
        return before[begin + np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))].astype(np.int64)
    sounds = np.concatenate(([0], np.cumsum([p not in SILENT for p in phonemes])))
    return sounds * samples // max(1, int(sounds[-1]))


class Model:
    """A voice's file, loaded on one thread, and its level."""

    def __init__(self, path: Path, rate: int) -> None:
        try:
            import onnxruntime
            from piper import PiperVoice
            from piper.config import PiperConfig
        except ImportError:
            raise EngineError(
                "piper-tts is not installed here: install the extra 'piper', or set VOXWIRE_PIPER_PYTHON to "
                "a Python that has it"
            ) from None
        try:
            with path.with_name(path.name + ".json").open(encoding="utf-8") as file:
                config = PiperConfig.from_dict(json.load(file))
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = onnxruntime.InferenceSession(
                _with_durations(path) or str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # whatever a library says of a file that is none of its own
            log.exception("a voice cannot be used", extra={"voice": path.name})
            raise EngineError(f"the voice {path.name} could not be loaded") from error
        self._voice = PiperVoice(session=session, config=config, download_dir=path.parent)
        self._rate = rate
        self.gain = 1.0
        try:
            self.gain = self._level()
        except Exception as error:  # the same of one that does not fit its description
            log.exception("a voice cannot be used", extra={"voice": path.name})
            raise EngineError(f"the voice {path.name} cannot speak") from error

    def speaker(self, number: int | None) -> Speaker:
        """One of its speakers."""
        return Speaker(self._voice, self._rate, number, self.gain)

    def _level(self) -> float:
        blocks = [block.pcm for block in self.speaker(None).speak(WARM_UP, seed=0)]
        pcm = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
        begin, end = sounding(pcm, self._rate)
        if begin == end:
            raise EngineError("there is no sound")
        rms = float(np.sqrt(np.mean(pcm[begin:end] ** 2)))
        return min(GAINS[1], max(GAINS[0], TARGET / max(rms, 1e-6)))


def _with_durations(path: Path) -> bytes | None:
    """The model with its phoneme durations as one more output; None where they cannot be had."""
    try:
        import onnx
        from piper.patch_voice_with_alignment import add_alignment_output
    except ImportError:
        return None
    model = onnx.load(str(path))
    try:
        add_alignment_output(model)
    except ValueError:  # it has them already, or they are not to be found
        return None
    data: bytes = model.SerializeToString()
    del model
    gc.collect()
    return data
