from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from telephony.dsp.framing import Framer
from telephony.dsp.resample import Resampler

sizes = st.lists(st.integers(0, 700), max_size=20)
frames = st.one_of(
    st.integers(1, 400), st.fractions(1, 400, max_denominator=1000), st.just(Fraction(37152, 100))
)


@given(sizes, frames)
def test_nothing_is_lost_doubled_or_moved(chunks: list[int], frame: int | Fraction) -> None:
    x = np.arange(sum(chunks), dtype=np.float32)
    framer: Framer[NDArray[np.float32]] = Framer(frame)
    out: list[NDArray[np.float32]] = []
    at = 0
    for n in chunks:
        out += framer.push(x[at : at + n])
        at += n
        # Every frame that is whole has come out, at once.
        assert framer.held == at - math.floor(len(out) * Fraction(frame))
        assert framer.held < math.floor((len(out) + 1) * Fraction(frame)) - math.floor(
            len(out) * Fraction(frame)
        )
    for k, got in enumerate(out):
        assert len(got) == math.floor((k + 1) * Fraction(frame)) - math.floor(k * Fraction(frame))
    rest = framer.flush(pad=False)
    assert np.array_equal(np.concatenate([np.zeros(0, np.float32), *out, *rest]), x)
    assert len(rest) == (at > math.floor(len(out) * Fraction(frame)))


@given(sizes, st.integers(1, 400))
def test_flush_pads_to_a_whole_frame(chunks: list[int], frame: int) -> None:
    framer: Framer[bytes] = Framer(frame, fill=0xFF)
    data = bytes(i % 251 for i in range(sum(chunks)))
    out, at = [], 0
    for n in chunks:
        out += framer.push(data[at : at + n])
        at += n
    out += framer.flush()
    assert all(type(got) is bytes and len(got) == frame for got in out)
    assert b"".join(out) == data + b"\xff" * (-len(data) % frame)
    assert framer.flush() == []


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.lists(st.integers(1, 3000), min_size=1, max_size=8))
def test_codec_frames_become_phone_frames(count: int, cuts: list[int]) -> None:
    """NanoCodec: 1024 samples at 22.05 kHz, 371.52 at 8 kHz; out come frames of 160, whatever the chunks."""
    x = (np.random.default_rng(count).standard_normal(1024 * count) * 0.1).astype(np.float32)
    one_shot = Resampler(22050, 8000)
    wanted = np.concatenate([one_shot.process(x), one_shot.flush()])

    resampler = Resampler(22050, 8000)
    framer: Framer[NDArray[np.float32]] = Framer(160)
    out: list[NDArray[np.float32]] = []
    sizes = itertools.cycle(cuts)
    at = 0
    while at < len(x):
        n = next(sizes)
        out += framer.push(resampler.process(x[at : at + n]))
        at += n
    out += framer.push(resampler.flush())
    whole = len(out)
    out += framer.flush()
    assert all(len(got) == 160 for got in out)
    assert whole == len(wanted) // 160
    assert len(wanted) == math.ceil(count * Fraction(37152, 100))
    together = np.concatenate(out)
    assert np.array_equal(together[: len(wanted)], wanted)
    assert not together[len(wanted) :].any()


def test_fractional_frames_never_drift() -> None:
    framer: Framer[bytes] = Framer(Fraction(37152, 100))
    lengths = [len(got) for got in framer.push(bytes(37152))]
    assert len(lengths) == 100
    assert set(lengths) == {371, 372}
    assert framer.held == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_like_in_bytes_out(kind: type) -> None:
    framer: Framer[bytes] = Framer(2)
    assert framer.push(kind(b"abc")) == [b"ab"]
    assert framer.push(kind(b"d")) == [b"cd"]


def test_frames_are_copies() -> None:
    framer: Framer[NDArray[np.float32]] = Framer(2)
    x = np.ones(3, np.float32)
    (got,) = framer.push(x)
    x[:] = 5.0
    assert got.tolist() == [1.0, 1.0]
    assert framer.flush()[0].tolist() == [1.0, 0.0]


def test_reset_drops_the_remainder() -> None:
    framer: Framer[bytes] = Framer(4)
    framer.push(b"abc")
    framer.reset()
    assert framer.held == 0
    assert framer.push(b"wxyz") == [b"wxyz"]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="one sample"):
        Framer(0)
    with pytest.raises(ValueError, match="one sample"):
        Framer(Fraction(1, 2))
    framer: Framer[Any] = Framer(2)
    with pytest.raises(ValueError, match="dimension"):
        framer.push(np.zeros((1, 2), np.float32))
    framer.push(np.zeros(1, np.float32))
    with pytest.raises(TypeError, match="kind"):
        framer.push(b"a")
    with pytest.raises(TypeError, match="kind"):
        framer.push(np.zeros(1, np.int16))
