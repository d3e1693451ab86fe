"""The frames between the service and its processes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tts_core.nanocodec import wire
from tts_core.nanocodec.wire import Data, Message, Reader, WireError

ids = st.integers(0, 2**32 - 1)
codes = st.integers(0, 20).flatmap(lambda n: arrays.arrays(np.uint8, (n, 32)))
samples = st.integers(0, 200).flatmap(
    lambda n: arrays.arrays(np.float32, n, elements=st.floats(-1, 1, width=32))
)
data = st.builds(Data, ids, ids, st.one_of(codes, samples))
control = st.one_of(
    st.builds(wire.Configure, st.text(max_size=9), st.text(max_size=9), st.text(), st.text(), ids),
    st.just(wire.Ready()),
    st.builds(wire.Close, ids),
    st.builds(wire.Step, ids, st.floats(0, 9)),
    st.builds(wire.Failed, ids, st.text()),
)


def fed(stream: bytes, sizes: list[int]) -> list[Message | Data]:
    """Read ``stream`` in pieces of ``sizes``, over and over."""
    reader, found, at, turn = Reader(), [], 0, 0
    while at < len(stream):
        room = reader.buffer()
        count = min(sizes[turn % len(sizes)], len(room), len(stream) - at)
        room[:count] = stream[at : at + count]
        at, turn = at + count, turn + 1
        message = reader.received(count)
        if message is not None:
            found.append(message)
    return found


def equal(left: Message | Data, right: Message | Data) -> bool:
    if isinstance(left, Data) and isinstance(right, Data):
        same = left.array.dtype == right.array.dtype and np.array_equal(left.array, right.array)
        return same and (left.stream, left.request) == (right.stream, right.request)
    return left == right


@given(st.lists(st.one_of(data, control), max_size=6), st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_what_is_sent_arrives_however_it_is_cut(messages: list[Any], sizes: list[int]) -> None:
    stream = b"".join(b"".join(wire.encode(message)) for message in messages)
    found = fed(stream, sizes)
    assert len(found) == len(messages)
    assert all(map(equal, found, messages))


@given(st.binary(max_size=200))
def test_garbage_is_no_message_or_an_error(noise: bytes) -> None:
    try:
        fed(noise, [64])
    except WireError:
        return


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<IB3xII", wire.MAX_FRAME + 1, wire.CODES, 1, 1),
        struct.pack("<IB3xII", 4, 9, 1, 1),
        struct.pack("<IB3xII", 31, wire.CODES, 1, 1) + bytes(31),
        struct.pack("<IB3xII", 3, wire.SAMPLES, 1, 1) + bytes(3),
        struct.pack("<IB3xII", 4, wire.CONTROL, 0, 0) + b"\xc1\xc1\xc1\xc1",
    ],
)
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        fed(frame, [1000])


def test_what_fits_in_no_frame_is_not_sent() -> None:
    with pytest.raises(WireError):
        wire.encode(Data(1, 1, np.zeros(wire.MAX_FRAME // 4 + 1, np.float32)))
