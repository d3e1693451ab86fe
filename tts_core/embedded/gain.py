"""Make-up gain for the built-in voice, with a soft limiter (``tts_core.pool.limiter``).

The voice speaks at about -27 dBFS RMS, 5 dB under what telephone prompts use; a factor of 1.7 brings it
level and leaves single peaks that would clip.
"""

from __future__ import annotations

from ..pool.limiter import CEILING, KNEE, limit
from .model import Floats

MAKE_UP = 1.7

__all__ = ["CEILING", "KNEE", "MAKE_UP", "make_up"]


def make_up(pcm: Floats, gain: float = MAKE_UP) -> Floats:
    """Scale ``pcm`` (any shape) by ``gain``; the result lies within +-0.98. Not finite samples become 0."""
    return limit(pcm, gain)
