from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gateway.intake.activity import RATE, Measures
from gateway.intake.clip import Clip, decode_clip
from gateway.intake.quality import Bounds, assess, refuse
from gateway.intake.refusal import ReferenceRefused
from tests.gateway.intake.media import Samples, wav

GOOD = Measures(peak=0.5, loud_db=-20, speech_s=8, clipped=0, snr_db=35, best=(0, 8 * RATE))


def clip(seconds: float = 10, notes: tuple[str, ...] = (), **changed: float) -> Clip:
    measures = dataclasses.replace(GOOD, **changed)  # type: ignore[arg-type]
    return Clip(np.zeros(int(seconds * RATE), np.float32), "wav", notes, measures)


def found(judged: Clip) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in assess(judged)]


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (clip(), []),
        (clip(speech_s=0.99), [("too_short", "refuse")]),
        (clip(speech_s=1.0), [("too_short", "warn")]),
        (clip(speech_s=3.0), []),
        (clip(seconds=60.3), [("too_long", "refuse")]),
        (clip(seconds=60.2), []),
        (clip(loud_db=-50.1, speech_s=0), [("silent", "refuse")]),
        (clip(loud_db=-45), [("quiet", "warn")]),
        (clip(clipped=0.021), [("clipped", "refuse")]),
        (clip(clipped=0.02), [("clipped", "warn")]),
        (clip(clipped=0.002), []),
        (clip(snr_db=9.9), [("noisy", "refuse")]),
        (clip(snr_db=10), [("noisy", "warn")]),
        (clip(snr_db=20), []),
        (clip(notes=("damaged",)), [("damaged", "warn")]),
        (clip(speech_s=2, snr_db=3), [("noisy", "refuse"), ("too_short", "warn")]),
    ],
)
def test_each_bound(judged: Clip, expected: list[tuple[str, str]]) -> None:
    assert found(judged) == expected


def test_bounds_can_be_changed() -> None:
    strict = Bounds(min_speech_s=10, noisy_db=50, noise_db=60)
    assert [finding.code for finding in assess(clip(), strict)] == ["too_short", "noisy"]


def test_the_first_refusal_is_raised_and_warnings_are_not() -> None:
    refuse(assess(clip(speech_s=2)))
    with pytest.raises(ReferenceRefused) as caught:
        refuse(assess(clip(speech_s=0.5, snr_db=1)))
    assert caught.value.reason == "too_short"
    assert "0.5 s of speech: at least 1 s" in caught.value.message


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda x: x, ""),
        (lambda x: x[: int(0.9 * 24_000)], "too_short"),
        (lambda x: 0 * x, "silent"),
        (lambda x: 0.002 * x, "silent"),
        (lambda x: 4 * x / np.abs(x).max(), "clipped"),
        (lambda x: x / np.abs(x).max() / 2 + np.random.default_rng(1).normal(0, 0.05, len(x)), "noisy"),
        (lambda x: np.random.default_rng(1).normal(0, 0.05, len(x)), "noisy"),
    ],
    ids=["good", "too_short", "silent", "quieter than silent", "clipped", "noisy", "noise alone"],
)
async def test_one_recording_for_each_refusal(speech: Samples, make: object, code: str) -> None:
    assert callable(make)
    judged = await decode_clip(wav(make(speech), 24_000))
    refusals = [finding.code for finding in assess(judged) if finding.severity == "refuse"]
    assert refusals[:1] == ([code] if code else [])


async def test_speech_brought_to_full_scale_is_not_clipped(speech: Samples) -> None:
    judged = await decode_clip(wav(speech / np.abs(speech).max(), 24_000))
    assert assess(judged) == []
