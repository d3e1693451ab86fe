"""Level of a voice, with a soft limiter.

Peaks are bent, not cut: below the knee the limiter is the identity, above it follows a hyperbolic tangent
with the same slope at the knee, and it never reaches the ceiling. It has no memory, so it is the same for any
cutting into chunks.
"""

from __future__ import annotations

import numpy as np

from ..engine import Samples

KNEE = 0.7
CEILING = 0.98


def limit(pcm: Samples, gain: float) -> Samples:
    """Scale ``pcm`` (any shape) by ``gain``; the result lies within +-0.98. Not finite samples become 0."""
    out: Samples = np.nan_to_num(pcm * np.float32(gain), nan=0.0, posinf=0.0, neginf=0.0)
    size = np.abs(out)
    loud = size > KNEE
    if loud.any():
        room = CEILING - KNEE
        bent = KNEE + room * np.tanh((size[loud] - KNEE) / room)
        out[loud] = np.copysign(np.minimum(bent, CEILING), out[loud])
    return out
