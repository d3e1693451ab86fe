"""Messages with payloads, however the stream is cut."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.tts_core.child.cases import LANGUAGE, Echo, Load, Message, Ready, feed
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError, Language, Reader, numbers, raw

ids = st.integers(0, 2**32 - 1)
messages = st.one_of(
    st.builds(Load, st.text()),
    st.builds(Ready, ids),
    st.builds(Echo, ids, st.text()),
    st.builds(Failed, ids, st.text(), st.text(), st.none() | st.text()),
)
frames = st.lists(st.tuples(messages, st.binary(max_size=300)), max_size=6)
sizes = st.lists(st.integers(1, 300), min_size=1, max_size=5)


def stream_of(found: list[tuple[Message, bytes]]) -> bytes:
    return b"".join(b"".join(LANGUAGE.encode(message, payload)) for message, payload in found)


@given(frames, sizes)
def test_what_is_sent_arrives_however_it_is_cut(sent: list[tuple[Message, bytes]], cuts: list[int]) -> None:
    found = feed(Reader(LANGUAGE), stream_of(sent), cuts)
    assert [(message, bytes(payload)) for message, payload in found] == sent


@given(messages, st.binary(min_size=1), st.binary(max_size=50))
def test_a_reader_takes_no_byte_beyond_the_frame(message: Message, payload: bytes, rest: bytes) -> None:
    """So that another may go on reading the same socket."""
    reader = Reader(LANGUAGE)
    stream, at, found = stream_of([(message, payload)]) + rest, 0, None
    while found is None:
        room = reader.buffer()
        room[:] = stream[at : at + len(room)]
        at += len(room)
        found = reader.received(len(room))
    assert stream[at:] == rest


@given(st.binary(max_size=200), sizes)
def test_garbage_is_no_message_or_an_error(noise: bytes, cuts: list[int]) -> None:
    try:
        found = feed(Reader(LANGUAGE), noise, cuts)
    except FrameError:
        return
    assert sum(8 + len(payload) for _, payload in found) <= len(noise)


@given(st.text(max_size=20), arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1, 1)))
def test_numbers_are_aligned_writable_and_uncopied(words: str, array: Any) -> None:
    ((_, payload),) = feed(Reader(LANGUAGE), stream_of([(Echo(1, words), bytes(raw(array)))]), [64])
    got = numbers(payload, np.float64)
    assert np.array_equal(got, array)
    assert got.flags.aligned and got.flags.writeable and not got.flags.owndata


def test_a_payload_is_not_copied_on_the_way_out() -> None:
    pcm = np.zeros(1000, np.float32)
    _, payload = LANGUAGE.encode(Echo(1), raw(pcm))
    pcm[7] = 0.5
    assert numbers(payload, np.float32)[7] == 0.5


def test_an_array_in_rows_keeps_its_width_when_it_is_empty() -> None:
    assert numbers(raw(np.zeros((0, 32), np.uint8)), np.uint8, 32).shape == (0, 32)
    rows = np.arange(64, dtype=np.uint8).reshape(2, 32)
    assert np.array_equal(numbers(raw(rows[:, ::-1]), np.uint8, 32), rows[:, ::-1])


@pytest.mark.parametrize(("size", "width"), [(3, None), (124, 32)])
def test_no_whole_number_of_numbers_is_refused(size: int, width: int | None) -> None:
    with pytest.raises(FrameError, match="odd size"):
        numbers(memoryview(bytes(size)), np.float32, width)


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack("<II", LANGUAGE.max_frame, 1),
        struct.pack("<II", 2**32 - 1, 2**32 - 1),
        struct.pack("<II", 0, 4),
        struct.pack("<II", 4, 0) + b"\xc1\xc1\xc1\xc1" + bytes(4),
        struct.pack("<II", 1, 0) + b"\x80" + bytes(7),
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(FrameError):
        feed(Reader(LANGUAGE), stream, [1000])


def test_what_fits_in_no_frame_is_not_sent() -> None:
    small: Language[Message] = Language(Message, max_frame=100)
    head, payload = small.encode(Echo(1), bytes(60))
    assert len(feed(Reader(small), head + bytes(payload), [7])) == 1
    with pytest.raises(FrameError, match="too large"):
        small.encode(Echo(1), bytes(100))
