"""What may be encoded: the bounds of a reference clip, known without loading a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequest
from .fsq import SAMPLE_RATE

MAX_SECONDS = 60
MAX_SAMPLES = MAX_SECONDS * SAMPLE_RATE


def check_clip(pcm: NDArray[np.float32]) -> NDArray[np.float32]:
    """A clip that can be encoded: float32 ``[n]`` at 22.05 kHz, finite, not empty, at most 60 s.

    Raises:
        BadRequest: it is not that.

    """
    clip = np.asarray(pcm)
    if clip.ndim != 1 or clip.dtype != np.float32:
        raise BadRequest("a reference must be one channel of float32 samples", field="reference")
    if not 0 < len(clip) <= MAX_SAMPLES:
        raise BadRequest(f"a reference must have up to {MAX_SECONDS} s of sound", field="reference")
    if not np.isfinite(clip).all():
        raise BadRequest("a reference must be finite numbers", field="reference")
    return np.ascontiguousarray(clip)
