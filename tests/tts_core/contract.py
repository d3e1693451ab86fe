"""What every engine must do, whatever it is made of: the words of ``tts_core.engine.Engine`` as tests.

A test module of an engine makes a class of ``EngineContract`` with its own texts, and an ``engine`` fixture
of module scope that is running. Nothing here knows of an engine more than the contract says.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tts_core.engine import Engine, SpeechChunk, SpeechRequest
from tts_core.errors import BadRequest, EngineError, TextTooLong, UnknownVoice


async def until(check: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0)


def samples(chunks: list[SpeechChunk]) -> np.ndarray:
    return np.concatenate([c.pcm for c in chunks])


def speech(engine: Engine, request: SpeechRequest) -> Any:
    """The request's chunks, as an iterator that can be closed."""
    return engine.synthesize(request)


class EngineContract:
    """See the module."""

    text = "I can help you with that order right now, just one moment please."
    seconds = (2.0, 6.0)
    """How long ``text`` may take."""
    long = "This goes on and on, and it will take quite a while until all of it has been made. " * 40
    mute: tuple[str, ...] = ("", "   ", "— ...")
    """Texts without anything to say."""
    repeats = True
    """The same request without a seed gives the same samples."""

    def request(self, engine: Engine, text: str | None = None, **changes: Any) -> SpeechRequest:
        base = SpeechRequest("r", self.text if text is None else text, engine.info.voices[0].id)
        return replace(base, **changes)

    async def speak(self, engine: Engine, text: str | None = None, **changes: Any) -> list[SpeechChunk]:
        request = self.request(engine, text, **changes)
        return [chunk async for chunk in engine.synthesize(request)]

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        info = engine.info
        assert info.name
        assert info.revision
        assert 8000 <= info.native_rate <= 48000
        assert len({v.id for v in info.voices}) == len(info.voices) > 0
        primary = {tag.partition("-")[0] for tag in info.languages}
        assert {v.language.partition("-")[0] for v in info.voices} <= primary
        low, high = info.speed_range
        assert low < 1.0 < high
        capacity = engine.capacity()
        assert capacity.alive >= 1
        assert capacity.slots >= capacity.free
        assert capacity.xrt > 1

    async def test_it_has_the_methods_of_the_contract(self, engine: Engine) -> None:
        for name, member in inspect.getmembers(Engine, inspect.isfunction):
            if not name.startswith("_"):
                own = inspect.signature(getattr(type(engine), name))
                assert list(own.parameters) == list(inspect.signature(member).parameters), name

    async def test_it_speaks(self, engine: Engine) -> None:
        chunks = await self.speak(engine)
        pcm = samples(chunks)
        assert self.seconds[0] < len(pcm) / engine.info.native_rate < self.seconds[1]
        assert 0.2 < np.abs(pcm).max() < 1.0
        assert np.sqrt((pcm**2).mean()) > 0.04

    async def test_chunks_join_and_only_the_last_says_so(self, engine: Engine) -> None:
        chunks = await self.speak(engine)
        at = 0
        for chunk in chunks:
            assert chunk.pcm.dtype == np.float32
            assert chunk.pcm.ndim == 1
            assert chunk.start_sample == at
            at += len(chunk.pcm)
        assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]

    async def test_every_word_has_a_mark_in_order(self, engine: Engine) -> None:
        if not engine.info.word_marks:
            return
        chunks = await self.speak(engine)
        assert all(m.sample_start >= c.start_sample for c in chunks for m in c.words), "too late"
        marks = [mark for chunk in chunks for mark in chunk.words]
        assert [self.text[m.text_start : m.text_end] for m in marks] == self.text.split()
        at = 0
        for mark in marks:
            assert at <= mark.sample_start <= mark.sample_end
            at = mark.sample_end
        assert at <= len(samples(chunks))
        assert marks[-1].sample_end > 0.8 * len(samples(chunks))

    async def test_nothing_to_say_is_one_empty_last_chunk(self, engine: Engine) -> None:
        for text in self.mute:
            chunks = await self.speak(engine, text)
            assert [(len(c.pcm), c.words, c.last) for c in chunks] == [(0, (), True)], text

    async def test_a_seed_repeats(self, engine: Engine) -> None:
        one, two = [samples(await self.speak(engine, seed=7)) for _ in range(2)]
        np.testing.assert_array_equal(one, two)
        if self.repeats:
            one, two = [samples(await self.speak(engine)) for _ in range(2)]
            np.testing.assert_array_equal(one, two)

    async def test_speed(self, engine: Engine) -> None:
        low, high = engine.info.speed_range
        slow, normal, fast = [
            len(samples(await self.speak(engine, speed=s, seed=1))) for s in (low, 1.0, high)
        ]
        assert slow > 1.2 * normal > 1.4 * fast

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"speed": 0.01}, BadRequest),
            ({"speed": 100.0}, BadRequest),
            ({"speed": float("nan")}, BadRequest),
            ({"voice": "nobody"}, UnknownVoice),
            ({"conditioning": b"x"}, BadRequest),
            ({"text": "a" * 100_000}, TextTooLong),
        ],
    )
    async def test_what_it_cannot_do_is_refused(
        self, engine: Engine, changes: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            await anext(speech(engine, self.request(engine, **changes)))
        assert engine.capacity().queued == 0

    async def test_what_it_cannot_clone_it_says(self, engine: Engine) -> None:
        if not engine.info.can_clone:
            with pytest.raises(EngineError, match="clone"):
                await engine.enroll(np.zeros(10, np.float32), engine.info.native_rate)

    async def test_closing_the_iterator_frees_the_slot(self, engine: Engine) -> None:
        slots = engine.capacity().slots
        await until(lambda: engine.capacity().free == slots)
        running = [speech(engine, self.request(engine, self.long)) for _ in range(slots)]
        for chunks in running:
            assert len((await anext(chunks)).pcm)
        assert engine.capacity().free == 0
        waiting = asyncio.ensure_future(self.speak(engine, "Next."))
        for chunks in running:
            await chunks.aclose()
        assert (await waiting)[-1].last
        await until(lambda: engine.capacity().free == slots)

    async def test_a_reader_that_is_cancelled_leaves_nothing(self, engine: Engine) -> None:
        slots = engine.capacity().slots
        await until(lambda: engine.capacity().free == slots)
        before = len(asyncio.all_tasks())
        for turn in range(20):
            async with aclosing(speech(engine, self.request(engine, self.long))) as chunks:
                first = asyncio.ensure_future(anext(chunks))
                for _ in range(turn % 5):
                    await asyncio.sleep(0)
                if turn % 10 == 0:
                    await first
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
        await until(lambda: engine.capacity().free == slots)
        assert engine.capacity().queued == 0
        assert len(asyncio.all_tasks()) == before
        assert (await self.speak(engine))[-1].last

    async def test_more_than_it_has_slots_wait_and_are_all_spoken(self, engine: Engine) -> None:
        count = engine.capacity().slots * 2 + 1
        results = await asyncio.gather(*(self.speak(engine, "Hello there.", seed=3) for _ in range(count)))
        for chunks in results:
            np.testing.assert_array_equal(samples(chunks), samples(results[0]))
        await until(lambda: engine.capacity().free == engine.capacity().slots)
