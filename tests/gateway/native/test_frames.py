from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.frames import HEADER_BYTES, Flags, Frame, Kind, pack, unpack
from tts_core.errors import BadRequest


def test_the_layout_is_the_documented_one() -> None:
    data = pack(Kind.SPEECH, Flags.SEGMENT, 0x01020304, 5, 0x0102030405060708, b"xy")
    assert data.hex() == "01010000" + "04030201" + "05000000" + "0807060504030201" + "7879"
    assert HEADER_BYTES == 20


@given(
    st.sampled_from(Kind),
    st.sampled_from([Flags.NONE, Flags.SEGMENT]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=50),
)
def test_round_trip(kind: Kind, flags: Flags, index: int, seq: int, start: int, payload: bytes) -> None:
    assert unpack(pack(kind, flags, index, seq, start, payload)) == Frame(
        kind, flags, index, seq, start, payload
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_a_clear_error(data: bytes) -> None:
    try:
        frame = unpack(data)
    except BadRequest:
        assert len(data) < HEADER_BYTES or data[0] not in (1, 2)
    else:
        assert frame.payload == data[HEADER_BYTES:]


def test_a_seq_beyond_32_bits_wraps() -> None:
    assert unpack(pack(Kind.CALLER, Flags.NONE, 1, 2**32 + 7, 0, b"")).seq == 7


def test_too_short() -> None:
    with pytest.raises(BadRequest):
        unpack(b"\x01" * (HEADER_BYTES - 1))
