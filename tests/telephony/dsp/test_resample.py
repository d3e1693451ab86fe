from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from telephony.dsp.fir import RATES
from telephony.dsp.pcm import float_to_int16
from telephony.dsp.resample import BatchResampler, Resampler
from tts_core.errors import UnsupportedFormat

Samples = NDArray[np.float32]

PAIRS = list(itertools.permutations(RATES, 2))
TO_8K = [(rate, 8000) for rate in RATES if rate != 8000]
rates = st.sampled_from(RATES)


def noise(n: int, seed: int = 0) -> Samples:
    return (np.random.default_rng(seed).standard_normal(n) * 0.2).astype(np.float32)


def tone(hertz: float, rate: int, seconds: float = 1.0, amplitude: float = 0.5) -> Samples:
    t = np.arange(round(rate * seconds)) / rate
    return (amplitude * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def whole(in_rate: int, out_rate: int, x: Samples) -> Samples:
    r = Resampler(in_rate, out_rate)
    return np.concatenate([r.process(x), r.flush()])


def batched(in_rate: int, out_rate: int, x: Samples) -> Samples:
    """One row through the batched form, run-up taken off."""
    g = BatchResampler(in_rate, out_rate, 1)
    padded = np.concatenate([x, np.zeros(-len(x) % g.n_in + g.n_in, np.float32)])
    y = np.concatenate([g.process(frame[None])[0] for frame in padded.reshape(-1, g.n_in)])
    return y[g.delay :][: math.ceil(len(x) * out_rate / in_rate)]


FORMS = {"gather": whole, "batched": batched}


def fit(y: NDArray[np.floating], hertz: float, rate: int) -> tuple[float, float]:
    """Amplitude of the tone in ``y``, and the RMS of all that is not the tone, over its steady middle."""
    skip = rate // 20
    middle = y[skip:-skip].astype(np.float64)
    t = np.arange(skip, skip + len(middle)) / rate
    base = np.stack(
        [np.sin(2 * np.pi * hertz * t), np.cos(2 * np.pi * hertz * t), np.ones_like(t)],
        axis=1,
    )
    weights = np.linalg.lstsq(base, middle, rcond=None)[0]
    rest = middle - base @ weights
    return float(np.hypot(weights[0], weights[1])), float(np.sqrt(np.mean(rest**2)))


def db(ratio: float) -> float:
    return 20 * math.log10(max(ratio, 1e-12))


# -- any chunking is the same, bit for bit


@given(
    in_rate=rates,
    out_rate=rates,
    sizes=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 1500)), max_size=30),
    seed=st.integers(0, 9),
)
@settings(deadline=None, max_examples=200)
def test_chunked_is_one_shot_bit_for_bit(in_rate: int, out_rate: int, sizes: list[int], seed: int) -> None:
    x = noise(sum(sizes), seed)
    r = Resampler(in_rate, out_rate)
    parts, at = [], 0
    for size in sizes:
        parts.append(r.process(x[at : at + size]))
        at += size
    chunked = np.concatenate([*parts, r.flush()])
    assert chunked.dtype == np.float32
    assert len(chunked) == math.ceil(len(x) * out_rate / in_rate)
    assert chunked.tobytes() == whole(in_rate, out_rate, x).tobytes()


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_single_samples_are_one_shot_bit_for_bit(in_rate: int, out_rate: int) -> None:
    x = noise(700)
    r = Resampler(in_rate, out_rate)
    chunked = np.concatenate([*(r.process(x[i : i + 1]) for i in range(len(x))), r.flush()])
    assert chunked.tobytes() == whole(in_rate, out_rate, x).tobytes()


@given(in_rate=rates, out_rate=rates, n=st.integers(0, 5000))
@settings(deadline=None, max_examples=100)
def test_exact_count_after_flush(in_rate: int, out_rate: int, n: int) -> None:
    assert len(whole(in_rate, out_rate, noise(n))) == math.ceil(n * out_rate / in_rate)


def test_a_strided_view_is_read_rightly() -> None:
    x = noise(2000)
    assert np.array_equal(whole(22050, 8000, x[::2]), whole(22050, 8000, x[::2].copy()))


def test_a_long_stream_keeps_its_grid() -> None:
    """Ten minutes: the position of every output is exact, not summed up."""
    r = Resampler(22050, 8000)
    x = noise(22050)
    seconds = [r.process(x) for _ in range(600)]
    assert sum(map(len, seconds)) == 600 * 8000 - (8000 - len(seconds[0]))
    assert np.array_equal(seconds[1], seconds[-1])


# -- reset, flush and equal rates


@pytest.mark.parametrize(("in_rate", "out_rate"), [(22050, 8000), (8000, 24000), (44100, 48000)])
def test_flush_and_reset_start_anew(in_rate: int, out_rate: int) -> None:
    r = Resampler(in_rate, out_rate)
    first = np.concatenate([r.process(noise(1000)), r.flush()])
    second = np.concatenate([r.process(noise(1000)), r.flush()])
    assert np.array_equal(first, second)
    r.process(noise(777, seed=5))
    r.reset()
    assert np.array_equal(np.concatenate([r.process(noise(1000)), r.flush()]), first)


def test_flush_of_nothing_is_nothing() -> None:
    assert len(Resampler(22050, 8000).flush()) == 0


@pytest.mark.parametrize("rate", RATES)
def test_equal_rates_pass_through(rate: int) -> None:
    r, x = Resampler(rate, rate), noise(321)
    y = r.process(x)
    assert np.array_equal(y, x)
    assert not np.shares_memory(y, x)
    assert len(r.flush()) == 0
    assert r.delay_s == 0.0
    g = BatchResampler(rate, rate, 2)
    frames = noise(2 * g.n_in).reshape(2, -1)
    assert np.array_equal(g.process(frames), frames)
    assert g.delay == 0


def test_silence_in_is_exact_silence_out() -> None:
    assert not whole(22050, 8000, np.zeros(5000, np.float32)).any()


def test_wrong_input_is_refused() -> None:
    with pytest.raises(UnsupportedFormat):
        Resampler(22050, 11025)
    with pytest.raises(UnsupportedFormat):
        BatchResampler(12000, 8000, 1)
    with pytest.raises(ValueError, match="batch"):
        BatchResampler(22050, 8000, 0)
    with pytest.raises(TypeError, match="float32"):
        Resampler(22050, 8000).process(np.zeros(441, np.int16))
    with pytest.raises(ValueError, match="shape"):
        Resampler(22050, 8000).process(np.zeros((1, 441), np.float32))
    with pytest.raises(ValueError, match="shape"):
        BatchResampler(22050, 8000, 2).process(np.zeros((2, 440), np.float32))


# -- quality


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_signal_to_noise_at_1_khz(form: str, in_rate: int, out_rate: int) -> None:
    """As a phone hears it: a 1 kHz tone at -6 dBFS, rounded to int16."""
    y = float_to_int16(FORMS[form](in_rate, out_rate, tone(1000, in_rate))) / 32768
    amplitude, rest = fit(y, 1000, out_rate)
    assert db(amplitude / math.sqrt(2) / rest) >= 85.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_ripple_up_to_the_band_edge(form: str, in_rate: int, out_rate: int) -> None:
    """To 3.4 kHz at 8 kHz, and to the same fraction of the lower rate elsewhere."""
    for share in np.linspace(0.0125, 0.425, 12):
        hertz = share * min(in_rate, out_rate)
        amplitude, _ = fit(FORMS[form](in_rate, out_rate, tone(hertz, in_rate, 0.5)), hertz, out_rate)
        assert abs(db(amplitude / 0.5)) <= 0.05, hertz


def worst_alias(form: str, in_rate: int, out_rate: int, frequencies: Iterator[float]) -> float:
    def level(hertz: float) -> float:
        y = FORMS[form](in_rate, out_rate, tone(hertz, in_rate, 0.5))[out_rate // 20 : -out_rate // 20]
        return db(math.sqrt(float(np.mean(np.square(y, dtype=np.float64)))) / (0.5 / math.sqrt(2)))

    return max(map(level, frequencies))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("in_rate", "out_rate"), [pair for pair in PAIRS if pair[0] > pair[1]])
def test_alias_is_80_db_down(form: str, in_rate: int, out_rate: int) -> None:
    """Tones from 5 kHz up at 8 kHz out, from the stop-band edge elsewhere, must not come back folded."""
    start = 5000.0 if out_rate == 8000 else 0.5751 * out_rate
    steps = np.linspace(start, in_rate / 2 * 0.995, 25)
    if steps[0] < steps[-1]:
        assert worst_alias(form, in_rate, out_rate, iter(steps)) <= -80.0
    else:
        # The two rates are so near that nothing of the input can lie in the stop band.
        assert in_rate / out_rate < 1.16


@pytest.mark.parametrize(("in_rate", "out_rate"), [pair for pair in PAIRS if pair[0] < pair[1]])
def test_images_are_80_db_down(in_rate: int, out_rate: int) -> None:
    """Upsampling a tone makes no second one above the old band."""
    hertz = 0.3 * in_rate
    y = whole(in_rate, out_rate, tone(hertz, in_rate))
    amplitude, rest = fit(y, hertz, out_rate)
    assert db(rest / (amplitude / math.sqrt(2))) <= -80.0


# -- delay


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_delay_is_what_is_said(in_rate: int, out_rate: int) -> None:
    """After every feed, what is held back is the stated delay, to within one sample of each side."""
    r = Resampler(in_rate, out_rate)
    fed, given_ = 0, 0
    for size in [*range(1, 60), in_rate // 50, in_rate // 50, 1000]:
        given_ += len(r.process(noise(size)))
        fed += size
        held = fed / in_rate - given_ / out_rate
        assert held <= r.delay_s + 1 / in_rate + 1e-9
        if given_:
            assert held >= r.delay_s - 1 / out_rate - 1e-9


@pytest.mark.parametrize(("in_rate", "out_rate"), TO_8K)
def test_delay_to_8_khz_is_at_most_2_3_ms(in_rate: int, out_rate: int) -> None:
    assert Resampler(in_rate, out_rate).delay_s <= 0.0023
    assert BatchResampler(in_rate, out_rate, 1).delay_s <= 0.0023


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_output_is_aligned_with_the_input(in_rate: int, out_rate: int) -> None:
    """The n-th output is the signal at n / out_rate: the filter's own delay is taken out."""
    hertz = 300.0
    y = whole(in_rate, out_rate, tone(hertz, in_rate, 0.5))
    skip = out_rate // 20
    ideal = tone(hertz, out_rate, 0.5)[: len(y)]
    assert np.abs(y[skip:-skip] - ideal[skip : len(y) - skip]).max() < 1e-3


# -- the batched form against the gather form


@given(
    in_rate=rates, out_rate=rates, batch=st.integers(1, 9), frames=st.integers(1, 6), seed=st.integers(0, 99)
)
@settings(deadline=None, max_examples=100)
def test_batched_is_gather_to_one_step(
    in_rate: int, out_rate: int, batch: int, frames: int, seed: int
) -> None:
    g = BatchResampler(in_rate, out_rate, batch)
    x = noise(batch * frames * g.n_in, seed).reshape(batch, frames, g.n_in)
    parts = [g.process(np.ascontiguousarray(x[:, k])) for k in range(frames)]
    parts.append(g.process(np.zeros((batch, g.n_in), np.float32)))
    y = np.concatenate(parts, axis=1)[:, g.delay :][:, : frames * g.n_out]
    for row in range(batch):
        ours = float_to_int16(y[row]).astype(np.int32)
        theirs = float_to_int16(whole(in_rate, out_rate, x[row].ravel())).astype(np.int32)
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1


def test_batched_full_scale_is_gather_to_one_step() -> None:
    g = BatchResampler(22050, 8000, 1)
    x = np.sign(tone(440, 22050)) * np.float32(0.7)
    theirs = float_to_int16(whole(22050, 8000, x)).astype(np.int32)
    assert np.abs(float_to_int16(batched(22050, 8000, x)).astype(np.int32) - theirs).max() <= 1
    assert g.delay == 18


def test_resetting_a_row_touches_no_other() -> None:
    frames = noise(3 * 441).reshape(3, 441)
    one, two = BatchResampler(22050, 8000, 3), BatchResampler(22050, 8000, 3)
    one.process(frames)
    two.process(frames)
    two.reset(1)
    a, b = one.process(frames), two.process(frames)
    assert np.array_equal(a[[0, 2]], b[[0, 2]])
    fresh = BatchResampler(22050, 8000, 3).process(frames)
    assert np.array_equal(b[1], fresh[1])
    assert not np.array_equal(a[1], fresh[1])
    two.reset()
    assert np.array_equal(two.process(frames), fresh)


def test_a_result_is_not_overwritten_by_the_next() -> None:
    g = BatchResampler(22050, 8000, 1)
    first = g.process(noise(441)[None])
    kept = first.copy()
    g.process(noise(441, seed=1)[None])
    assert np.array_equal(first, kept)
