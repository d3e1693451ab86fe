"""One voice in one process: prepared text in, trimmed and levelled audio with word marks out.

Text becomes phonemes (``phones``), phonemes become pieces (``pieces``), each piece goes through the network
(``model``), loses its silence, and is turned into samples block by block (``vocoder``). Word marks come
from the network's own durations (25 ms), or from an even share of the speech where a model does not tell
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from .gain import MAKE_UP, make_up
from .model import Acoustics, Floats, Spectra
from .phones import PAUSES, Pronouncer
from .pieces import Piece, split
from .trim import Trim
from .vocoder import HOP, RATE, Vocoder, frame_levels
from .words import match, text_words

AUDIBLE = 10 ** (-62 / 20)
"""RMS of a frame, before make-up gain, from which it counts as sound: some 35 dB under the voice's speech."""

BLOCKS = (8, 16, 32, 64)
"""Frames per chunk: 100 ms first, then doubling to 800 ms."""

Mark = tuple[int, int, int, int]
"""Text start and end, sample start and end."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of samples and the marks (``Mark``) that became known with it; ``last`` of the request."""

    pcm: Floats
    marks: tuple[Mark, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of one network run, in its samples: what is kept, and where sound begins and ends."""

    start: int
    sound_start: int
    sound_end: int
    end: int


def seed_for(text: str, voice: str, speed: float) -> int:
    """Noise seed of a request without one: the same text sounds the same each time."""
    digest = hashlib.blake2b(f"{voice}\0{speed:.4f}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class Speaker:
    """A voice that is ready to speak. Not for use from several threads."""

    def __init__(
        self,
        voice: str,
        acoustics: Acoustics,
        pronouncer: Pronouncer,
        vocabulary: Mapping[str, int],
        *,
        trim: Trim | None = None,
        gain: float = MAKE_UP,
    ) -> None:
        self.voice = voice
        self._acoustics = acoustics
        self._pronouncer = pronouncer
        self._vocabulary = vocabulary
        self._trim = trim or Trim()
        self._gain = gain

    def speak(
        self,
        text: str,
        speed: float = 1.0,
        seed: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Block]:
        """Yield the audio of ``text`` in blocks (24 kHz mono). Nothing is yielded for text without sound.

        ``stop`` is asked before each long step; where it says True the audio ends there.

        Every word of the text gets exactly one mark; marks are in order and do not overlap. Those of a piece
        come with its first block.
        """
        noise = np.random.default_rng(
            (seed if seed is not None else seed_for(text, self.voice, speed)) & (2**64 - 1)
        )
        spoken = [w for w in self._pronouncer.words(text) if self._ids(w.phonemes)]
        if not any(w.speech for w in spoken):
            return
        marks = _Marks(text, [w.text for w in spoken])
        offset = 0
        pieces = [p for p in split(spoken) if any(w.speech for w in p.words)]
        for i, piece in enumerate(pieces):
            if stop():
                return
            spectra = self._acoustics.run([0, *self._ids(piece.phonemes), 0], speed)
            if stop():
                return
            bounds = self._bounds(spectra, piece, last=i == len(pieces) - 1)
            known = marks.add(
                self._spans(spectra, piece, bounds),
                offset - bounds.start,
                offset + bounds.end - bounds.start,
                last=i == len(pieces) - 1,
            )
            for pcm, ends in self._samples(spectra, bounds, noise):
                yield Block(make_up(pcm, self._gain), known, ends and i == len(pieces) - 1)
                known = ()
            offset += bounds.end - bounds.start

    def _ids(self, phonemes: str) -> list[int]:
        v = self._vocabulary
        return [v[c] for c in phonemes if c in v]

    def _bounds(self, spectra: Spectra, piece: Piece, *, last: bool) -> _Bounds:
        """Find the silence to cut: by levels, and within what the durations say can be silent."""
        frames = spectra.frames
        head, tail = frames, 0
        if spectra.starts is not None and len(spectra.starts) > 3:
            # The first id is the pad, the second the first phoneme: sound begins before the end of the
            # latter.
            head = int(spectra.starts[2])
            quiet = 1  # the closing pad, then punctuation and spaces
            for c in reversed([c for c in piece.phonemes if c in self._vocabulary]):
                if c not in PAUSES and c != " ":
                    break
                quiet += 1
            tail = int(spectra.starts[max(0, len(spectra.starts) - 2 - quiet)])
        levels = frame_levels(spectra, 0, head) >= AUDIBLE
        opens = int(np.argmax(levels)) if levels.any() else max(0, head - 1)
        levels = frame_levels(spectra, tail, frames) >= AUDIBLE
        closes = tail + (len(levels) - 1 - int(np.argmax(levels[::-1])) if levels.any() else 0)
        closes = max(closes, opens)
        # A frame's window is four hops wide: sound may begin well before its middle.
        sound_start = max(0, opens * HOP - 3 * HOP // 2)
        sound_end = min(frames * HOP, (closes + 1) * HOP)
        start = max(0, sound_start - self._samples_in(self._trim.lead_ms))
        end = min(frames * HOP, sound_end + self._samples_in(self._trim.after(piece.ending, last=last)))
        return _Bounds(start, sound_start, sound_end, end)

    @staticmethod
    def _samples_in(ms: float) -> int:
        return round(ms * RATE / 1000)

    def _spans(self, spectra: Spectra, piece: Piece, bounds: _Bounds) -> list[tuple[int, int, int]]:
        """``(spoken word, start, end)`` in samples of the network run, for the words with sound."""
        edges: list[int]
        if spectra.starts is not None:
            edges = [int(x) * HOP for x in spectra.starts]
        else:
            # No durations: every phoneme of speech takes an equal share of the sound, pauses take none.
            ids = [c for c in piece.phonemes if c in self._vocabulary]
            weights = np.array([0.0, *(0.0 if c in PAUSES else 1.0 for c in ids), 0.0])
            share = np.concatenate([[0.0], np.cumsum(weights)]) / max(1.0, weights.sum())
            length = bounds.sound_end - bounds.sound_start
            edges = [bounds.sound_start + round(float(x) * length) for x in share]
        out: list[tuple[int, int, int]] = []
        at = 1
        for k, word in enumerate(piece.words):
            chars = [c for c in word.phonemes if c in self._vocabulary]
            sound = [j for j, c in enumerate(chars) if c not in PAUSES and c != " "]
            if sound:
                out.append((piece.first + k, edges[at + sound[0]], edges[at + sound[-1] + 1]))
            at += len(chars) + 1
        if out:
            # The durations place the edges within a few tens of ms; the sound itself says it better.
            index, a, b = out[0]
            out[0] = (index, min(a, bounds.sound_start), b)
            index, a, b = out[-1]
            out[-1] = (index, a, max(a, min(b, bounds.sound_end)))
        return out

    @staticmethod
    def _samples(
        spectra: Spectra, bounds: _Bounds, noise: np.random.Generator
    ) -> Iterator[tuple[Floats, bool]]:
        """Samples ``[bounds.start, bounds.end)`` of the run, computing no frame that does not touch them.

        With each block comes whether it is the last.
        """
        # Two frames of margin on each side complete the overlap.
        first = max(0, bounds.start // HOP - 2)
        stop = min(spectra.frames, -(-bounds.end // HOP) + 2)
        skip, left = bounds.start - first * HOP, bounds.end - bounds.start
        for made in Vocoder(spectra, first, stop, noise).blocks(BLOCKS[0] + 3, *BLOCKS[1:]):
            pcm = made[skip:][:left]
            skip = max(0, skip - len(made))
            left -= len(pcm)
            if len(pcm):
                yield pcm, not left
            if not left:
                return


class _Marks:
    """Collects the sound of spoken words into one mark per word of the text, in order, without overlap."""

    def __init__(self, text: str, spoken: list[str]) -> None:
        self._words = text_words(text)
        self._owner = match(spoken, [text[a:b] for a, b in self._words])
        self._next = 0
        self._floor = 0
        self._open: tuple[int, int, int] | None = None

    def add(
        self, spans: list[tuple[int, int, int]], shift: int, limit: int, *, last: bool
    ) -> tuple[Mark, ...]:
        """Take the spans of one piece, moved by ``shift``; returns the marks that are final by now.

        ``limit``: the request's samples made up to the end of this piece. The last word of a piece is final
        only when the next piece does not go on with it.
        """
        out: list[Mark] = []
        for spoken, start, end in spans:
            if not self._owner:
                continue
            word = self._owner[spoken]
            if self._open is not None and self._open[0] == word:
                self._open = (word, self._open[1], max(self._open[2], min(limit, end + shift)))
                continue
            self._settle(out)
            a = max(self._floor, min(limit, start + shift))
            self._skip_to(word, a, out)
            self._open = (word, a, max(a, min(limit, end + shift)))
        if last:
            self._settle(out)
            self._skip_to(len(self._words), self._floor, out)
        return tuple(out)

    def _settle(self, out: list[Mark]) -> None:
        if self._open is None:
            return
        word, a, b = self._open
        out.append((*self._words[word], a, b))
        self._next, self._floor, self._open = word + 1, b, None

    def _skip_to(self, word: int, at: int, out: list[Mark]) -> None:
        """Mark words that make no sound as points in time."""
        for i in range(self._next, word):
            out.append((*self._words[i], at, at))
        self._next = max(self._next, word)
