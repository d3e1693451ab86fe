"""The scheduler and long texts: asked for in parts, spoken as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from tests.tts_core.test_scheduler import ScriptedEngine, request, speak, start
from tests.virtual import clock, run
from tts_core.engine import SpeechChunk, SpeechRequest, WordMark
from tts_core.parts import parts
from tts_core.scheduler import Scheduler

LONG = "and so on, " * 50


def test_a_long_text_is_asked_for_in_parts_and_comes_as_one() -> None:
    class Marking(ScriptedEngine):
        """Marks the first word of each request."""

        async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
            asked.append(request)
            async for chunk in super().synthesize(request):
                yield replace(chunk, words=() if chunk.start_sample else (WordMark(0, 3, 0, 100),))

    asked: list[SpeechRequest] = []

    async def main() -> None:
        scheduler = Scheduler(Marking(audio=3.0), clock)
        scheduler.admit("s")
        spoken = [c async for c in scheduler.speak("s", request("r", LONG, deadline=clock()))]
        assert len(asked) == len(parts(LONG)) == 3
        assert " ".join(r.text for r in asked) == LONG
        assert asked[1].continues.endswith("so on, ")
        # The later parts are due when what was made before has been heard: three seconds each.
        due = [r.deadline for r in asked]
        assert None not in due
        assert due[2] - due[1] == pytest.approx(3.0)  # type: ignore[operator]
        assert [c.start_sample for c in spoken] == [1000 * i for i in range(9)]
        assert [c.last for c in spoken] == [False] * 8 + [True]
        marks = [w for c in spoken for w in c.words]
        assert [LONG[w.text_start : w.text_end] for w in marks] == ["and"] * 3
        assert [(w.sample_start, w.sample_end) for w in marks] == [(0, 100), (3000, 3100), (6000, 6100)]
        assert scheduler.stats.running == scheduler.stats.queued == 0

    run(main)


def test_between_the_parts_of_a_long_text_others_are_served() -> None:
    async def main() -> None:
        engine = ScriptedEngine(work=0.5)
        scheduler = Scheduler(engine, clock)
        for stream in "ab":
            scheduler.admit(stream)
        long = start([speak(scheduler, "a", "long", LONG, deadline=clock())])
        await asyncio.sleep(0)
        short = start([speak(scheduler, "b", "short", deadline=clock() + 0.1)])
        await asyncio.gather(*long, *short)
        assert engine.started == ["long.0", "short", "long.1", "long.2"]

    run(main)


def test_a_long_text_that_is_given_up_asks_for_no_further_part() -> None:
    async def main() -> None:
        engine = ScriptedEngine()
        scheduler = Scheduler(engine, clock)
        scheduler.admit("s")
        chunks = scheduler.speak("s", request("r", LONG))
        for _ in range(4):
            await anext(chunks)
        await chunks.aclose()
        await asyncio.sleep(1)
        assert engine.started == engine.closed == ["r.0", "r.1"]
        assert scheduler.stats.running == scheduler.stats.queued == 0

    run(main)
