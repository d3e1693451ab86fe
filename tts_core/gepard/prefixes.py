"""Speakers as the gateway keeps them, bytes, and as the model reads them, rows.

A voice's bytes are its prefix in float16, little-endian, row by row, and nothing else: half of what float32
takes in the store, and a rounding far below that of the bfloat16 in which the model computes. Whatever is not
exactly that is refused before it comes near a model.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np

from tts_core.errors import BadRequest, EngineError, UnknownVoice

from .config import GepardConfig
from .frames import Rows, SpeakerPrefix

DEFAULT = "default"
PLAIN = "plain"

KEPT = 512
"""Prefixes kept, 33 kB each for the published model."""


def pack(rows: Rows) -> bytes:
    """The bytes of a prefix float32 ``[K, hidden]``.

    Raises:
        EngineError: a value is beyond float16.
    """
    with np.errstate(over="ignore"):  # it is looked at below
        halves = np.asarray(rows, np.float32).astype("<f2")
    if not np.isfinite(halves).all():
        raise EngineError("the reference gave a voice that cannot be kept")
    return halves.tobytes()


class Prefixes:
    """The prefixes of one engine, made once each; the least recently used are forgotten.

    Args:
        config: of the checkpoint: how many rows, how wide.
    """

    def __init__(self, config: GepardConfig) -> None:
        self._shape = (config.prefix_rows, config.hidden_size)
        self._null: Rows | None = None
        # By salt and what it was made of, so that whoever forgets a salt forgets all of it.
        self._kept: OrderedDict[tuple[str, bytes], SpeakerPrefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes of a voice; 0 where the model has no speakers."""
        return 2 * self._shape[0] * self._shape[1]

    def learned(self, null: Rows) -> None:
        """Take the checkpoint's own prefix for "no speaker in particular".

        Raises:
            EngineError: it is of another shape.
        """
        if null.shape != self._shape:
            raise EngineError("the checkpoint's null prefix is of another shape")
        self._null = null
        self._kept.clear()

    def of(self, voice: str, conditioning: bytes | None, salt: str) -> SpeakerPrefix | None:
        """The prefix of a request's voice; None for no prefix at all.

        Args:
            voice: "default" or "plain", or whatever the gateway calls the voice of ``conditioning``.
            conditioning: a voice's bytes; None for a built-in voice.
            salt: the tenant's and voice's own; goes into the fingerprint.

        Raises:
            UnknownVoice: no built-in voice of this name.
            BadRequest: not the bytes of a voice of this model.
        """
        if conditioning is not None:
            return self._cloned(conditioning, salt)
        if voice == PLAIN or (voice == DEFAULT and not self.size):
            return None
        if voice != DEFAULT or self._null is None:
            raise UnknownVoice("there is no such voice", field="voice")
        return self._keep((salt, b""), self._null)

    def forget(self, salt: str) -> tuple[str, ...]:
        """Drop every prefix that was made under ``salt``, as the voice was deleted; their fingerprints."""
        gone = [key for key in self._kept if key[0] == salt]
        return tuple(self._kept.pop(key).fingerprint for key in gone)

    def _cloned(self, conditioning: bytes, salt: str) -> SpeakerPrefix:
        if not self.size:
            raise BadRequest("this model cannot speak with a voice of yours", field="voice")
        if len(conditioning) != self.size:
            raise BadRequest("the voice was made for another model", field="voice")
        key = (salt, hashlib.sha256(conditioning).digest())
        if (known := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return known
        rows = np.frombuffer(conditioning, "<f2").reshape(self._shape).astype(np.float32)
        return self._keep(key, rows)

    def _keep(self, key: tuple[str, bytes], rows: Rows) -> SpeakerPrefix:
        prefix = self._kept.get(key)
        if prefix is None:
            prefix = self._kept[key] = SpeakerPrefix.of(rows, key[0].encode())
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return prefix
