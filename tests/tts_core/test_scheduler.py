"""Admission, order, fairness and ends, with a scripted engine on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual import clock, run
from tts_core.engine import Capacity, EngineInfo, SpeechChunk, SpeechRequest, WordMark
from tts_core.errors import Busy, Draining, EngineCrashed, EngineError, EngineTimeout, LimitExceeded
from tts_core.scheduler import TOGETHER_S, Scheduler

RATE = 1000


class ScriptedEngine:
    """Takes ``work`` seconds for each request and gives ``audio`` seconds in three chunks.

    The text of a request may say what to do: "hang", "stall" (after the first chunk), "crash", "crash-late",
    "bug", "cut" (ends without a last chunk).
    """

    def __init__(
        self,
        slots: int = 1,
        xrt: float = 100.0,
        work: float = 0.1,
        audio: float = 1.0,
        alive: int | None = None,
    ) -> None:
        self.info = EngineInfo("scripted", "1", RATE, ())
        self.slots, self.xrt, self.work, self.audio = slots, xrt, work, audio
        self.alive = slots if alive is None else alive
        self.running = 0
        self.most = 0
        self.started: list[str] = []
        self.finished: list[str] = []
        self.closed: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def enroll(self, reference: object, rate: int) -> bytes:
        return b""

    def capacity(self) -> Capacity:
        return Capacity(self.xrt, self.slots, self.slots - self.running, 0, self.alive)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        self.started.append(request.id)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            part = int(self.audio * RATE / 3)
            for k in range(3):
                if request.text == "hang" or (request.text == "stall" and k == 1):
                    await asyncio.Event().wait()
                await asyncio.sleep(self.work / 3)
                if request.text == "crash" or (request.text == "crash-late" and k == 1):
                    raise EngineCrashed("the engine died")
                if request.text == "bug":
                    raise ValueError("a secret of the library")
                if request.text == "cut" and k == 2:
                    return
                if k == 2:
                    self.finished.append(request.id)
                yield SpeechChunk(np.zeros(part, np.float32), k * part, last=k == 2)
        finally:
            self.running -= 1
            self.closed.append(request.id)


def request(name: str, text: str = "", deadline: float | None = None) -> SpeechRequest:
    return SpeechRequest(name, text, "v", deadline=deadline)


async def speak(
    scheduler: Scheduler, stream: str, name: str, text: str = "", deadline: float | None = None
) -> int:
    return len([c async for c in scheduler.speak(stream, request(name, text, deadline))])


def start(coroutines: list[Coroutine[Any, Any, int]]) -> list[asyncio.Task[int]]:
    return [asyncio.ensure_future(c) for c in coroutines]


def refused(scheduler: Scheduler, stream: str) -> Busy:
    with pytest.raises(Busy) as caught:
        scheduler.admit(stream)
    assert caught.value.retry_after is not None
    assert 0.5 <= caught.value.retry_after <= 5
    return caught.value


# -- admission ----------------------------------------------------------------------------------------


def test_as_many_streams_as_the_measured_speed_keeps_in_real_time() -> None:
    async def main() -> None:
        scheduler = Scheduler(ScriptedEngine(slots=4, xrt=10), clock, headroom=2.0)
        for i in range(5):
            scheduler.admit(f"s{i}")
        refused(scheduler, "s5")
        with pytest.raises(Busy):
            scheduler.check()
        scheduler.release("s0")
        scheduler.check()  # promises nothing
        scheduler.admit("s5")
        stats = scheduler.stats
        assert (stats.active, stats.admitted, stats.refused, stats.needed, stats.xrt) == (5, 6, 2, 10, 10)

    run(main)


def test_the_limit_follows_the_measure() -> None:
    async def main() -> None:
        engine = ScriptedEngine(slots=2, xrt=4)
        scheduler = Scheduler(engine, clock, headroom=2.0)
        scheduler.admit("a")
        scheduler.admit("b")
        refused(scheduler, "c")
        engine.xrt = 6
        scheduler.admit("c")
        engine.xrt = 2  # the machine got slower: the admitted stay, nobody else comes
        refused(scheduler, "d")
        assert scheduler.stats.active == 3

    run(main)


def test_before_any_measure_only_what_runs_side_by_side_is_promised() -> None:
    async def main() -> None:
        scheduler = Scheduler(ScriptedEngine(slots=2, xrt=0.0), clock)
        scheduler.admit("a")
        scheduler.admit("b")
        refused(scheduler, "c")

    run(main)


def test_a_hard_cap_holds_on_top() -> None:
    async def main() -> None:
        scheduler = Scheduler(ScriptedEngine(xrt=1000), clock, max_streams=1)
        scheduler.admit("a")
        scheduler.admit("a")  # the same stream again is no second one
        refused(scheduler, "b")
        scheduler.release("unknown")
        scheduler.release("a")
        scheduler.admit("b")

    run(main)


def test_a_long_predicted_wait_refuses() -> None:
    async def main() -> None:
        engine = ScriptedEngine(slots=1, xrt=1000, work=1.0)
        scheduler = Scheduler(engine, clock, max_wait_s=1.5)
        scheduler.admit("warm")
        for i in range(20):
            await speak(scheduler, "warm", f"w{i}")
        assert scheduler.stats.predicted_wait_s == 0
        # The service time is known to be about 1 s now; each admitted stream will ask for one segment first.
        scheduler.admit("a")
        assert 0.8 < scheduler.stats.predicted_wait_s < 1.2
        scheduler.admit("b")
        assert 1.6 < scheduler.stats.predicted_wait_s < 2.4
        refused(scheduler, "c")
        # Segments due much later are not in the way of one that is due now.
        far = clock() + 100
        tasks = start([speak(scheduler, s, f"{s}1", deadline=far) for s in ("a", "b", "warm")])
        await asyncio.sleep(0)
        assert scheduler.stats.queued == 2
        assert scheduler.stats.predicted_wait_s < 1.2
        scheduler.admit("c")
        await asyncio.gather(*tasks)

    run(main)


def test_not_alive_not_ready_and_draining_refuse() -> None:
    async def main() -> None:
        engine = ScriptedEngine(alive=0)
        scheduler = Scheduler(engine, clock)
        refused(scheduler, "a")
        engine.alive = 1
        scheduler.set_ready(False)
        refused(scheduler, "a")
        scheduler.set_ready(True)
        scheduler.admit("a")
        scheduler.set_draining()
        assert scheduler.draining
        with pytest.raises(Draining):
            scheduler.admit("b")
        assert await speak(scheduler, "a", "goes on") == 3
        idle = [scheduler.idle]
        scheduler.release("a")
        idle.append(scheduler.idle)
        assert idle == [False, True]
        scheduler.set_draining(False)
        scheduler.admit("b")

    run(main)


def test_admission_never_oversells_at_any_speed() -> None:
    @settings(max_examples=50)
    @given(st.floats(0.1, 200), st.floats(1, 4), st.integers(1, 60))
    def check(xrt: float, headroom: float, asks: int) -> None:
        async def main() -> None:
            scheduler = Scheduler(ScriptedEngine(slots=100, xrt=xrt), clock, headroom=headroom)
            for i in range(asks):
                try:
                    scheduler.admit(f"{i}")
                except Busy:
                    pass
            active = scheduler.stats.active
            assert active * headroom <= xrt
            assert active == asks or (active + 1) * headroom > xrt

        run(main)

    check()


# -- order and fairness -------------------------------------------------------------------------------


def test_no_more_in_flight_than_the_engine_has_slots() -> None:
    async def main() -> None:
        engine = ScriptedEngine(slots=3)
        scheduler = Scheduler(engine, clock)
        names = [f"s{i}" for i in range(10)]
        for name in names:
            scheduler.admit(name)
        await asyncio.gather(*start([speak(scheduler, n, n) for n in names]))
        assert engine.most == 3
        assert scheduler.stats.finished == 10
        # Ten requests of 0.1 s, three at a time.
        assert clock() - 1000 == pytest.approx(0.4)

    run(main)


def test_the_earliest_deadline_goes_first() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        now = clock()
        due = {"busy": 0.0, "d9": 9.0, "d3": 3.0, "d5": 5.0, "none": None, "d05": 0.5}
        for name in due:
            scheduler.admit(name)
        await asyncio.gather(
            *start([speak(scheduler, n, n, deadline=None if d is None else now + d) for n, d in due.items()])
        )
        # Without a deadline a segment is due 1 s after it came to the head of its stream.
        assert engine.started == ["busy", "d05", "none", "d3", "d5", "d9"]

    run(main)


def test_segments_of_a_stream_keep_their_order() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        scheduler.admit("a")
        # Deadlines that contradict the order of the text do not change it.
        await asyncio.gather(
            *start([speak(scheduler, "a", f"{i}", deadline=clock() + 10 - i) for i in range(5)])
        )
        assert engine.started == ["0", "1", "2", "3", "4"]

    run(main)


def test_a_long_text_does_not_crowd_out_a_later_stream() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        scheduler.admit("long")
        tasks = start([speak(scheduler, "long", f"long{i}") for i in range(50)])
        await asyncio.sleep(2.0)
        scheduler.admit("new")
        tasks += start([speak(scheduler, "new", "new0")])
        await asyncio.gather(*tasks)
        # Each head of the long stream is due 1.5 s after it became the head, and so is the new stream's.
        assert engine.started.index("new0") <= 22

    run(main)


def test_streams_without_deadlines_take_turns() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        for name in "ab":
            scheduler.admit(name)
        tasks = start([speak(scheduler, n, f"{n}{i}") for n in "ab" for i in range(6)])
        await asyncio.gather(*tasks)
        assert [n[0] for n in engine.started] == list("ab" * 6)

    run(main)


def test_one_stream_has_at_most_its_share_of_the_slots() -> None:
    async def main() -> None:
        engine = ScriptedEngine(slots=4)
        scheduler = Scheduler(engine, clock, per_stream=2)
        scheduler.admit("a")
        tasks = start([speak(scheduler, "a", f"{i}") for i in range(6)])
        await asyncio.gather(*tasks)
        assert engine.most == 2

    run(main)


def test_the_pending_segments_of_a_stream_are_bounded() -> None:
    async def main() -> None:
        scheduler = Scheduler(ScriptedEngine(), clock, max_pending=3)
        scheduler.admit("a")
        tasks = start([speak(scheduler, "a", f"{i}") for i in range(3)])
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded):
            await speak(scheduler, "a", "one too many")
        await asyncio.gather(*tasks)
        assert await speak(scheduler, "a", "now") == 3

    run(main)


# -- ends ---------------------------------------------------------------------------------------------


def test_only_admitted_streams_speak() -> None:
    async def main() -> None:
        with pytest.raises(EngineError, match="not been admitted"):
            await speak(Scheduler(ScriptedEngine(), clock), "nobody", "x")

    run(main)


def test_closing_the_iterator_stops_the_engine_and_frees_the_slot() -> None:
    async def main() -> None:
        engine = ScriptedEngine(work=30)
        scheduler = Scheduler(engine, clock, first_chunk_s=60, queue_s=60)
        scheduler.admit("a")
        scheduler.admit("b")
        chunks = scheduler.speak("a", request("long"))
        await anext(chunks)
        other = start([speak(scheduler, "b", "next")])
        await asyncio.sleep(1)
        assert scheduler.stats.queued == 1
        before = clock()
        await chunks.aclose()
        for _ in range(4):
            await asyncio.sleep(0)
        assert clock() == before
        assert engine.closed == ["long"]
        assert engine.started == ["long", "next"]
        await asyncio.gather(*other)
        assert scheduler.stats.aborted == 1

    run(main)


def test_an_abandoned_segment_leaves_the_queue_at_once() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        scheduler.admit("a")
        tasks = start([speak(scheduler, "a", f"{i}") for i in range(4)])
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(tasks[2], return_exceptions=True)
        assert scheduler.stats.queued == 2
        await asyncio.gather(*tasks, return_exceptions=True)
        assert engine.started == ["0", "1", "3"]

    run(main)


def test_a_hundred_aborts_at_any_moment_leave_nothing() -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.floats(0, 0.6), min_size=1, max_size=100), st.integers(1, 4))
    def check(moments: list[float], slots: int) -> None:
        async def main() -> None:
            engine = ScriptedEngine(slots=slots, xrt=1000)
            scheduler = Scheduler(engine, clock, max_wait_s=100)
            tasks = []
            for i, moment in enumerate(moments):
                scheduler.admit(f"{i % 7}")
                task = asyncio.ensure_future(speak(scheduler, f"{i % 7}", f"{i}"))
                asyncio.get_running_loop().call_later(moment, task.cancel)
                tasks.append(task)
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for i in range(7):
                scheduler.release(f"{i}")
            assert scheduler.idle
            assert engine.running == 0
            assert sorted(engine.started) == sorted(engine.closed)
            stats = scheduler.stats
            assert (stats.active, stats.running, stats.queued, stats.failed) == (0, 0, 0, 0)

        run(main)

    check()


def test_a_slow_reader_holds_no_slot() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        scheduler.admit("slow")
        scheduler.admit("b")
        chunks = scheduler.speak("slow", request("slow"))
        await anext(chunks)
        await asyncio.sleep(1)
        assert scheduler.stats.running == 0
        assert await speak(scheduler, "b", "b") == 3
        assert [len(c.pcm) async for c in chunks] == [666]

    run(main)


def test_the_buffer_of_a_slow_reader_is_bounded() -> None:
    async def main() -> None:
        engine = ScriptedEngine(audio=30)  # 10 s a chunk
        scheduler = Scheduler(engine, clock, buffer_s=8)
        scheduler.admit("slow")
        chunks = scheduler.speak("slow", request("slow"))
        first = await anext(chunks)
        await asyncio.sleep(10)
        assert engine.finished == []
        rest = [c async for c in chunks]
        assert [c.start_sample for c in (first, *rest)] == [0, 10_000, 20_000]
        assert engine.finished == ["slow"]

    run(main)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("crash", EngineCrashed, "the engine died"),
        ("crash-late", EngineCrashed, "the engine died"),
        ("bug", EngineError, "the engine failed"),
        ("cut", EngineError, "stopped before the end"),
        ("hang", EngineTimeout, "no audio in time"),
        ("stall", EngineTimeout, "no audio in time"),
    ],
)
def test_a_failing_segment_fails_alone(text: str, error: type[Exception], words: str) -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock, first_chunk_s=5)
        scheduler.admit("a")
        scheduler.admit("b")
        bad, good = start([speak(scheduler, "a", "bad", text), speak(scheduler, "b", "good")])
        with pytest.raises(error, match=words) as caught:
            await bad
        assert "secret" not in str(caught.value)
        assert await good == 3
        assert clock() - 1000 < 5.5
        assert scheduler.stats.failed == 1
        assert engine.running == 0

    run(main)


def test_a_segment_that_finds_no_slot_times_out() -> None:
    async def main() -> None:
        scheduler = Scheduler(ScriptedEngine(work=1000), clock, first_chunk_s=1e6, queue_s=10)
        scheduler.admit("a")
        scheduler.admit("b")
        long = start([speak(scheduler, "a", "long")])
        await asyncio.sleep(0)
        with pytest.raises(EngineTimeout, match="no time"):
            await speak(scheduler, "b", "late", deadline=clock() + 5)
        assert clock() - 1000 == pytest.approx(15)
        assert scheduler.stats.queued == 0
        long[0].cancel()
        await asyncio.gather(*long, return_exceptions=True)
        await asyncio.sleep(0)

    run(main)


def test_close_ends_waiting_and_running_segments() -> None:
    async def main() -> None:
        engine = ScriptedEngine(work=1000)
        scheduler = Scheduler(engine, clock, first_chunk_s=1e6, queue_s=1e6)
        scheduler.admit("a")
        tasks = start([speak(scheduler, "a", f"{i}") for i in range(3)])
        await asyncio.sleep(1)
        await scheduler.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, EngineError)
        assert engine.running == 0
        with pytest.raises(Draining):
            scheduler.admit("b")
        await scheduler.close()

    run(main)


class Piecewise(ScriptedEngine):
    """Gives pieces of so many samples, their number as a sample and a word in each, one every 10 ms."""

    def __init__(self, pieces: list[int]) -> None:
        super().__init__()
        self.pieces = pieces

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        at = 0
        for k, samples in enumerate(self.pieces):
            await asyncio.sleep(0.01)
            word = (WordMark(k, k + 1, at, at + samples),)
            yield SpeechChunk(np.full(samples, k, np.float32), at, word, last=k == len(self.pieces) - 1)
            at += samples


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 1200), min_size=1, max_size=12),
    st.lists(st.sampled_from([0.0, 0.02, 0.5]), min_size=12, max_size=12),
)
def test_a_reader_who_is_behind_gets_all_that_is_there_at_once_but_not_too_much(
    pieces: list[int], pauses: list[float]
) -> None:
    async def main() -> None:
        scheduler = Scheduler(Piecewise(pieces), clock)
        scheduler.admit("a")
        got: list[SpeechChunk] = []
        began = clock()
        async for chunk in scheduler.speak("a", request("r")):
            here = sum(10 * (k + 1) < (clock() - began) * 1000 - 1e-6 for k in range(len(pieces)))
            told = sum(len(c.words) for c in got)
            size, fits = len(chunk.pcm), len(chunk.words)
            # As many as there are, unless one more would be too long.
            assert told + fits >= here or size + pieces[told + fits] > TOGETHER_S * RATE
            assert fits == 1 or size <= TOGETHER_S * RATE
            got.append(chunk)
            await asyncio.sleep(pauses[len(got) % len(pauses)])
        whole = np.concatenate([chunk.pcm for chunk in got])
        assert np.array_equal(whole, np.repeat(np.arange(len(pieces), dtype=np.float32), pieces))
        assert [w.text_start for chunk in got for w in chunk.words] == list(range(len(pieces)))
        assert [chunk.start_sample for chunk in got] == [0, *np.cumsum([len(c.pcm) for c in got])[:-1]]
        assert [chunk.last for chunk in got] == [False] * (len(got) - 1) + [True]

    run(main)


def test_waits_are_recorded() -> None:
    async def main() -> None:
        waits: list[float] = []
        observe: Callable[[float], None] = waits.append
        scheduler = Scheduler(ScriptedEngine(), clock, on_wait=observe)
        scheduler.admit("a")
        scheduler.admit("b")
        await asyncio.gather(*start([speak(scheduler, "a", "0"), speak(scheduler, "b", "1")]))
        assert waits == pytest.approx([0.0, 0.1])
        a, b = scheduler.stream_stats("a"), scheduler.stream_stats("b")
        assert a is not None
        assert b is not None
        assert (a.requests, a.first_wait_s) == (1, 0.0)
        assert b.first_wait_s == pytest.approx(0.1)
        assert 0 < scheduler.stats.queue_wait_s < 0.1
        scheduler.release("a")
        assert scheduler.stream_stats("a") is None

    run(main)
