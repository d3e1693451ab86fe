"""The order of work: nothing lost, nothing twice, in order, in bounded batches, nobody left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tts_core.nanocodec.batcher import MAX_PIECE, Batch, Batcher
from tts_core.nanocodec.fsq import Codes


def numbered(start: int, count: int) -> Codes:
    """Frames that say where they stand in their stream, modulo 256."""
    codes = np.zeros((count, 32), np.uint8)
    codes[:, 0] = np.arange(start, start + count) % 256
    return codes


def work(batcher: Batcher, batch: Batch) -> list[Any]:
    """A decoder whose state counts frames, and whose sample is the frame's number."""
    samples = batch.codes[:, :, 0].astype(np.float32)
    return batcher.done(batch, samples, [state + batch.codes.shape[1] for state in batch.states])


class Crowd(RuleBasedStateMachine):
    LIMIT = 24

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(self.LIMIT)
        self.given: dict[int, int] = {}
        self.got: dict[int, int] = {}
        self.waiting: dict[int, list[tuple[int, int]]] = {}
        self.skipped: dict[int, int] = {}
        self.ids = 0

    @rule(stream=st.integers(1, 5), count=st.integers(1, 40))
    def submit(self, stream: int, count: int) -> None:
        if not self.batcher.knows(stream):
            self.batcher.open(stream, 0)
            self.given[stream] = self.got[stream] = 0
            self.waiting[stream] = []
        self.ids += 1
        self.batcher.submit(stream, self.ids, numbered(self.given[stream], count))
        self.waiting[stream].append((self.ids, count))
        self.given[stream] += count

    @rule(stream=st.integers(1, 5))
    def close(self, stream: int) -> None:
        self.batcher.close(stream)
        self.waiting.pop(stream, None)
        self.skipped.pop(stream, None)

    @precondition(lambda self: any(self.waiting.values()))
    @rule()
    def step(self) -> None:
        batch = self.batcher.next()
        assert batch is not None
        count = batch.codes.shape[1]
        assert 1 <= count <= MAX_PIECE
        assert len(batch.streams) * count <= max(self.LIMIT, count)
        assert len(set(batch.streams)) == len(batch.streams)
        for codes, state in zip(batch.codes, batch.states, strict=True):
            assert np.array_equal(codes, numbered(int(state), count))
        for stream, waiting in self.waiting.items():
            self.skipped[stream] = self.skipped.get(stream, 0) + 1 if waiting else 0
        for stream in batch.streams:
            self.skipped[stream] = 0
        assert all(times <= 5 for times in self.skipped.values())
        for done in work(self.batcher, batch):
            request, frames = self.waiting[done.stream].pop(0)
            assert done.request == request
            expected = numbered(self.got[done.stream], frames)[:, 0]
            assert np.array_equal(done.samples, expected.astype(np.float32))
            self.got[done.stream] += frames

    @invariant()
    def it_knows_who_waits(self) -> None:
        assert len(self.batcher) == sum(bool(waiting) for waiting in self.waiting.values())
        assert self.batcher.streams == len(self.waiting)
        assert (self.batcher.next() is None) == (len(self.batcher) == 0)


TestCrowd = Crowd.TestCase


def test_equal_lengths_go_together() -> None:
    batcher = Batcher(16)
    for stream, count in ((1, 4), (2, 2), (3, 4), (4, 4)):
        batcher.open(stream, 0)
        batcher.submit(stream, stream, numbered(0, count))
    batch = batcher.next()
    assert batch is not None
    assert batch.streams == (1, 3, 4)
    work(batcher, batch)
    batch = batcher.next()
    assert batch is not None
    assert batch.streams == (2,)


def test_a_long_request_lets_others_in() -> None:
    batcher = Batcher(16)
    batcher.open(1, 0)
    batcher.submit(1, 1, numbered(0, 200))
    batcher.next()
    batcher.open(2, 0)
    batcher.submit(2, 2, numbered(0, 1))
    first = batcher.next()
    assert first is not None and first.streams == (1,)
    work(batcher, first)
    second = batcher.next()
    assert second is not None and second.streams == (2,)


@given(st.integers(1, 100))
def test_a_request_comes_back_whole(count: int) -> None:
    batcher = Batcher()
    batcher.open(1, 0)
    batcher.submit(1, 9, numbered(0, count))
    finished: list[Any] = []
    while (batch := batcher.next()) is not None:
        assert not finished
        finished = work(batcher, batch)
    assert [(done.request, len(done.samples)) for done in finished] == [(9, count)]
