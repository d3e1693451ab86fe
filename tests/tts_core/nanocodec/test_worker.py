"""The loop of a codec process, in a thread of this one, over a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.tts_core.child.cases import ends, in_thread
from tests.tts_core.nanocodec.cases import CLOSE, Codec, configuration, some_codes
from tts_core.child import serve as serve_module
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError, numbers, raw
from tts_core.child.serve import Channel
from tts_core.nanocodec import wire
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.encoder import Encoder
from tts_core.nanocodec.fsq import CHANNELS, Codes
from tts_core.nanocodec.worker import WARM_UP, Worker, main, warm_up

Ends = tuple[Channel[wire.Message], socket.socket]


@pytest.fixture
def pair() -> Iterator[Ends]:
    with ends(wire.LANGUAGE) as made:
        yield made


def submit(peer: Channel[wire.Message], stream: int, request: int, codes: Codes) -> None:
    peer.send(wire.Codes(stream, request), raw(codes))


def answers(peer: Channel[wire.Message], count: int) -> list[tuple[int, int, Any]]:
    """Stream, request and samples of the next ``count``."""
    found: list[tuple[int, int, Any]] = []
    while len(found) < count:
        message, payload = peer.receive()
        if isinstance(message, wire.Samples):
            found.append((message.stream, message.request, numbers(payload, np.float32)))
    return found


def test_streams_are_decoded(pair: Ends, codec: Codec, decoder: TorchDecoder) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    assert peer.receive()[0] == wire.Ready()
    clips = {stream: some_codes(40, seed=stream) for stream in (1, 2, 3)}
    for at, size in ((0, 1), (1, 2), (3, 37)):
        for stream, codes in clips.items():
            submit(peer, stream, stream * 100 + at, codes[at : at + size])
    got = answers(peer, 9)
    for stream, codes in clips.items():
        mine = [(request, samples) for of, request, samples in got if of == stream]
        assert [request for request, _ in mine] == [stream * 100, stream * 100 + 1, stream * 100 + 3]
        samples = np.concatenate([samples for _, samples in mine])
        assert np.abs(samples - decoder.whole(codes)).max() <= CLOSE
    peer.sock.close()
    thread.join(30)
    assert isinstance(errors[0], (EOFError, ConnectionResetError))


def test_a_closed_stream_begins_anew(pair: Ends, codec: Codec) -> None:
    peer, theirs = pair
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    codes = some_codes(3)
    submit(peer, 1, 1, codes)
    submit(peer, 1, 2, codes)
    (_, _, first), (_, _, second) = answers(peer, 2)
    assert np.abs(first - second).max() > 1e-3
    peer.send(wire.Close(1))
    peer.send(wire.Close(77))
    submit(peer, 1, 3, codes)
    ((_, _, third),) = answers(peer, 1)
    assert np.array_equal(third, first)
    peer.sock.close()
    thread.join(30)


def test_work_is_told(pair: Ends, codec: Codec) -> None:
    peer, theirs = pair
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    submit(peer, 1, 1, some_codes(20))
    steps: list[wire.Step] = []
    while sum(step.frames for step in steps) < 20:
        message, _ = peer.receive()
        if isinstance(message, wire.Step):
            steps.append(message)
    assert [step.frames for step in steps] == [16, 4]
    assert all(0 < step.busy_s < 30 for step in steps)
    peer.sock.close()
    thread.join(30)


def test_clips_are_encoded(
    pair: Ends,
    codec: Codec,
    encoder: Encoder,
    clip: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nice is of the whole process, which is ours here.
    nice: list[int] = []
    monkeypatch.setattr(os, "nice", nice.append)
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec, role="encode"))
    assert peer.receive()[0] == wire.Ready()
    assert nice == [10]
    peer.send(wire.Samples(0, 5), raw(clip))
    answer, payload = peer.receive()
    assert answer == wire.Codes(0, 5)
    assert np.array_equal(numbers(payload, np.uint8, CHANNELS), encoder.encode(clip))
    peer.send(wire.Samples(0, 6), raw(np.full(9, np.nan, np.float32)))
    failed, _ = peer.receive()
    assert isinstance(failed, Failed) and failed.id == 6
    peer.send(wire.Close(1))
    thread.join(30)
    assert isinstance(errors[0], FrameError)


@pytest.mark.parametrize(
    "changes", [{"model": "/nowhere/x.safetensors"}, {"backend": "tensorrt"}, {"model": "\0"}]
)
def test_what_cannot_start_says_so(pair: Ends, codec: Codec, changes: dict[str, str]) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec, **changes))
    message, _ = peer.receive()
    assert isinstance(message, Failed) and message.id == 0
    assert "nowhere" not in message.message
    thread.join(30)
    assert errors == []


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (wire.Ready(), b""),
        (wire.Samples(1, 1), bytes(16)),
        (wire.Codes(1, 1), b""),
        (wire.Codes(1, 1), bytes(CHANNELS - 1)),
    ],
)
def test_what_is_no_work_ends_the_process(
    pair: Ends, codec: Codec, message: wire.Message, payload: bytes
) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    peer.send(message, payload)
    thread.join(30)
    assert isinstance(errors[0], FrameError)


def test_the_first_message_must_be_the_configuration(pair: Ends) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(wire.Close(1))
    thread.join(30)
    assert isinstance(errors[0], FrameError)


def test_the_sizes_of_the_ramp_are_warm() -> None:
    sizes: list[int] = []

    class Counting:
        def new_state(self) -> int:
            return 0

        def step(self, codes: Any, states: Sequence[int]) -> tuple[Any, Sequence[int]]:
            sizes.append(codes.shape[1])
            return np.zeros((1, codes.shape[1] * 1024), np.float32), states

    warm_up(Counting())
    assert tuple(sizes) == WARM_UP


def test_the_program_ends_with_the_socket(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(serve_module, "_die_with_parent", lambda: None)
    thread, errors = in_thread(lambda: main(theirs.detach()))
    with ours:
        Channel(ours, wire.LANGUAGE).send(configuration(codec))
    thread.join(30)
    assert (ended, errors) == ([0], [])
