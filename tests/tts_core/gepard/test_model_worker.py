"""The loop in a thread, with a model that counts, spoken to as its owner does."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.tts_core.gepard.cases import random_codes
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError
from tts_core.child.serve import Channel
from tts_core.errors import BadRequest, SettingsError, VoxwireError
from tts_core.gepard import model_wire as wire
from tts_core.gepard.frames import NO_CODES, Finish, FrameRequest
from tts_core.gepard.model_worker import Given, unknown, work
from tts_core.gepard.sampling import Sampling


class Counting:
    """Gives every request a frame a step, until its cap."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.steps = 0
        self.breaks = False

    @property
    def busy(self) -> bool:
        return bool(self.left)

    def begin(self, ident: int, request: FrameRequest) -> None:
        if request.ids == (7,):
            raise BadRequest("seven", field="text")
        if request.ids == (8,):
            raise ValueError("eight")
        self.left[ident] = request.sampling.max_frames

    def cancel(self, ident: int) -> None:
        self.left.pop(ident, None)

    def step(self) -> Given:
        self.steps += 1
        if self.breaks:
            raise RuntimeError("broken")
        parts: list[tuple[int, int, Finish]] = []
        failures: list[tuple[int, VoxwireError]] = []
        codes = [NO_CODES]
        for ident in list(self.left):
            self.left[ident] -= 1
            parts.append((ident, 1, "" if self.left[ident] else "length"))
            codes.append(random_codes(1, ident))
            if not self.left[ident]:
                del self.left[ident]
                failures.append((ident, SettingsError("late")))
        return Given(parts, np.concatenate(codes), np.zeros(len(parts), np.float32), failures)

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        if name == "steps":
            return [self.steps, *arguments]
        if name == "break":
            self.breaks = True
            return None
        raise unknown(name)


def load(options: Mapping[str, Any]) -> Counting:
    if options["refused"]:
        raise SettingsError("refused")
    return Counting()


class Other:
    """The owner's end, with the worker behind it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        self.channel = Channel(ours, wire.LANGUAGE)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(theirs,))
        self._thread.start()

    def _run(self, theirs: socket.socket) -> None:
        with theirs:
            try:
                work(theirs, load)
            except (EOFError, OSError, FrameError) as error:
                self.error = error

    def send(self, *messages: wire.Message) -> None:
        for message in messages:
            self.channel.send(message)

    def end(self) -> BaseException | None:
        """Hang up; what ended the worker."""
        self.channel.sock.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.end()


@pytest.fixture
def loaded(other: Other) -> Other:
    other.send(wire.Load({"refused": False}))
    ready, _ = other.channel.receive()
    assert isinstance(ready, wire.Ready) and ready.load_s >= 0
    return other


def ask(ident: int, frames: int, text: int = 1) -> wire.Message:
    return wire.Generate.of(ident, FrameRequest("r", (text,), None, Sampling(max_frames=frames)))[0]


def test_requests_get_their_frames_and_their_end(loaded: Other) -> None:
    loaded.send(ask(3, 2))
    finishes = []
    for _ in range(2):
        message, payload = loaded.channel.receive()
        assert isinstance(message, wire.Step) and message.busy_s > 0
        ((ident, batch),) = message.batches(payload)
        assert ident == 3 and np.array_equal(batch.codes, random_codes(1, 3))
        finishes.append(batch.finish)
    assert finishes == ["", "length"]
    failed, _ = loaded.channel.receive()
    assert failed == Failed(3, "bad_settings", "late")


def test_it_waits_while_there_is_nothing_to_do(loaded: Other) -> None:
    loaded.send(wire.Ask(1, "steps", (5,)), wire.Ask(2, "steps"))
    assert loaded.channel.receive()[0] == wire.Answer(1, [0, 5])
    assert loaded.channel.receive()[0] == wire.Answer(2, [0])


def test_a_cancelled_request_gives_nothing_more(loaded: Other) -> None:
    loaded.send(ask(1, 2000), wire.Cancel(1), wire.Cancel(9), wire.Ask(2, "steps"))
    while isinstance(message := loaded.channel.receive()[0], wire.Step):
        pass
    assert isinstance(message, wire.Answer)
    loaded.send(wire.Ask(3, "steps"))
    assert loaded.channel.receive()[0] == wire.Answer(3, message.value)


def test_what_cannot_be_served_is_told(loaded: Other, caplog: pytest.LogCaptureFixture) -> None:
    loaded.send(ask(4, 1, text=7), ask(5, 1, text=8), wire.Ask(6, "nothing"))
    assert loaded.channel.receive()[0] == Failed(4, "bad_request", "seven", "text")
    with caplog.at_level(logging.CRITICAL):
        assert loaded.channel.receive()[0] == Failed(5, "engine_error", "the model failed on the request")
    failed, _ = loaded.channel.receive()
    assert isinstance(failed, Failed) and failed.id == 6 and "nothing" in failed.message


def test_a_model_that_fails_ends_the_worker(loaded: Other) -> None:
    loaded.send(wire.Ask(1, "break"))
    loaded.channel.receive()
    loaded.send(ask(2, 5))
    with pytest.raises(EOFError):
        loaded.channel.receive()
    assert loaded.end() is None


def test_a_model_that_cannot_be_loaded(other: Other) -> None:
    other.send(wire.Load({"refused": True}))
    assert other.channel.receive()[0] == Failed(0, "bad_settings", "refused")
    with pytest.raises(EOFError):
        other.channel.receive()


def test_an_owner_that_hangs_up(loaded: Other) -> None:
    loaded.send(ask(1, 2000))
    loaded.channel.receive()
    assert isinstance(loaded.end(), EOFError | OSError)


@pytest.mark.parametrize("late", [False, True])
def test_messages_out_of_place(other: Other, late: bool) -> None:
    if late:
        other.send(wire.Load({"refused": False}))
        other.channel.receive()
    other.send(wire.Ready(1.0))
    with pytest.raises(EOFError):
        other.channel.receive()
    assert isinstance(other.end(), FrameError)
