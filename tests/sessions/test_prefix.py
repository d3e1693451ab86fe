"""The kept form of a voice: exact, or refused."""

from __future__ import annotations

import hashlib
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.prefix import MAX_BYTES, OVERHEAD, Conditioning, Damaged, check_float16, pack, unpack
from tts_core.errors import BadRequest

CONSENT = "cn_" + "0123456789abcdef" * 2
PREFIX = np.random.default_rng(5).standard_normal((8, 1024)).astype("<f2").tobytes()

VOICES = st.builds(
    Conditioning,
    data=st.binary(min_size=1, max_size=200),
    until=st.floats(allow_nan=False),
    lease=st.floats(0, 1e6, width=32),
    consent=st.sampled_from(["", CONSENT]),
)


def _refused(packed: bytes) -> bool:
    try:
        unpack(packed)
    except Damaged:
        return True
    return False


@given(VOICES)
def test_round_trip(voice: Conditioning) -> None:
    packed = pack(voice)
    assert len(packed) == len(voice.data) + OVERHEAD
    assert unpack(packed) == voice


@given(VOICES, st.data())
def test_any_change_is_refused(voice: Conditioning, data: st.DataObject) -> None:
    packed = pack(voice)
    at = data.draw(st.integers(0, len(packed) - 1))
    flipped = bytearray(packed)
    flipped[at] ^= data.draw(st.integers(1, 255))
    assert _refused(bytes(flipped))
    assert _refused(packed[:at])
    assert _refused(packed + data.draw(st.binary(min_size=1, max_size=40)))
    assert _refused(data.draw(st.binary(min_size=1, max_size=40)) + packed)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    assert _refused(noise)
    assert _refused(b"VXV\2" + noise)


def test_wrong_terms_under_a_right_checksum_are_refused() -> None:
    def forged(version: int = 2, until: float = 0.0, lease: float = 0.0, length: int = 3) -> bytes:
        body = struct.pack("<3sBdf16sI", b"VXV", version, until, lease, bytes(16), length) + b"abc"
        return body + hashlib.blake2b(body, digest_size=16).digest()

    assert unpack(forged()).data == b"abc"
    for bad in (
        forged(version=1),
        forged(version=3),
        forged(until=math.nan),
        forged(lease=-1.0),
        forged(lease=math.inf),
        forged(lease=math.nan),
        forged(length=2),
        forged(length=2**32 - 1),
    ):
        assert _refused(bad)


def test_what_is_not_packed() -> None:
    for voice in (
        Conditioning(b""),
        Conditioning(bytes(MAX_BYTES + 1)),
        Conditioning(b"x", consent="free text"),
        Conditioning(b"x", consent="cn_" + "0" * 31),
    ):
        with pytest.raises(BadRequest):
            pack(voice)
    assert unpack(pack(Conditioning(bytes(MAX_BYTES)))).data == bytes(MAX_BYTES)


def test_float16_of_exact_length() -> None:
    check_float16(PREFIX, 16_384)
    numbers = np.frombuffer(PREFIX, "<f2").copy()
    numbers[77] = np.inf
    infinite = numbers.tobytes()
    numbers[77] = np.nan
    for bad in (b"", PREFIX[:-1], PREFIX[:-2], PREFIX + b"\0\0", infinite, numbers.tobytes(), bytes(16_384)):
        with pytest.raises(BadRequest):
            check_float16(bad, 16_384)
    with pytest.raises(BadRequest):
        check_float16(b"abc", 3)


@given(st.binary(max_size=64))
def test_float16_noise_never_crashes(noise: bytes) -> None:
    try:
        check_float16(noise, 32)
    except BadRequest:
        return
    assert len(noise) == 32
