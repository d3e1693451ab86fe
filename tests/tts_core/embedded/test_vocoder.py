from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hibari import dsp
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.embedded.model import Acoustics, Spectra
from tts_core.embedded.phones import Pronouncer
from tts_core.embedded.vocoder import HOP, Vocoder, frame_levels


class NoNoise:
    """A generator of silence, to compare with the reference, which draws its noise in another order."""

    def standard_normal(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.zeros(shape, dtype)


@pytest.fixture(scope="module")
def spectra(acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int]) -> Spectra:
    phonemes = " ".join(w.phonemes for w in pronouncer.words("Yes, she sells six thick zippers."))
    return acoustics.run([0, *(ids[c] for c in phonemes), 0], 1.0)


def made(s: Spectra, start: int, end: int, sizes: tuple[int, ...], noise: object) -> np.ndarray:
    return np.concatenate(list(Vocoder(s, start, end, noise).blocks(*sizes)))  # type: ignore[arg-type]


def test_it_makes_what_the_package_makes(spectra: Spectra) -> None:
    s = spectra
    reference = dsp.synth(s.harmonic, s.harmonic_phase, s.noise, s.free, s.free_phase, s.pitch, NoNoise())
    ours = made(s, 0, s.frames, (8, 16, 32), NoNoise())
    assert len(ours) == len(reference)
    assert np.max(np.abs(reference)) > 0.1
    np.testing.assert_allclose(ours, reference, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=5), start=st.integers(0, 60))
def test_blocks_of_any_size_give_the_same_samples(spectra: Spectra, sizes: list[int], start: int) -> None:
    end = spectra.frames - 40
    whole = made(spectra, start, end, (10_000,), np.random.default_rng(5))
    parts = made(spectra, start, end, tuple(sizes), np.random.default_rng(5))
    assert len(whole) == (end - start) * HOP
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_the_first_block_is_as_long_as_asked(spectra: Spectra) -> None:
    blocks = Vocoder(spectra, 0, spectra.frames, np.random.default_rng(1)).blocks(8, 16)
    assert [len(next(blocks)) for _ in range(3)] == [8 * HOP, 16 * HOP, 16 * HOP]


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
def test_very_short_runs_are_whole(spectra: Spectra, frames: int) -> None:
    assert len(made(spectra, 50, 50 + frames, (1,), np.random.default_rng(1))) == frames * HOP


def test_levels_are_those_of_the_samples(spectra: Spectra) -> None:
    pcm = made(spectra, 0, spectra.frames, (64,), np.random.default_rng(1))
    levels = 20 * np.log10(frame_levels(spectra, 0, spectra.frames) + 1e-9)
    # What a frame describes: the samples under its window, two hops to either side of its middle.
    window = np.hanning(4 * HOP + 1)[:-1]
    padded = np.concatenate([np.zeros(2 * HOP), pcm, np.zeros(2 * HOP)])
    around = np.array(
        [
            np.sqrt(((padded[k * HOP : (k + 4) * HOP] * window) ** 2).sum() / (window**2).sum())
            for k in range(spectra.frames)
        ]
    )
    true = 20 * np.log10(around + 1e-9)
    sound = true > -60
    difference = (levels - true)[sound]
    assert np.median(np.abs(difference)) < 8
    # Frames overlap, so sound may begin one frame before its level says so.
    near = np.maximum(np.maximum(levels, np.roll(levels, 1)), np.roll(levels, -1))
    assert (near - true)[sound].min() > -8
    assert levels[true < -80].max() < -55
