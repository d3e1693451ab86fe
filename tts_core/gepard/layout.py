"""The token ids that GEPARD and vLLM speak with each other, and how a frame travels beside one.

::

    [0, text)                      text ids; two of them, STOP and FAULT, only ever come out
    [voice, voice + voice_rows)    rows of the table of speaker prefixes in the model
    [frame, frame + 2**30)         frames: a serial number; row = serial mod frame_rows of the frame table

A sampled "token" is thus a handle to a frame that the sampler has just written. The serial says whether the
row still holds that frame: rows are a ring, and what is older than ``frame_rows`` allocations is gone.

The 32 codes of a frame leave the engine as the ids of its 8 "most likely tokens": group ``g`` of the codec
with token ``t`` is ``OUTGOING + g * 2016 + t``. vLLM may put a position's ids into a dictionary, so they are
never equal to each other nor to a handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tts_core.errors import EngineError, SettingsError
from tts_core.nanocodec import fsq

LOGITS = sum(fsq.LEVELS) + 1
"""Outputs of the fused heads: 216 codes, then the stop logit."""

SERIALS = 1 << 30
"""Handles wrap after so many frames: four days of 64 streams on a fast GPU, far beyond any request's life."""

OUTGOING = (1 << 31) - fsq.GROUPS * fsq.GROUP_SIZE
"""First of the ids that carry a frame out: the last ones of 31 bits."""

OFFSETS = tuple(OUTGOING + group * fsq.GROUP_SIZE for group in range(fsq.GROUPS))
"""What is added to the token of each group."""

_OFFSETS = np.array(OFFSETS)


@dataclass(frozen=True, slots=True)
class Layout:
    """The id ranges of one engine.

    Args:
        text: size of the text vocabulary.
        stop: the text id that says a request ended by its stop head. It must lie in the vocabulary, as vLLM
            checks stop ids against it.
        fault: the text id that says a request cannot go on, as frames it refers to are gone.
        prefix_rows: rows of one speaker prefix.
        voice_rows: rows of the voice table, a multiple of ``prefix_rows``.
        frame_rows: rows of the frame table, a power of two.

    Raises:
        SettingsError: the numbers do not fit together.
    """

    text: int
    stop: int
    fault: int
    prefix_rows: int = 8
    voice_rows: int = 2048
    frame_rows: int = 1 << 18

    def __post_init__(self) -> None:
        if not (0 <= self.stop < self.text and 0 <= self.fault < self.text and self.stop != self.fault):
            raise SettingsError("the stop and fault ids must be two ids of the text vocabulary")
        if self.frame_rows < 1 or self.frame_rows & (self.frame_rows - 1) or self.frame_rows > SERIALS >> 1:
            raise SettingsError("the rows of the frame table must be a power of two")
        if self.prefix_rows < 1 or self.voice_rows < self.prefix_rows or self.voice_rows % self.prefix_rows:
            raise SettingsError("the rows of the voice table must be a multiple of a prefix's rows")
        if self.frame + SERIALS > OUTGOING:
            raise SettingsError("the text vocabulary and the voice table leave no room for frame handles")

    @property
    def voice(self) -> int:
        """First id of the voice table."""
        return self.text

    @property
    def frame(self) -> int:
        """First frame handle."""
        return self.text + self.voice_rows

    @property
    def voices(self) -> int:
        """Speaker prefixes that the voice table holds."""
        return self.voice_rows // self.prefix_rows

    def voice_ids(self, slot: int) -> tuple[int, ...]:
        """Ids of the rows of the prefix in place ``slot`` of the voice table."""
        first = self.voice + slot * self.prefix_rows
        return tuple(range(first, first + self.prefix_rows))

    def serials(self, ids: Sequence[int]) -> list[int]:
        """Serials of the frame handles among ``ids``, in order."""
        first = self.frame
        return [token - first for token in ids if token >= first]

    def as_dict(self) -> dict[str, int]:
        """Plain numbers, for the configuration that the engine's processes read."""
        return asdict(self)

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> Layout:
        """The layout that ``as_dict`` gave."""
        return cls(**numbers)


def age(cursor: int, serial: int) -> int:
    """Allocations between ``serial`` and the next one, ``cursor``; serials wrap."""
    return (cursor - serial) % SERIALS


def rows_for(streams: int, frames: int) -> int:
    """Rows of a frame table in which no handle of ``streams`` requests of ``frames`` frames goes stale.

    Four times what they can allocate, as a preempted request waits while others write; a power of two.
    """
    return 1 << max(10, (4 * streams * frames - 1).bit_length())


def pack(codes: fsq.Codes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Codes uint8 ``[..., 32]`` as eight distinct ids int64 ``[..., 8]``."""
    return fsq.fold(codes).astype(np.int64) + _OFFSETS


def unpack(ids: Sequence[Sequence[int]] | np.ndarray[Any, Any]) -> fsq.Codes:
    """The inverse of ``pack``: ids ``[n, 8]`` as codes uint8 ``[n, 32]``.

    Raises:
        EngineError: the ids are not a frame's.
    """
    if not len(ids):
        return np.zeros((0, fsq.CHANNELS), np.uint8)
    try:
        return fsq.unfold(np.asarray(ids, np.int64) - _OFFSETS)
    except EngineError as error:
        raise EngineError("the engine gave a frame that cannot be read") from error
