"""Make-up gain for the built-in voice, with a soft limiter.

The voice speaks at about -27 dBFS RMS, 5 dB under what telephone prompts use; a factor of 1.7 brings it
level and leaves single peaks that would clip. Peaks are bent, not cut: below the knee the limiter is the
identity, above it follows a hyperbolic tangent with the same slope at the knee, and it never reaches the
ceiling. It has no memory, so it is the same for any cutting into chunks.
"""

from __future__ import annotations

import numpy as np

from .model import Floats

MAKE_UP = 1.7
KNEE = 0.7
CEILING = 0.98


def make_up(pcm: Floats, gain: float = MAKE_UP) -> Floats:
    """Scale ``pcm`` (any shape) by ``gain``; the result lies within +-0.98. Not finite samples become 0."""
    out: Floats = np.nan_to_num(pcm * np.float32(gain), nan=0.0, posinf=0.0, neginf=0.0)
    size = np.abs(out)
    loud = size > KNEE
    if loud.any():
        room = CEILING - KNEE
        bent = KNEE + room * np.tanh((size[loud] - KNEE) / room)
        out[loud] = np.copysign(np.minimum(bent, CEILING), out[loud])
    return out
