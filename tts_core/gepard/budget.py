"""How long a text may take to say, so that speech which runs away comes to an end.

The model ends by its own stop head; on short texts it sometimes does not, and speaks on until it is stopped
(GEPARD technical report, arXiv 2609.04222, section 1.4 and 3.3). The bound for such runaways is the one that
its preference data was made with: ``0.7 s + 0.4 s`` a word is expected, four times that is allowed, from 80
to 300 frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from tts_core.nanocodec import fsq

FRAME_S = fsq.SAMPLES_PER_FRAME / fsq.SAMPLE_RATE
"""Seconds of a frame: 46.44 ms."""

BASE_S = 0.7
WORD_S = 0.4

SLACK = 4.0
FLOOR = 80
CEILING = 300
"""The published rule. Its ceiling is for the short texts of the preference data, see ``LONG_SLACK``."""

LONG_SLACK = 1.5
"""Of a long text not less than this times the expected length is allowed: 300 frames are 14 s, which a long
clause takes when it is read well.
"""

TIGHT_SLACK = 1.25
"""What is left, times the expected length, to a request that the guard takes for derailed."""

WORD_CHARACTERS = 7
"""A word counts as another one for every so many characters: languages that join words are not cut short."""

MAX_FRAMES = 640
"""Most frames of a request: 29.7 s. The scheduler's longest part, 300 characters, takes about 20 s."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The frames that a text may have.

    ``expected_s``: seconds that it should take. ``cap``: frames after which it is cut off. ``tight``: the
    same once there is reason to think that it does not say the text any more; never more than ``cap``.
    """

    expected_s: float
    cap: int
    tight: int


def words(text: str) -> int:
    """Words of ``text``, at least one."""
    parts = text.split()
    return max(1, len(parts), -(-sum(map(len, parts)) // WORD_CHARACTERS))


def budget_of(text: str, most: int = MAX_FRAMES) -> Budget:
    """The budget of a spoken text, never above ``most`` frames."""
    expected = BASE_S + WORD_S * words(text)
    frames = expected / FRAME_S
    cap = max(FLOOR, min(CEILING, int(SLACK * frames)), int(LONG_SLACK * frames))
    cap = max(1, min(cap, most))
    return Budget(expected, cap, min(cap, int(TIGHT_SLACK * frames)))
