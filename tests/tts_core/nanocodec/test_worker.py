"""The loop of a codec process, in a thread of this one, over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.tts_core.nanocodec.cases import CLOSE, Codec, some_codes
from tts_core.nanocodec import wire
from tts_core.nanocodec import worker as worker_module
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.encoder import Encoder
from tts_core.nanocodec.link import environment
from tts_core.nanocodec.worker import WARM_UP, Worker, main, warm_up


class Peer:
    """The service's end of the socket, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(30)
        self.reader = wire.Reader()

    def send(self, *messages: wire.Message | wire.Data) -> None:
        self.sock.sendall(b"".join(b"".join(wire.encode(message)) for message in messages))

    def receive(self) -> wire.Message | wire.Data:
        while True:
            count = self.sock.recv_into(self.reader.buffer())
            if not count:
                raise EOFError
            message = self.reader.received(count)
            if message is not None:
                return message

    def data(self, count: int) -> list[wire.Data]:
        found: list[wire.Data] = []
        while len(found) < count:
            message = self.receive()
            if isinstance(message, wire.Data):
                found.append(message)
        return found


@pytest.fixture
def ends() -> Iterator[tuple[Peer, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Peer(ours), theirs


def in_thread(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def configuration(codec: Codec, **changes: Any) -> wire.Configure:
    values = {
        "role": "decode",
        "model": str(codec.path),
        "backend": "onnx",
        "device": "cpu",
        "batch_frames": 16,
    }
    return wire.Configure(**{**values, **changes})


def test_streams_are_decoded(ends: tuple[Peer, socket.socket], codec: Codec, decoder: TorchDecoder) -> None:
    peer, theirs = ends
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    assert peer.receive() == wire.Ready()
    clips = {stream: some_codes(40, seed=stream) for stream in (1, 2, 3)}
    requests = []
    for at, size in ((0, 1), (1, 2), (3, 37)):
        requests += [
            wire.Data(stream, stream * 100 + at, codes[at : at + size]) for stream, codes in clips.items()
        ]
    peer.send(*requests)
    got = peer.data(9)
    for stream, codes in clips.items():
        mine = [data for data in got if data.stream == stream]
        assert [data.request for data in mine] == [stream * 100, stream * 100 + 1, stream * 100 + 3]
        samples = np.concatenate([data.array for data in mine])
        assert np.abs(samples - decoder.whole(codes)).max() <= CLOSE
    peer.sock.close()
    thread.join(30)
    assert isinstance(errors[0], (EOFError, ConnectionResetError))


def test_a_closed_stream_begins_anew(ends: tuple[Peer, socket.socket], codec: Codec) -> None:
    peer, theirs = ends
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    codes = some_codes(3)
    peer.send(wire.Data(1, 1, codes), wire.Data(1, 2, codes))
    first, second = peer.data(2)
    assert np.abs(first.array - second.array).max() > 1e-3
    peer.send(wire.Close(1), wire.Close(77), wire.Data(1, 3, codes))
    (third,) = peer.data(1)
    assert np.array_equal(third.array, first.array)
    peer.sock.close()
    thread.join(30)


def test_work_is_told(ends: tuple[Peer, socket.socket], codec: Codec) -> None:
    peer, theirs = ends
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    peer.send(wire.Data(1, 1, some_codes(20)))
    steps: list[wire.Step] = []
    while sum(step.frames for step in steps) < 20:
        message = peer.receive()
        if isinstance(message, wire.Step):
            steps.append(message)
    assert [step.frames for step in steps] == [16, 4]
    assert all(0 < step.busy_s < 30 for step in steps)
    peer.sock.close()
    thread.join(30)


def test_clips_are_encoded(
    ends: tuple[Peer, socket.socket],
    codec: Codec,
    encoder: Encoder,
    clip: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nice is of the whole process, which is ours here.
    nice: list[int] = []
    monkeypatch.setattr(os, "nice", nice.append)
    peer, theirs = ends
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec, role="encode"))
    assert peer.receive() == wire.Ready()
    assert nice == [10]
    peer.send(wire.Data(0, 5, clip))
    (data,) = peer.data(1)
    assert data.request == 5
    assert np.array_equal(data.array, encoder.encode(clip))
    peer.send(wire.Data(0, 6, np.full(9, np.nan, np.float32)))
    failed = peer.receive()
    assert isinstance(failed, wire.Failed) and failed.request == 6
    peer.send(wire.Close(1))
    thread.join(30)
    assert isinstance(errors[0], wire.WireError)


@pytest.mark.parametrize(
    "changes", [{"model": "/nowhere/x.safetensors"}, {"backend": "tensorrt"}, {"model": "\0"}]
)
def test_what_cannot_start_says_so(
    ends: tuple[Peer, socket.socket], codec: Codec, changes: dict[str, str]
) -> None:
    peer, theirs = ends
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec, **changes))
    message = peer.receive()
    assert isinstance(message, wire.Failed) and message.request == 0
    assert "nowhere" not in message.message
    thread.join(30)
    assert errors == []


@pytest.mark.parametrize(
    "message",
    [wire.Ready(), wire.Data(1, 1, np.zeros(4, np.float32)), wire.Data(1, 1, np.zeros((0, 32), np.uint8))],
)
def test_what_is_no_work_ends_the_process(
    ends: tuple[Peer, socket.socket], codec: Codec, message: wire.Message | wire.Data
) -> None:
    peer, theirs = ends
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration(codec))
    peer.receive()
    peer.send(message)
    thread.join(30)
    assert isinstance(errors[0], wire.WireError)


def test_the_first_message_must_be_the_configuration(ends: tuple[Peer, socket.socket]) -> None:
    peer, theirs = ends
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(wire.Close(1))
    thread.join(30)
    assert isinstance(errors[0], wire.WireError)


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
    monkeypatch.setattr(worker_module, "_die_with_parent", lambda: None)
    thread, errors = in_thread(lambda: main(theirs.detach()))
    Peer(ours).send(configuration(codec))
    ours.close()
    thread.join(30)
    assert (ended, errors) == ([0], [])


def test_a_process_dies_with_its_parent(codec: Codec) -> None:
    """Even in the middle of something: the parent is killed, and the kernel ends the child."""
    program = (
        "import os, socket, subprocess, sys\n"
        "from tts_core.nanocodec.link import _spawn\n"
        "ours, theirs = socket.socketpair()\n"
        "child = _spawn(theirs)\n"
        "print(child.pid, flush=True)\n"
        "os.set_inheritable(ours.fileno(), True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert parent.stdin is not None and parent.stdout is not None
    with parent.stdin, parent.stdout:
        child = int(parent.stdout.readline())
        watch = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
        # The end of a process makes its descriptor readable.
        import select

        assert select.select((watch,), (), (), 30)[0]
        os.close(watch)
