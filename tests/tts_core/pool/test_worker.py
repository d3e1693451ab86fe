"""The worker's loop, in a thread of this process, over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tts_core.child.cases import ends, in_thread
from tests.tts_core.pool import toy
from tests.tts_core.pool.toy import RATE, Block, Worker
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError, numbers
from tts_core.child.serve import Channel
from tts_core.pool.wire import Audio, Cancel, Done, Ready, Speak

Ends = tuple[Channel[toy.Message], socket.socket]


@pytest.fixture
def pair() -> Iterator[Ends]:
    with ends(toy.LANGUAGE) as made:
        yield made


def answers(peer: Channel[toy.Message]) -> list[tuple[Any, memoryview]]:
    """What comes up to Done."""
    got = [peer.receive()]
    while not isinstance(got[-1][0], Done):
        got.append(peer.receive())
    return got


def test_it_loads_speaks_and_ends_with_the_socket(pair: Ends) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(toy.Configure())
    assert isinstance(peer.receive()[0], Ready)
    for _ in range(2):
        peer.send(Speak(3, "one two", "toy", 1.0, None))
        *audio, (done, _) = answers(peer)
        assert [m.last for m, _ in audio] == [False, True]
        assert [m.start for m, _ in audio] == [0, RATE // 4]
        assert [m.marks for m, _ in audio] == [
            ((0, 3, 0, RATE // 4),),
            ((4, 7, RATE // 4, RATE // 2),),
        ]
        assert all(len(numbers(payload, np.float32)) == RATE // 4 for _, payload in audio)
        assert done.audio_s == pytest.approx(0.5)
    peer.send(Speak(4, "...", "toy", 1.0, None))
    (empty, nothing), (done, _) = answers(peer)
    assert empty == Audio(4, 0, True, ())
    assert (len(nothing), done.audio_s) == (0, 0)
    peer.sock.close()
    thread.join(10)
    assert isinstance(errors[0], EOFError)


def test_a_cancel_stops_it_at_the_next_step(pair: Ends) -> None:
    peer, theirs = pair
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(toy.Configure())
    peer.receive()
    peer.send(Speak(8, "one pause two", "toy", 1.0, None))
    assert isinstance(peer.receive()[0], Audio)
    peer.send(Cancel(7))  # of a request that is over
    peer.send(Cancel(8))
    assert isinstance(peer.receive()[0], Done)
    peer.send(Speak(9, "one", "toy", 1.0, None))
    assert len(answers(peer)) == 2
    peer.sock.close()
    thread.join(10)


class Slow:
    """Blocks that come when the test says so."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.made = 0

    def speak(self, text: str, speed: float, seed: int | None, stop: Callable[[], bool]) -> Iterator[Block]:
        while True:
            self.go.acquire()
            self.made += 1
            yield Block(np.zeros(10, np.float32), (), False)


def test_what_is_made_after_a_cancel_is_at_most_one_block(pair: Ends) -> None:
    peer, theirs = pair
    slow = Slow()
    thread, _ = in_thread(lambda: Worker(theirs)._speak(Speak(7, "x", "toy", 1.0, None), {"toy": slow}))
    slow.go.release()
    assert isinstance(peer.receive()[0], Audio)
    peer.send(Cancel(7))
    slow.go.release(5)
    thread.join(10)
    assert slow.made <= 2
    peer.sock.setblocking(False)
    last: Any = None
    with pytest.raises(BlockingIOError):
        while True:
            last = peer.receive()[0]
    assert isinstance(last, Done)


def test_a_fault_is_told_in_our_words(pair: Ends) -> None:
    peer, theirs = pair
    in_thread(Worker(theirs).run)
    peer.send(toy.Configure())
    peer.receive()
    for text, words in (("fault", "the toy failed on this text"), ("refuse", "the voice is broken")):
        peer.send(Speak(5, text, "toy", 1.0, None))
        failed, done = peer.receive()[0], peer.receive()[0]
        assert failed == Failed(5, "engine_error", words)
        assert isinstance(done, Done)
    peer.sock.close()


def test_only_a_cancel_may_come_meanwhile(pair: Ends) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(toy.Configure())
    peer.receive()
    peer.send(Speak(5, "pause", "toy", 1.0, None))
    peer.send(Speak(6, "one", "toy", 1.0, None))
    thread.join(10)
    assert isinstance(errors[0], FrameError)


def test_it_says_that_it_cannot_load(pair: Ends) -> None:
    peer, theirs = pair
    in_thread(Worker(theirs).run)
    peer.send(toy.Configure("no model here"))
    assert peer.receive()[0] == Failed(0, "engine_error", "no model here")
