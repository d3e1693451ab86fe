from __future__ import annotations

import itertools
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.gepard.cases import random_codes
from tts_core.errors import BadRequest, TextTooLong
from tts_core.gepard import torch_wire as wire
from tts_core.gepard.frames import FrameBatch, FrameRequest, SpeakerPrefix
from tts_core.gepard.sampling import Sampling

_ROWS = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)

_REQUESTS = st.builds(
    FrameRequest,
    id=st.just("r"),
    ids=st.lists(st.integers(0, 300_000), min_size=1, max_size=9).map(tuple),
    prefix=st.none() | st.integers(1, 8).map(lambda n: SpeakerPrefix.of(_ROWS[:n])),
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0, 2),
        seed=st.integers(-(1 << 63), (1 << 63) - 1),
        cfg_frames=st.none() | st.just(3),
    ),
    uncond=st.none() | st.just((1, 2, 3)),
    context=st.none() | st.integers(1, 5).map(random_codes),
)


@given(_REQUESTS)
def test_a_request_goes_over_and_back(request: FrameRequest) -> None:
    (message,) = wire.Reader().feed(wire.encode(wire.Generate.of(5, request)))
    assert isinstance(message, wire.Generate)
    back = message.request()
    assert (back.id, back.ids, back.sampling, back.uncond) == (
        "5",
        request.ids,
        request.sampling,
        request.uncond,
    )
    for ours, theirs in ((back.prefix, request.prefix),):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.fingerprint == theirs.fingerprint and np.array_equal(ours.rows, theirs.rows)
    assert (back.context is None) == (request.context is None)
    if back.context is not None and request.context is not None:
        assert np.array_equal(back.context, request.context)


@given(st.integers(0, 9), st.sampled_from(["", "stop", "length"]))
def test_frames_go_over_and_back(count: int, finish: str) -> None:
    entropy = np.linspace(0, 1, count, dtype=np.float32)
    batch = FrameBatch(random_codes(count), entropy, finish)  # type: ignore[arg-type]
    (message,) = wire.Reader().feed(wire.encode(wire.Frames.of(1, batch, 0.5)))
    assert isinstance(message, wire.Frames)
    back = message.batch()
    assert np.array_equal(back.codes, batch.codes) and np.array_equal(back.entropy, entropy)
    assert back.finish == finish


@given(
    st.lists(st.integers(0, 1000).map(wire.Cancel), max_size=8), st.lists(st.integers(0, 200), max_size=12)
)
def test_any_cuts(messages: list[wire.Cancel], cuts: list[int]) -> None:
    data = b"".join(wire.encode(message) for message in messages)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = wire.Reader()
    got = [message for a, b in itertools.pairwise(edges) for message in reader.feed(data[a:b])]
    assert got == messages


@given(st.binary(min_size=4, max_size=64))
def test_anything_is_a_message_or_an_error(data: bytes) -> None:
    try:
        messages = wire.Reader().feed(data)
    except wire.WireError:
        return
    assert all(isinstance(message, msgspec.Struct) for message in messages)


def test_frames_that_are_too_long_or_no_messages() -> None:
    with pytest.raises(wire.WireError):
        wire.Reader().feed(struct.pack("<I", wire.MAX_FRAME + 1))
    with pytest.raises(wire.WireError):
        wire.Reader().feed(struct.pack("<I", 1) + b"\xc0")


def test_arrays_of_odd_size() -> None:
    generate = wire.Generate.of(1, FrameRequest("a", (1,), SpeakerPrefix.of(_ROWS), Sampling()))
    for broken in ({"prefix": b"123"}, {"width": 63}, {"context": b"12345"}):
        with pytest.raises(wire.WireError):
            msgspec.structs.replace(generate, **broken).request()
    with pytest.raises(BadRequest):
        msgspec.structs.replace(generate, sampling={"temperature": -1.0}).request()
    frames = wire.Frames.of(1, FrameBatch(random_codes(2), np.zeros(2, np.float32)), 0.1)
    for codes, entropy in ((b"123", b""), (frames.codes, b"1234"), (frames.codes, b"12345")):
        with pytest.raises(wire.WireError):
            msgspec.structs.replace(frames, codes=codes, entropy=entropy).batch()


def test_failures_carry_code_and_field() -> None:
    failed = wire.Failed.of(3, TextTooLong("too long", field="text"))
    assert (failed.id, failed.code, failed.message, failed.field) == (3, "text_too_long", "too long", "text")
