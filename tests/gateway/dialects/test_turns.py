"""Turns told apart by order alone, without any dialect around them; in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.dialects.turns import Telling, Turn, Turns
from gateway.speaking import Voice
from gateway.spoken import base_options
from sessions.events import Audio, AudioFormat, Event
from sessions.principal import Principal
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import Busy, EngineCrashed, VoxwireError

SOMEBODY = Principal("default", "key")
WORD = 4800
"""Samples of a word at 24 kHz."""


class Listener:
    def __init__(self, gateway: Running, rate: int = 24000) -> None:
        self.told: list[str] = []
        self.samples = 0
        options = replace(base_options(gateway.services, SOMEBODY), format=AudioFormat(rate=rate))
        telling = Telling(self.audio, self.flushed, self.failed)
        self.turns = Turns(
            gateway.services,
            telling,
            dialect="deepgram",
            principal=SOMEBODY,
            options=options,
            voice=Voice("tone"),
        )

    async def audio(self, turn: Turn, event: Audio) -> None:
        if not self.told or self.told[-1] != f"audio {turn.number}":
            self.told.append(f"audio {turn.number}")
        self.samples += event.samples

    async def flushed(self, turn: Turn | None) -> None:
        self.told.append(f"flushed {turn.number if turn else '-'}")

    async def failed(self, turn: Turn, error: VoxwireError) -> None:
        self.told.append(f"{error.code} {turn.number}")


@on_gateway()
async def test_a_turn_is_over_when_its_flush_was_spoken(gateway: Running) -> None:
    listener = Listener(gateway)
    turns = listener.turns
    await turns.flush()
    turns.say(" ")
    assert turns.open is None
    turns.say("One two.")
    turns.say(" Three.")
    await turns.flush()
    await turns.wait()
    assert listener.told == ["flushed -", "audio 1", "flushed 1"]
    assert listener.samples >= 3 * WORD
    assert gateway.idle
    turns.say("Four.")
    await turns.flush()
    await turns.wait()
    assert listener.told[3:] == ["audio 2", "flushed 2"]


@on_gateway()
async def test_an_answer_to_a_flush_comes_behind_what_an_end_lets_go(gateway: Running) -> None:
    """The silence for what cannot be spoken, and what follows a tag that was never finished."""
    listener = Listener(gateway)
    for number, text in enumerate(("...", "<break", "One <b", "<<"), start=1):
        listener.turns.say(text)
        await listener.turns.flush()
        await asyncio.sleep(1)
        assert listener.told[-2:] == [f"audio {number}", f"flushed {number}"]
        assert listener.turns.open is None
        assert gateway.idle
    listener.turns.say("One two.")
    await listener.turns.flush()
    await asyncio.sleep(1)
    assert gateway.engine.spoken[-1] == "One two."


@pytest.mark.parametrize("rate", [8000, 22050, 48000])
@pytest.mark.parametrize("ends", [False, True])
def test_and_behind_the_tail_of_the_resampler(tmp_path: Path, rate: int, ends: bool) -> None:
    @on_gateway()
    async def body(gateway: Running) -> None:
        listener = Listener(gateway, rate)
        listener.turns.say("One two.")
        await listener.turns.flush()
        if ends:
            listener.turns.end()
        await listener.turns.wait()
        assert listener.told == ["audio 1", "flushed 1"]
        assert listener.samples >= 2 * WORD * rate // 24000

    body(tmp_path)


@on_gateway()
async def test_so_it_does_where_the_end_follows_the_flush(gateway: Running) -> None:
    listener = Listener(gateway)
    for number, text in enumerate(("...", "<break", "One <b", "<<", "One."), start=1):
        listener.turns.say(text)
        await listener.turns.flush()
        listener.turns.end()
        await listener.turns.wait()
        assert listener.told[2 * number - 2 :] == [f"audio {number}", f"flushed {number}"]
    assert gateway.idle


@on_gateway(lambda: ToneEngine(xrt=0.5))
async def test_the_flush_of_a_turn_that_was_refused_is_not_answered_r13(gateway: Running) -> None:
    """Its error was its end; a flush of nothing at all is answered as ever."""
    listener = Listener(gateway)
    for _ in range(2):
        with pytest.raises(Busy):
            listener.turns.say("One two.")
        await listener.turns.flush()
        assert listener.told == []
    await listener.turns.flush()
    assert listener.told == ["flushed -"]


@on_gateway()
async def test_clear_leaves_nothing_of_before(gateway: Running) -> None:
    listener = Listener(gateway)
    turns = listener.turns
    assert await turns.clear() is None
    turns.say("word " * 100)
    await turns.flush()
    while not listener.samples:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    cut = await turns.clear()
    assert cut is not None
    assert cut.heard.text + cut.heard.unheard == "word " * 100
    assert 0 < cut.heard.samples <= listener.samples
    samples = listener.samples
    await asyncio.sleep(30)
    assert listener.samples == samples
    assert listener.told == ["audio 1"]
    assert gateway.idle


@on_gateway()
async def test_an_end_speaks_what_was_said(gateway: Running) -> None:
    listener = Listener(gateway)
    assert listener.turns.end() is None
    listener.turns.say("One two three.")
    turn = listener.turns.end()
    assert turn is not None
    assert listener.turns.open is None
    await listener.turns.wait()
    assert listener.samples == turn.sent >= 3 * WORD


@on_gateway()
async def test_a_failure_ends_its_turn_alone_and_idleness_is_none(gateway: Running) -> None:
    listener = Listener(gateway)
    gateway.engine.fail = EngineCrashed("the voice failed")
    listener.turns.say("One two.")
    await listener.turns.flush()
    await listener.turns.wait()
    gateway.engine.fail = None
    listener.turns.say("Three.")
    await listener.turns.flush()
    await listener.turns.wait()
    assert listener.told == ["engine_crashed 1", "audio 2", "flushed 2"]
    listener.turns.say("Four.")  # never flushed: spoken after a pause, then the turn lapses without a word
    await asyncio.sleep(1000)
    assert listener.told[3:] == ["audio 3"]
    assert listener.turns.open is None
    assert gateway.idle


@on_gateway()
async def test_one_that_is_left_tells_nothing_more(gateway: Running) -> None:
    listener = Listener(gateway)
    listener.turns.say("word " * 100)
    while not listener.samples:
        await asyncio.sleep(0.01)
    await listener.turns.abort()
    assert listener.told == ["audio 1"]
    assert gateway.idle


@on_gateway()
async def test_who_waits_for_one_that_is_left_waits_no_longer(gateway: Running) -> None:
    turns = Listener(gateway).turns
    turns.say("word " * 100)
    turns.end()
    waiting = asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await turns.abort()
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.done()
    assert turns.turn is None


@on_gateway()
async def test_the_end_of_a_turn_is_told_last_and_another_may_begin_in_it(gateway: Running) -> None:
    listener = Listener(gateway)
    turns = listener.turns
    more = ["Four five."]

    async def ended(turn: Turn, event: Event) -> None:
        listener.told.append(f"{type(event).__name__} {turn.number}")
        assert turns.turn is None
        if more:
            turns.say(more.pop())
            await turns.flush()

    turns._telling = replace(turns._telling, ended=ended)
    turns.say("One two three.")
    await turns.flush()
    await turns.wait()
    assert listener.told == ["audio 1", "flushed 1", "Done 1", "audio 2", "flushed 2", "Done 2"]
    turns.say("Six.")
    await turns.clear()
    assert listener.told[6:] == ["Cancelled 3"]
    assert gateway.idle


@on_gateway()
async def test_a_speed_holds_from_the_next_segment_on(gateway: Running) -> None:
    turns = Listener(gateway).turns
    turns.say("One two. Three")
    while not gateway.engine.requests:
        await asyncio.sleep(0.01)
    turns.speed(1.5)
    turns.say(" four.")
    await turns.flush()
    await turns.wait()
    turns.say("Five.")
    await turns.flush()
    await turns.wait()
    assert [request.speed for request in gateway.engine.requests] == [1.0, 1.5, 1.5]
