from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.gepard.cases import random_codes
from tts_core.child.frames import FrameError, Reader
from tts_core.errors import BadRequest
from tts_core.gepard import model_wire as wire
from tts_core.gepard.frames import NO_CODES, NO_ENTROPY, FrameBatch, FrameRequest, SpeakerPrefix
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

_BATCHES = st.builds(
    lambda count, finish: FrameBatch(
        random_codes(count, count), np.linspace(0, 1, count, dtype=np.float32), finish
    ),
    st.integers(0, 9),
    st.sampled_from(["", "stop", "length"]),
)


def over(message: wire.Message, payload: bytes) -> tuple[wire.Message, memoryview]:
    """What the other end gets."""
    reader = Reader(wire.LANGUAGE)
    data = b"".join(wire.LANGUAGE.encode(message, payload))
    while data:
        room = reader.buffer()
        count = min(len(room), len(data))
        room[:count], data = data[:count], data[count:]
        got = reader.received(count)
    assert got is not None
    return got


@given(_REQUESTS)
def test_a_request_goes_over_and_back(request: FrameRequest) -> None:
    message, payload = over(*wire.Generate.of(5, request))
    assert isinstance(message, wire.Generate)
    back = message.request(payload)
    assert (back.id, back.ids, back.sampling, back.uncond) == (
        "5",
        request.ids,
        request.sampling,
        request.uncond,
    )
    assert (back.prefix is None) == (request.prefix is None)
    if back.prefix is not None and request.prefix is not None:
        assert back.prefix.fingerprint == request.prefix.fingerprint
        assert np.array_equal(back.prefix.rows, request.prefix.rows)
    assert (back.context is None) == (request.context is None)
    if back.context is not None and request.context is not None:
        assert np.array_equal(back.context, request.context)


@given(st.lists(st.tuples(st.integers(1, 1 << 40), _BATCHES), max_size=6))
def test_a_step_goes_over_and_back(given_: list[tuple[int, FrameBatch]]) -> None:
    parts = [(ident, len(batch.codes), batch.finish) for ident, batch in given_]
    codes = np.concatenate([NO_CODES, *(batch.codes for _, batch in given_)])
    entropy = np.concatenate([NO_ENTROPY, *(batch.entropy for _, batch in given_)])
    message, payload = over(*wire.Step.of(parts, codes, entropy, 0.5))
    assert isinstance(message, wire.Step) and message.busy_s == 0.5
    back = list(message.batches(payload))
    assert [ident for ident, _ in back] == [ident for ident, _ in given_]
    for (_, ours), (_, theirs) in zip(back, given_, strict=True):
        assert np.array_equal(ours.codes, theirs.codes) and np.array_equal(ours.entropy, theirs.entropy)
        assert ours.finish == theirs.finish


@given(st.integers(-2, 9), st.integers(-2, 3), st.binary(max_size=300))
def test_numbers_of_odd_size_are_refused(width: int, frames: int, payload: bytes) -> None:
    generate, right = wire.Generate.of(1, FrameRequest("a", (1,), SpeakerPrefix.of(_ROWS), Sampling()))
    broken = msgspec.structs.replace(generate, width=width, frames=frames)
    try:
        request = broken.request(memoryview(payload))
    except (FrameError, BadRequest):  # or rows that are no numbers
        pass
    else:
        rows = 0 if request.prefix is None else request.prefix.rows.size * 4
        assert rows + (0 if request.context is None else request.context.size) == len(payload)
    with pytest.raises(FrameError):
        generate.request(memoryview(right[:-1]))


def test_what_is_no_request_or_step() -> None:
    generate, payload = wire.Generate.of(1, FrameRequest("a", (1,), None, Sampling()))
    with pytest.raises(BadRequest):
        msgspec.structs.replace(generate, sampling={"temperature": -1.0}).request(memoryview(payload))
    step, frames = wire.Step.of([(1, 2, "")], random_codes(2), np.zeros(2, np.float32), 0.1)
    for parts, data in (
        (step.parts, frames[:-1]),
        ((wire.Part(1, 3, ""),), frames),
        ((wire.Part(1, 3, ""), wire.Part(2, -1, "")), frames),
    ):
        with pytest.raises(FrameError):
            list(msgspec.structs.replace(step, parts=parts).batches(memoryview(data)))
