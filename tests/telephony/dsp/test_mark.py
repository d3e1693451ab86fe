from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telephony.dsp.fir import RATES
from telephony.dsp.mark import BASE, PAYLOAD_BITS, Marker, Stream, mask, period, sequence
from telephony.dsp.resample import Resampler
from tts_core.errors import UnsupportedFormat

KEY = b"key of these tests".ljust(32, b".")


def noise(n: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return (np.random.default_rng(seed).standard_normal(n) * 0.1).astype(np.float32)


@pytest.mark.parametrize("rate", RATES)
def test_a_block_divides_the_frame_and_the_period(rate: int) -> None:
    hop, blocks = mask(rate).hop, mask(rate).blocks
    assert rate / 50 % hop == rate % hop == 0
    assert hop * blocks == rate
    assert 0.005 <= hop / rate <= 0.010
    assert len(Marker(rate, KEY, 3).spectra) == blocks


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 2500), min_size=1, max_size=15),
    st.sampled_from(RATES),
    st.integers(0, 500),
)
def test_the_same_samples_however_it_is_cut(pieces: list[int], rate: int, start: int) -> None:
    marker, x = Marker(rate, KEY, 77), noise(sum(pieces))
    one = Stream(marker, start)
    whole = np.concatenate([one.process(x), one.flush()])
    assert len(whole) == len(x)
    stream, got, at = Stream(marker, start), [], 0
    for n in pieces:
        got.append(stream.process(x[at : at + n]))
        at += n
    got.append(stream.flush())
    assert np.array_equal(np.concatenate(got), whole)
    assert len(stream.flush()) == 0


@pytest.mark.parametrize("rate", RATES)
def test_nothing_is_held_back_on_frames_nor_more_than_a_block_else(rate: int) -> None:
    marker, frame = Marker(rate, KEY, 0), rate // 50
    stream = Stream(marker)
    assert all(len(stream.process(noise(frame, k))) == frame for k in range(60))
    fed = out = 0
    for n in (1, 7, marker.hop - 1, marker.hop, 3, 1000):
        fed += n
        out += len(stream.process(noise(n)))
        assert 0 <= fed - out < marker.hop


def test_what_is_out_does_not_depend_on_what_comes_later() -> None:
    marker = Marker(8000, KEY, 1)
    x, y = noise(1600, 1), noise(1600, 1)
    y[800:] = noise(800, 2)
    a, b = Stream(marker).process(x), Stream(marker).process(y)
    assert np.array_equal(a[:800], b[:800])
    assert not np.array_equal(a[800:], b[800:])


def test_many_streams_at_once_are_as_each_alone() -> None:
    laying, hop = mask(8000), mask(8000).hop
    markers = [Marker(8000, KEY, n) for n in range(5)]
    x = np.stack([noise(40 * hop, n) for n in range(5)])
    before = tail = np.zeros((5, hop), np.float32)
    rows = []
    for at in range(0, 40, 2):
        blocks = x[:, at * hop : (at + 2) * hop].reshape(5, 2, hop)
        spectra = np.stack([m.spectra[at : at + 2] for m in markers])
        y, tail = laying.lay(blocks, before, tail, spectra)
        before = blocks[:, 1]
        rows.append(y.reshape(5, -1))
    together = np.concatenate(rows, axis=1)
    for n, marker in enumerate(markers):
        assert np.array_equal(together[n], Stream(marker).process(x[n]))


@pytest.mark.parametrize("rate", RATES)
def test_it_lies_far_below_the_sound_inside_the_band_and_vanishes_in_silence(rate: int) -> None:
    stream, x = Stream(Marker(rate, KEY, 9)), noise(2 * rate)
    added = stream.process(x) - x
    power, hertz = np.abs(np.fft.rfft(added)) ** 2, np.fft.rfftfreq(len(added), 1 / rate)
    inside = (hertz > 200) & (hertz < 3500)
    assert power[~inside].sum() < 1e-4 * power.sum()
    voice = np.abs(np.fft.rfft(x)) ** 2
    held = (hertz > 350) & (hertz < 3350)
    assert 10 * np.log10(power[held].sum() / voice[held].sum()) == pytest.approx(-21, abs=1.0)
    silent = stream.process(np.zeros(rate, np.float32))
    assert not silent[2 * rate // 100 :].any()


def test_the_period_is_the_same_at_every_rate() -> None:
    base = period(KEY, 321, BASE)
    assert np.sqrt(np.mean(base**2)) == pytest.approx(1, rel=0.02)
    for rate in RATES[1:]:
        wave = np.tile(period(KEY, 321, rate), 2).astype(np.float32)
        resampler = Resampler(rate, BASE)
        back = np.concatenate([resampler.process(wave), resampler.flush()])[BASE // 2 : BASE // 2 + BASE]
        assert np.corrcoef(back, np.roll(base, -BASE // 2))[0, 1] > 0.999


def test_keys_labels_and_payloads_make_other_sequences() -> None:
    def alike(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.abs(np.vdot(a, b)) / np.linalg.norm(a) / np.linalg.norm(b))

    assert alike(sequence(KEY, "A"), sequence(KEY, "B")) < 0.1
    assert alike(sequence(KEY, "A"), sequence(b"another key".ljust(32), "A")) < 0.1
    assert alike(period(KEY, 0, BASE), period(KEY, 1, BASE)) == pytest.approx(
        0.5, abs=0.1
    )  # A alone is alike


def test_a_key_makes_the_same_sequence_for_ever() -> None:
    """Marks must be found years later: these phases (turns) may never change."""
    turns = np.angle(sequence(KEY, "A")[350:354]) / (2 * np.pi) % 1
    assert np.round(turns, 4).tolist() == PINNED


PINNED = [0.4091, 0.3518, 0.6782, 0.0185]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="10 bits"):
        Marker(8000, KEY, 1 << PAYLOAD_BITS)
    with pytest.raises(UnsupportedFormat):
        Marker(11_025, KEY, 0)
    stream = Stream(Marker(8000, KEY, 0))
    with pytest.raises(TypeError, match="float32"):
        stream.process(np.zeros(10))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        stream.process(np.zeros((2, 10), np.float32))
