"""A reference recording, from the bytes that a client sent to samples that can be encoded.

    clip = await decode_clip(data)          # refuses what is no recording; data, if writable, is overwritten
    findings = assess(clip)                 # gateway.intake.quality: what speaks against it
    codes = await codec.encode(clip.best)
    clip.wipe()

All work is done in two threads and in the decoder's process; the event loop waits. The sound lies in the
decoder, in one buffer here, and nowhere else (trust.md V13): temporary buffers are overwritten, files never
written.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from tts_core.errors import Busy, SettingsError

from .activity import RATE, Measures, Samples, survey
from .decoder import Decoding, Limits, find_ffmpeg
from .pcm_wav import read_wave
from .refusal import ReferenceRefused
from .sniff import Kind, Media, sniff, wave

WORKERS = 2
"""Recordings decoded at once."""

WAITING = 8
"""Recordings decoded or waiting at once; one more is refused as busy."""

_PIECE = 1 << 18
_LOUDEST = 100.0  # of a file of floats; what lies beyond has no square

_slots: Final = threading.BoundedSemaphore(WAITING)


@dataclass(eq=False, slots=True)
class Clip:
    """A decoded recording without the silence at its ends.

    Attributes:
        pcm: float32 ``[n]``, mono, 22,050 Hz, within -1..1.
        kind: the container that it came in.
        notes: what was seen on the way: ``damaged`` (the decoder found faults and went on).
        measures: of the sound, for :func:`gateway.intake.quality.assess`.
    """

    pcm: Samples
    kind: Kind
    notes: tuple[str, ...]
    measures: Measures

    @property
    def seconds(self) -> float:
        """Length of ``pcm``."""
        return len(self.pcm) / RATE

    @property
    def best(self) -> Samples:
        """The most energetic stretch of at most 15 s: a view of ``pcm``."""
        first, last = self.measures.best
        return self.pcm[first:last]

    def wipe(self) -> None:
        """Overwrite the samples, after the last use; again is harmless."""
        self.pcm.fill(0)


async def decode_clip(data: bytes | bytearray | memoryview, *, limits: Limits | None = None) -> Clip:
    """Decode a WAV, FLAC, MP3, Ogg (Vorbis, Opus) or M4A recording.

    ``data`` is overwritten with zeros in the end, whatever comes of it, if it is writable: hand over a
    bytearray (bytes cannot be overwritten). Resizing it meanwhile fails. Cancelled, it ends the decoder and
    waits for that.

    Raises:
        ReferenceRefused: the recording is not taken; ``reason`` is ``too_large``, ``empty``, ``unsupported``,
            ``damaged``, ``rate``, ``channels``, ``too_long``, ``undecodable`` or ``decoder_limit``.
        Busy: eight others are being decoded.
        SettingsError: ffmpeg is missing and this is not uncompressed WAV, or it cannot be confined here.
    """
    limits = limits or Limits()
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1 or not view.contiguous:
        raise TypeError("a recording must be contiguous bytes")
    if not _slots.acquire(blocking=False):
        raise Busy("the gateway is reading other recordings", retry_after=2.0)
    intake = _Intake(view, limits)
    try:
        running = _threads().submit(intake.run)
    except BaseException:
        _slots.release()
        raise
    running.add_done_callback(lambda _: _slots.release())
    waiting = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        intake.stop()
        await asyncio.wait({waiting})
        if not waiting.cancelled() and waiting.exception() is None:
            waiting.result().wipe()
        raise


def overwrite(data: memoryview) -> None:
    """Fill a buffer with zeros; in pieces, for each holds all other threads up."""
    zeros = bytes(min(len(data), _PIECE))
    for at in range(0, len(data), _PIECE):
        piece = data[at : at + _PIECE]
        piece[:] = zeros[: len(piece)]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="intake")


class _Intake:
    """One recording on its way through a thread."""

    def __init__(self, data: memoryview, limits: Limits) -> None:
        self._data, self._limits = data, limits
        self._lock = threading.Lock()
        self._decoding: Decoding | None = None
        self._stopped = False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._decoding is not None:
                self._decoding.stop()

    def run(self) -> Clip:
        try:
            if len(self._data) > self._limits.max_bytes:
                raise ReferenceRefused(
                    "too_large", f"the recording must not exceed {self._limits.max_bytes >> 20} MiB"
                )
            media = sniff(self._data)
            pcm, damaged = self._decode(media)
            return _clip(pcm, media.kind, ("damaged",) if damaged else ())
        finally:
            if not self._data.readonly:
                overwrite(self._data)
            self._data.release()

    def _decode(self, media: Media) -> tuple[Samples, bool]:
        ffmpeg = find_ffmpeg()
        if ffmpeg is None:
            if media.kind != "wav":
                raise SettingsError(
                    "this gateway has no ffmpeg: only uncompressed WAV references can be read",
                    field="reference",
                )
            return read_wave(self._data, wave(self._data), self._limits.most), False
        decoding = Decoding(ffmpeg, media, self._limits)
        with self._lock:
            self._decoding = decoding
            if self._stopped:
                decoding.stop()
        return decoding.run(self._data)


def _clip(pcm: Samples, kind: Kind, notes: tuple[str, ...]) -> Clip:
    """Trim and measure; what is cut off is overwritten."""
    if not np.isfinite(pcm).all():
        pcm.fill(0)
        raise ReferenceRefused("undecodable", "the recording holds samples that are no numbers")
    np.clip(pcm, -_LOUDEST, _LOUDEST, out=pcm)
    start, end, measures = survey(pcm)
    np.clip(pcm, -1.0, 1.0, out=pcm)
    pcm[:start] = 0
    pcm[end:] = 0
    return Clip(pcm[start:end], kind, notes, measures)


__all__ = ["RATE", "Clip", "decode_clip", "overwrite"]
