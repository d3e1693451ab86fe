from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tts_core.embedded import wire
from tts_core.embedded.trim import Trim

u32 = st.integers(0, 2**32 - 1)
control = st.one_of(
    st.builds(
        wire.Speak,
        id=u32,
        text=st.text(max_size=50),
        voice=st.text(max_size=9),
        speed=st.floats(0.5, 2),
        seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    ),
    st.builds(wire.Cancel, id=u32),
    st.builds(wire.Ready, audio_s=st.floats(0, 9), busy_s=st.floats(0, 9)),
    st.builds(wire.Done, id=u32, audio_s=st.floats(0, 9), busy_s=st.floats(0, 9)),
    st.builds(wire.Failed, id=u32, message=st.text(max_size=50)),
    st.builds(
        wire.Configure,
        voices=st.lists(st.builds(wire.VoiceFile, st.text(), st.text(), st.text(), st.booleans())).map(tuple),
        trim=st.just(Trim(lead_ms=3.0)),
        gain=st.floats(0, 4),
        durations=st.booleans(),
    ),
)
audio = st.builds(
    wire.Audio,
    id=u32,
    start=u32,
    last=st.booleans(),
    marks=st.lists(st.tuples(u32, u32, u32, u32), max_size=4).map(tuple),
    pcm=hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(-1, 1, width=32)),
)


def frame(message: object) -> bytes:
    head, samples = wire.encode(message)  # type: ignore[arg-type]
    return head + bytes(samples)


def feed(reader: wire.Reader, data: bytes, step: int) -> list[object]:
    """Let ``data`` arrive in pieces of at most ``step`` bytes."""
    out: list[object] = []
    at = 0
    while at < len(data):
        room = reader.buffer()
        piece = data[at : at + min(step, len(room))]
        room[: len(piece)] = piece
        at += len(piece)
        message = reader.received(len(piece))
        if message is not None:
            out.append(message)
    return out


def plain(message: object) -> object:
    if isinstance(message, wire.Audio):
        return (message.id, message.start, message.last, message.marks, message.pcm.tobytes())
    return message


@given(messages=st.lists(st.one_of(control, audio), max_size=6), step=st.integers(1, 99))
def test_messages_survive_any_cutting(messages: list[object], step: int) -> None:
    got = feed(wire.Reader(), b"".join(frame(m) for m in messages), step)
    assert [plain(m) for m in got] == [plain(m) for m in messages]


def test_samples_are_not_copied_on_the_way_out() -> None:
    pcm = np.zeros(1000, np.float32)
    _, samples = wire.encode(wire.Audio(1, 0, True, (), pcm))
    pcm[7] = 0.5
    assert np.frombuffer(samples, np.float32)[7] == 0.5


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IB3x", wire.MAX_FRAME + 1, wire.CONTROL),
        struct.pack("<IB3x", 4, 9),
        struct.pack("<IB3x", 3, wire.CONTROL) + b"\xc1\xc1\xc1",
        struct.pack("<IB3x", 3, wire.AUDIO) + b"abc",
        struct.pack("<IB3x", 14, wire.AUDIO) + struct.pack("<IIHBx", 1, 0, 0, 1) + b"ab",
        struct.pack("<IB3x", 12, wire.AUDIO) + struct.pack("<IIHBx", 1, 0, 2, 1),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        feed(wire.Reader(), data, 1000)
