"""The worker's loop in a thread, spoken to as its engine does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tts_core.gepard.cases import request
from tts_core.errors import SettingsError
from tts_core.gepard import torch_wire as wire
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest
from tts_core.gepard.torch_worker import Worker, load


class Other:
    """The engine's end, with the worker behind it."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(60)
        self.error: BaseException | None = None
        self._reader = wire.Reader()
        self._got: list[wire.Message] = []
        self._thread = threading.Thread(target=self._run, args=(theirs,))
        self._thread.start()

    def _run(self, theirs: socket.socket) -> None:
        with theirs:
            try:
                Worker(theirs).run()
            except (EOFError, OSError, wire.WireError) as error:
                self.error = error

    def send(self, *messages: wire.Message) -> None:
        self.ours.sendall(b"".join(wire.encode(message) for message in messages))

    def receive(self) -> wire.Message:
        while not self._got:
            data = self.ours.recv(1 << 16)
            if not data:
                raise EOFError
            self._got = self._reader.feed(data)
        return self._got.pop(0)

    def end(self) -> BaseException | None:
        """Hang up; what ended the worker."""
        self.ours.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.end()


@pytest.fixture
def loaded(other: Other, directory: Path) -> Other:
    other.send(wire.Load(str(directory), "float32", 1))
    ready = other.receive()
    assert isinstance(ready, wire.Ready) and ready.load_s > 0
    return other


def ask(ident: int, checkpoint: Checkpoint, frames: int) -> wire.Generate:
    return wire.Generate.of(ident, request(checkpoint, max_frames=frames, stop_threshold=1.0))


def order(other: Other) -> list[int]:
    """Whose frames came, until both requests 1 and 2 are over."""
    came: list[int] = []
    open_ = {1, 2}
    while open_:
        message = other.receive()
        assert isinstance(message, wire.Frames) and message.busy_s > 0
        came.append(message.id)
        if message.finish:
            open_.remove(message.id)
    return came


def test_requests_take_turns_and_the_newest_goes_first(loaded: Other, checkpoint: Checkpoint) -> None:
    loaded.send(ask(1, checkpoint, 4), ask(2, checkpoint, 4))
    assert order(loaded) == [2, 1, 2, 1, 2, 1, 2, 1]


def test_a_cancelled_request_gives_nothing_more(loaded: Other, checkpoint: Checkpoint) -> None:
    loaded.send(ask(1, checkpoint, 2000), wire.Cancel(1), wire.Cancel(9), ask(3, checkpoint, 2))
    messages = [loaded.receive(), loaded.receive()]
    assert [getattr(message, "id", None) for message in messages] == [3, 3]


def test_a_request_that_cannot_be_served(loaded: Other, checkpoint: Checkpoint) -> None:
    for broken in (
        replace(request(checkpoint), ids=(1 << 20,)),
        replace(request(checkpoint), ids=(1,) * 5000),
    ):
        loaded.send(wire.Generate.of(4, broken))
        failed = loaded.receive()
        assert isinstance(failed, wire.Failed) and failed.id == 4 and failed.field == "text"
    loaded.send(ask(5, checkpoint, 1))
    assert isinstance(loaded.receive(), wire.Frames)


def test_a_model_that_cannot_be_loaded(other: Other, tmp_path: Path) -> None:
    other.send(wire.Load(str(tmp_path), "float32", 1))
    failed = other.receive()
    assert failed == wire.Failed(0, "bad_settings", "the checkpoint has no readable gepard_config.json")
    with pytest.raises(EOFError):
        other.receive()


def test_an_engine_that_hangs_up(loaded: Other, checkpoint: Checkpoint) -> None:
    loaded.send(ask(1, checkpoint, 2000))
    loaded.receive()
    assert isinstance(loaded.end(), EOFError | OSError)


@pytest.mark.parametrize("late", [False, True])
def test_messages_out_of_place(other: Other, directory: Path, late: bool) -> None:
    if late:
        other.send(wire.Load(str(directory), "float32", 1))
        other.receive()
    other.send(wire.Ready(1.0))
    with pytest.raises(EOFError):
        other.receive()
    assert isinstance(other.end(), wire.WireError)


def test_load_refuses_what_is_no_checkpoint(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(SettingsError):
        load(wire.Load(str(tmp_path), "float32", 1))
    model, seconds = load(wire.Load(str(directory), "bfloat16", 1))
    assert str(model.backbone.dtype) == "torch.bfloat16" and seconds > 0
    batches = list(
        model.frames(FrameRequest("a", (1, 2), None, request(Checkpoint.open(directory)).sampling))
    )
    assert batches[-1].finish
