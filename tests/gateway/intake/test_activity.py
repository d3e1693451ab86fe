from __future__ import annotations

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.intake.activity import BEST_S, FRAME, RATE, Measures, survey
from tests.gateway.intake.media import Samples, voice_like


def measured(pcm: Samples) -> Measures:
    return survey(pcm)[2]


@pytest.fixture(scope="module")
def real(speech: Samples) -> Samples:
    """The embedded voice at our rate, at a level that leaves room."""
    pcm = soxr.resample(speech, 24_000, RATE)
    return np.asarray(0.5 * pcm / np.abs(pcm).max(), np.float32)


def noise(n: int, level: float, seed: int = 1) -> Samples:
    return np.asarray(np.random.default_rng(seed).normal(0, level, n), np.float32)


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.0), (0.5, 0.5), (3.0, 0.2), (20.0, 10.0)])
@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_cuts_the_silence_at_both_ends(real: Samples, before: float, after: float, floor: float) -> None:
    head, tail = int(before * RATE), int(after * RATE)
    pcm = np.concatenate([np.zeros(head, np.float32), real, np.zeros(tail, np.float32)])
    start, end, measures = survey(pcm + noise(len(pcm), floor))
    bare_start, bare_end, bare = survey(real)
    assert abs(start - head - bare_start) <= 0.12 * RATE
    assert abs(end - head - bare_end) <= 0.12 * RATE
    assert measures.speech_s == pytest.approx(bare.speech_s, abs=0.3)


def test_keeps_pauses_within(real: Samples) -> None:
    pause = np.zeros(3 * RATE, np.float32)
    start, end, measures = survey(np.concatenate([real, pause, real]))
    assert end - start > 2 * 0.9 * len(real) + len(pause)
    assert measures.speech_s == pytest.approx(2 * measured(real).speech_s, abs=0.3)


@pytest.mark.parametrize("snr", [25, 20, 15, 10, 5])
def test_estimates_the_noise_under_speech(real: Samples, snr: float) -> None:
    speaking = real[np.abs(real) > 0.01]
    level = float(np.sqrt((speaking.astype(np.float64) ** 2).mean())) * 10 ** (-snr / 20)
    found = measured(real + noise(len(real), level))
    assert snr - 5 <= found.snr_db <= snr + 3


def test_noise_alone_and_speech_alone(real: Samples) -> None:
    assert measured(noise(3 * RATE, 0.1)).snr_db < 3
    assert measured(real).snr_db > 30


def test_speech_whose_pauses_a_gate_has_emptied_is_clean(real: Samples) -> None:
    frames = real[: len(real) // FRAME * FRAME].reshape(-1, FRAME)
    loud = np.sqrt((frames.astype(np.float64) ** 2).mean(axis=1)) > 0.003
    assert measured(np.asarray(frames * loud[:, None], np.float32).reshape(-1)).snr_db > 25


def test_silence_in_the_pauses_does_not_hide_the_noise_of_the_speech(real: Samples) -> None:
    noisy = real + noise(len(real), 0.02)
    pause = np.zeros(4 * RATE, np.float32)
    assert measured(np.concatenate([noisy, pause, noisy])).snr_db == pytest.approx(
        measured(noisy).snr_db, abs=2.0
    )


def test_silence_and_a_hum_below_hearing_are_silent() -> None:
    assert measured(np.zeros(2 * RATE, np.float32)).silent
    assert measured(noise(2 * RATE, 1e-3)).silent
    constant = np.full(2 * RATE, 0.5, np.float32)
    assert measured(constant).silent  # no microphone's sound, but an offset
    assert survey(constant)[:2] == (0, 2 * RATE)
    assert measured(np.zeros(2 * RATE, np.float32)).speech_s == 0


def test_clicks_are_no_speech() -> None:
    pcm = noise(5 * RATE, 1e-4)
    pcm[::RATE] = 0.9
    assert measured(pcm).speech_s == 0


@pytest.mark.parametrize(
    ("gain", "least", "most"), [(0.5, 0, 0), (0.97, 0, 0.001), (2.0, 0.002, 0.1), (8.0, 0.1, 1)]
)
def test_counts_what_is_cut_off(real: Samples, gain: float, least: float, most: float) -> None:
    loud = np.clip(real * 2 * gain, -1, 1)
    assert least <= measured(loud).clipped <= most
    assert measured(real * 2 * gain).peak == pytest.approx(gain, rel=0.01)


def test_takes_the_most_energetic_stretch(real: Samples) -> None:
    quiet = 0.1 * np.tile(real, 2)
    first, last = measured(np.concatenate([quiet, np.tile(real, 2)[: 15 * RATE], quiet])).best
    assert (last - first) / RATE == pytest.approx(BEST_S, abs=0.7)
    assert last - first <= BEST_S * RATE
    assert abs(first - len(quiet)) <= 1.0 * RATE
    click = np.concatenate([0.02 * np.tile(real, 3), np.tile(real, 2)])
    click[RATE : RATE + 100] = 1.0
    assert measured(click).best[0] > RATE


def sound(kind: str, n: int, level: float, seed: int) -> Samples:
    pcm = np.zeros(n, np.float32)
    if kind == "voice":
        pcm[:] = voice_like(n / RATE + 0.5, seed=seed)[:n] * level
    elif kind == "square":
        pcm[:] = level * np.sign(np.sin(np.arange(n) / 30))
    elif kind != "zero":
        loud = n if kind == "noise" else n // 2
        pcm[:loud] = noise(loud, level, seed)
    return pcm


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.floats(0, 20),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["voice", "noise", "zero", "mixed", "square"]),
    level=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0, 100.0]),
)
def test_holds_for_anything(seconds: float, seed: int, kind: str, level: float) -> None:
    n = int(seconds * RATE)
    pcm = sound(kind, n, level, seed)
    before = pcm.copy()
    start, end, measures = survey(pcm)
    assert np.array_equal(pcm, before)
    assert 0 <= start <= end <= len(pcm)
    first, last = measures.best
    assert 0 <= first <= last <= end - start
    assert last - first <= BEST_S * RATE
    if end - start <= BEST_S * RATE:
        assert (first, last) == (0, end - start)
    assert 0 <= measures.speech_s <= (end - start) / RATE + FRAME / RATE
    assert 0 <= measures.clipped <= 1
    assert 0 <= measures.snr_db <= 60
    assert np.isfinite(measures.peak) and np.isfinite(measures.loud_db)
