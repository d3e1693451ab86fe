"""What speaks against a recording as the reference of a voice, by name.

The bounds: the speaker model was trained on crops of 3-15 s, and its authors' demo takes a minute (gepard.md
A11); the refusals are those of trust.md V4. That one person speaks is not judged here: it takes a speaker
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from .clip import Clip
from .refusal import ReferenceRefused


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where refusals and warnings begin.

    Attributes:
        min_speech_s, short_s: seconds of speech below which a clip is refused, and warned of.
        max_s: seconds above which it is refused, the silence at its ends not counted.
        clipped_most, clipped_some: share of the speaking samples at full scale: refused, warned of. Loud but
            clean speech that was brought to full scale has a few in ten thousand.
        noisy_db, noise_db: ratio of speech to noise below which it is refused, and warned of.
        quiet_db: level of its loudest third of a second below which it is warned of.
    """

    min_speech_s: float = 1.0
    short_s: float = 3.0
    max_s: float = 60.25
    clipped_most: float = 0.02
    clipped_some: float = 0.002
    noisy_db: float = 10.0
    noise_db: float = 20.0
    quiet_db: float = -38.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: its name, whether it refuses the recording, and a sentence for the client."""

    code: str
    severity: Literal["refuse", "warn"]
    message: str


def assess(clip: Clip, bounds: Bounds | None = None) -> list[Finding]:
    """Judge a clip by what was measured when it was decoded; no work on samples: the event loop may call it.

    Codes: ``silent``, ``too_short``, ``too_long``, ``clipped``, ``noisy``, ``quiet``, ``damaged``; refusals
    come first.
    """
    bounds = bounds or Bounds()
    measures = clip.measures
    if measures.silent:
        return [Finding("silent", "refuse", "nobody speaks in the recording")]
    found: list[Finding] = []

    def judge(code: str, value: float, refuse: float, warn: float, words: Callable[[str], str]) -> None:
        """Refused below the first bound, warned of below the second."""
        if value < refuse:
            found.append(Finding(code, "refuse", words("at least")))
        elif value < warn:
            found.append(Finding(code, "warn", words("better")))

    speech, ratio, clipped = measures.speech_s, measures.snr_db, 100 * measures.clipped
    judge(
        "too_short",
        speech,
        bounds.min_speech_s,
        bounds.short_s,
        lambda how: f"the recording has {speech:.1f} s of speech: {how} {_more(how, bounds)} s",
    )
    if clip.seconds > bounds.max_s:
        found.append(Finding("too_long", "refuse", f"the recording must not exceed {int(bounds.max_s)} s"))
    judge(
        "clipped",
        -measures.clipped,
        -bounds.clipped_most,
        -bounds.clipped_some,
        lambda _: f"the recording is too loud: {clipped:.1f} % of the samples are cut off at full scale",
    )
    judge(
        "noisy",
        ratio,
        bounds.noisy_db,
        bounds.noise_db,
        lambda _: f"there is noise in the recording: the voice is only {ratio:.0f} dB above it",
    )
    if measures.loud_db < bounds.quiet_db:
        found.append(Finding("quiet", "warn", "the recording is very quiet"))
    if "damaged" in clip.notes:
        found.append(Finding("damaged", "warn", "the file has faults: parts of the sound may be missing"))
    return sorted(found, key=lambda finding: finding.severity != "refuse")


def _more(how: str, bounds: Bounds) -> str:
    return f"{bounds.min_speech_s if how == 'at least' else bounds.short_s:g}"


def refuse(findings: Iterable[Finding]) -> None:
    """Raise the first refusal among the findings, if there is one.

    Raises:
        ReferenceRefused: with the finding's code and message.
    """
    for finding in findings:
        if finding.severity == "refuse":
            raise ReferenceRefused(finding.code, finding.message)


__all__ = ["Bounds", "Finding", "assess", "refuse"]
