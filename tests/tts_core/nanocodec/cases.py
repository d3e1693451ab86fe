"""Codes to test with, ways to cut them, and the small codec's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tts_core.nanocodec import wire
from tts_core.nanocodec.backends import Decoder
from tts_core.nanocodec.fsq import LEVELS, Codes
from tts_core.nanocodec.weights import Tensors

CLOSE = 1e-6
"""What rounding may make of the order of additions."""


@dataclass(frozen=True)
class Codec:
    """The same small codec in both forms."""

    nemo: Path
    path: Path


def configuration(codec: Codec, **changes: Any) -> wire.Configure:
    """For a process that decodes ``codec``, unless ``changes`` say otherwise."""
    values = {
        "role": "decode",
        "model": str(codec.path),
        "backend": "onnx",
        "device": "cpu",
        "batch_frames": 16,
    }
    return wire.Configure(**{**values, **changes})


def some_codes(count: int, seed: int = 0) -> Codes:
    """Random codes ``[count, 32]``."""
    return (np.random.default_rng(seed).random((count, 32)) * np.array(LEVELS)).astype(np.uint8)


def cuts(total: int) -> st.SearchStrategy[list[int]]:
    """Ways to cut ``total`` frames into pieces of 1 to 16."""
    return st.lists(st.integers(1, 16), min_size=total, max_size=total).map(lambda sizes: _fit(sizes, total))


def _fit(sizes: list[int], total: int) -> list[int]:
    fitted: list[int] = []
    for size in sizes:
        fitted.append(min(size, total - sum(fitted)))
        if sum(fitted) == total:
            break
    return fitted


def streamed(decoder: Decoder, codes: Codes, sizes: list[int]) -> Any:
    """The samples of ``codes`` decoded piece by piece."""
    state, at, pieces = decoder.new_state(), 0, []
    for size in sizes:
        samples, (state,) = decoder.step(codes[None, at : at + size], [state])
        pieces.append(samples[0])
        at += size
    return np.concatenate(pieces)


def in_crowd(decoder: Decoder, clips: list[Codes], sizes: list[int], picks: list[list[bool]]) -> list[Any]:
    """Clips of equal length decoded in batches whose make-up changes: who is not picked comes after."""
    states = [decoder.new_state() for _ in clips]
    pieces: list[list[Any]] = [[] for _ in clips]
    at = 0
    for size, pick in zip(sizes, picks, strict=True):
        first = [i for i, chosen in enumerate(pick) if chosen]
        second = [i for i, chosen in enumerate(pick) if not chosen]
        for group in filter(None, (first, second)):
            batch = np.stack([clips[i][at : at + size] for i in group])
            samples, after = decoder.step(batch, [states[i] for i in group])
            for row, i in enumerate(group):
                states[i] = after[row]
                pieces[i].append(samples[row])
        at += size
    return [np.concatenate(piece) for piece in pieces]


def same(left: Tensors, right: Tensors) -> bool:
    """Whether two sets of tensors are equal to the bit."""
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
