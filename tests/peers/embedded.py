"""Speech of the built-in voice, made at once and without a gateway."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from tts_core.engine import Samples

RATE = 24_000
_WHO = ("The clinic", "Your order", "Our technician", "The hotel", "A driver", "The pharmacy", "My colleague")
_WHAT = (
    "will call you back",
    "has confirmed the booking",
    "can move the appointment",
    "found a better price",
)
_WHEN = ("before noon tomorrow", "at the front desk", "on Thursday afternoon", "after the weekend")
_SILENCE_BEFORE, _SILENCE_AFTER = 7200, 9600  # of the voice itself, at most


@cache
def speech(count: int, *, least_s: float = 5.5, most_s: float = 10.0, seed: int = 7) -> tuple[Samples, ...]:
    """``count`` clips of float32 at RATE, each of other words, ``least_s`` to ``most_s`` seconds long."""
    from hibari import Hibari

    chance, voice = random.Random(seed), Hibari(threads=1)
    clips: list[Samples] = []
    while len(clips) < count:
        text = " ".join(
            f"{chance.choice(_WHO)} {chance.choice(_WHAT)} {chance.choice(_WHEN)}."
            for _ in range(chance.randint(2, 4))
        )
        made = voice(text, speed=chance.choice([0.85, 1.0, 1.15]), seed=len(clips))
        clip = np.asarray(made[_SILENCE_BEFORE:-_SILENCE_AFTER][: round(most_s * RATE)], np.float32)
        if len(clip) >= least_s * RATE:
            clip.flags.writeable = False
            clips.append(clip)
    return tuple(clips)
