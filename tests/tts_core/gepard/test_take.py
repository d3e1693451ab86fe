from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import virtual
from tests.tts_core.gepard.scripted import PlainCodec, Script, ScriptedModel, numbers
from tts_core.engine import SpeechChunk
from tts_core.errors import EngineCrashed, EngineError
from tts_core.gepard.budget import FRAME_S, Budget
from tts_core.gepard.frames import FrameRequest
from tts_core.gepard.hunger import Hunger
from tts_core.gepard.marks import Marks
from tts_core.gepard.sampling import Sampling
from tts_core.gepard.silence import KEEP, MOST, WINDOW
from tts_core.gepard.speed import Lap, Speed
from tts_core.gepard.take import HOLD, Plan, Take
from tts_core.nanocodec import fsq

TEXT = "one two three four"
BUDGET = Budget(2.3, 100, 60)


class Try:
    """A take on a scripted model, with all that came of it."""

    def __init__(self, script: Script | None = None, *, step_s: float = FRAME_S / 15, **plan: Any) -> None:
        self.model = ScriptedModel(script or Script(), step_s=step_s)
        self.codec = PlainCodec()
        self.model.alive = self.codec.alive = True
        values = {"deadline": None, "again": False, "guard": True, "trim": 0, "pace": step_s} | plan
        budget = values.pop("budget", BUDGET)
        request = FrameRequest("r", (1, 2), None, Sampling(max_frames=budget.cap))
        speed = Speed(virtual.clock)
        self.take = Take(
            self.model,
            self.codec,
            Plan(request, budget, **values),
            marks=Marks(TEXT, 1000.0),
            lap=Lap(speed),
            clock=virtual.clock,
            hunger=Hunger(virtual.clock),
        )
        self.speed = speed
        self.chunks: list[SpeechChunk] = []

    async def run(self) -> Try:
        at = 0
        async with aclosing(self.take.chunks()) as chunks:
            async for chunk in chunks:
                assert chunk.start_sample == at
                assert not (self.chunks and self.chunks[-1].last)
                at += len(chunk.pcm)
                self.chunks.append(chunk)
        assert self.model.running == self.codec.open_streams == 0
        if not self.take.wants_again:
            assert self.chunks[-1].last
            assert self.take.samples == at
        return self

    @property
    def pcm(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.concatenate([chunk.pcm for chunk in self.chunks])


def on_virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        virtual.run(test)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_virtual
async def test_every_frame_is_heard_once_in_order_by_the_ramp() -> None:
    made = await Try(Script(40)).run()
    assert numbers(made.pcm) == [1 + n % 7 for n in range(40)]
    assert made.codec.sizes[:4] == [1, 2, 4, 8]
    assert not made.take.truncated
    assert [text for chunk in made.chunks for text in chunk.words] != []
    words = [TEXT[w.text_start : w.text_end] for chunk in made.chunks for w in chunk.words]
    assert words == TEXT.split()
    assert made.speed.xrt(1) > 10


@on_virtual
async def test_the_first_chunk_is_there_with_the_first_frame() -> None:
    made = Try(Script(40))
    began = virtual.clock()
    async with aclosing(made.take.chunks()) as chunks:
        chunk = await anext(chunks)
    assert len(chunk.pcm) == fsq.SAMPLES_PER_FRAME
    assert virtual.clock() - began == pytest.approx(made.model.step_s + made.codec.frame_s)


@on_virtual
async def test_closing_ends_the_request_and_the_stream_at_once() -> None:
    made = Try(Script(None))
    chunks = made.take.chunks()
    await anext(chunks)
    assert (made.model.running, made.codec.open_streams) == (1, 1)
    await chunks.aclose()
    assert (made.model.running, made.codec.open_streams) == (0, 0)

    made = Try(Script(None))
    reading = asyncio.ensure_future(made.run())
    await asyncio.sleep(made.model.step_s / 2)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (made.model.running, made.codec.open_streams) == (0, 0)


@on_virtual
async def test_what_does_not_stop_is_cut_at_its_bound_and_dies_away() -> None:
    made = await Try(Script(None)).run()
    assert made.take.truncated
    assert len(made.pcm) == 100 * fsq.SAMPLES_PER_FRAME
    assert made.pcm[-1] == 0
    assert abs(made.pcm[-1000]) > 0
    assert not made.take.wants_again


@on_virtual
async def test_belief_that_stays_flat_tightens_the_bound() -> None:
    made = await Try(Script(None, entropy=[0.99])).run()
    assert made.take.derailed
    assert made.take.truncated
    assert len(made.pcm) == 60 * fsq.SAMPLES_PER_FRAME
    late = await Try(Script(None, entropy=[0.5] * 80 + [0.99])).run()
    assert late.take.derailed
    assert 70 < len(late.take.frames) < 100  # what was said already is not taken back
    off = await Try(Script(None, entropy=[0.99]), guard=False).run()
    assert not off.take.derailed
    assert len(off.take.frames) == 100


@on_virtual
async def test_a_model_that_stops_in_time_is_let_off() -> None:
    made = await Try(Script(30, entropy=[0.99])).run()
    assert made.take.derailed
    assert not made.take.truncated
    assert len(made.pcm) == 30 * fsq.SAMPLES_PER_FRAME


@on_virtual
async def test_with_time_in_hand_a_bad_beginning_is_thrown_away_unheard() -> None:
    made = await Try(Script(None, entropy=[0.99]), again=True, deadline=virtual.clock() + 2).run()
    assert made.take.wants_again
    assert made.chunks == []
    assert made.codec.sizes == []
    assert len(made.take.frames) == HOLD

    good = await Try(Script(40), again=True, deadline=virtual.clock() + 2).run()
    assert good.codec.sizes[0] == HOLD
    assert len(good.pcm) == 40 * fsq.SAMPLES_PER_FRAME


@pytest.mark.parametrize(("lead", "step_s"), [(0.0, FRAME_S / 15), (0.9, FRAME_S / 15), (1.5, FRAME_S * 1.5)])
def test_without_time_nothing_is_held_back(lead: float, step_s: float) -> None:
    async def main() -> None:
        deadline = virtual.clock() + lead if lead else None
        made = await Try(Script(20, entropy=[0.99]), again=True, deadline=deadline, step_s=step_s).run()
        assert made.chunks
        assert made.codec.sizes[0] <= 8
        assert not made.take.wants_again

    virtual.run(main)


@on_virtual
async def test_a_model_that_slows_down_lets_go_of_what_was_held() -> None:
    began = virtual.clock()
    made = Try(Script(20), again=True, deadline=began + 1.5, step_s=0.2, pace=0.01)
    async with aclosing(made.take.chunks()) as chunks:
        await anext(chunks)
    assert 1.1 < virtual.clock() - began < 1.5


@on_virtual
async def test_silence_before_the_first_sound_is_left_out_and_the_count_goes_on() -> None:
    made = await Try(Script(20, silent=3), trim=MOST).run()
    assert made.take.trimmed == pytest.approx(3 * fsq.SAMPLES_PER_FRAME - KEEP, abs=WINDOW)
    assert len(made.pcm) == 20 * fsq.SAMPLES_PER_FRAME - made.take.trimmed
    ends = [w.sample_end for c in made.chunks for w in c.words]
    assert max(ends) <= len(made.pcm)


@on_virtual
async def test_speech_without_a_sound_is_tried_again_or_left_short() -> None:
    made = await Try(Script(5, silent=5), trim=MOST, again=True).run()
    assert made.take.wants_again
    made = await Try(Script(5, silent=5), trim=MOST).run()
    assert made.take.silent
    assert KEEP <= len(made.pcm) < KEEP + WINDOW
    assert len(made.chunks) == 1


@on_virtual
async def test_one_frame_is_one_last_chunk_or_two() -> None:
    made = await Try(Script(1)).run()
    assert [len(c.pcm) for c in made.chunks] == [fsq.SAMPLES_PER_FRAME, 0]
    made = await Try(Script(None), budget=Budget(0.1, 1, 1)).run()
    assert [len(c.pcm) for c in made.chunks] == [fsq.SAMPLES_PER_FRAME]


@on_virtual
async def test_who_reads_slowly_gets_large_chunks_and_does_not_make_us_look_slow() -> None:
    made = Try(Script(60))
    sizes = []
    async with aclosing(made.take.chunks()) as chunks:
        async for chunk in chunks:
            sizes.append(len(chunk.pcm) // fsq.SAMPLES_PER_FRAME)
            await asyncio.sleep(0.5)
    assert sizes == [1, 16, 16, 16, 11]
    assert made.speed.xrt(1) == 0


@on_virtual
async def test_failures_come_through_and_leave_nothing_open() -> None:
    for script, codec_error in (
        (Script(fail_at=5), None),
        (Script(fail_at=5, error=EngineError("no")), None),
        (Script(), EngineCrashed("codec")),
    ):
        made = Try(script)
        if codec_error:
            made.codec.fails.append(codec_error)
        with pytest.raises(EngineError):
            await made.run()
        assert made.model.running == made.codec.open_streams == 0


@on_virtual
async def test_a_model_that_ends_without_a_word_is_an_error() -> None:
    class Mute(ScriptedModel):
        async def generate(self, request: FrameRequest):  # type: ignore[no-untyped-def]
            async for batch in super().generate(request):
                yield batch
                return

    made = Try()
    model = Mute(Script())
    model.alive = True
    made.take._model = model
    with pytest.raises(EngineError, match="before the end"):
        await made.run()


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.none(), st.integers(1, 120)),
    st.integers(0, 12),
    st.floats(0.05, 1.5),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
    st.one_of(st.none(), st.floats(-1.0, 4.0)),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1000, MOST]),
)
def test_whatever_happens_frames_come_whole_in_order_and_the_end_once(
    frames: int | None,
    silent: int,
    speed: float,
    entropy: list[float],
    lead: float | None,
    again: bool,
    guard: bool,
    trim: int,
) -> None:
    async def main() -> None:
        deadline = None if lead is None else virtual.clock() + lead
        script = Script(frames, entropy, silent)
        made = Try(script, step_s=FRAME_S * speed, deadline=deadline, again=again, guard=guard, trim=trim)
        await made.run()
        take = made.take
        if take.wants_again:
            assert again
            assert not made.chunks
            assert take.derailed or take.truncated or take.silent
            return
        assert sum(chunk.last for chunk in made.chunks) == 1
        total = len(take.frames) * fsq.SAMPLES_PER_FRAME
        assert len(made.pcm) == total - take.trimmed
        assert take.trimmed <= trim
        assert len(take.frames) <= (100 if frames is None else min(frames, 100))
        assert take.truncated or len(take.frames) == min(frames or 0, 100)
        words = [w for chunk in made.chunks for w in chunk.words]
        assert [TEXT[w.text_start : w.text_end] for w in words] == TEXT.split()
        assert all(w.sample_end <= len(made.pcm) for w in words)
        if not take.truncated and not take.trimmed and frames:
            assert numbers(made.pcm) == [0 if n < silent else 1 + n % 7 for n in range(frames)]

    virtual.run(main)
