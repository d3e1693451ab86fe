from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from sessions.context import Context, ContextOptions
from sessions.events import (
    TERMINAL,
    Audio,
    AudioFormat,
    Cancelled,
    Done,
    Encoding,
    Event,
    Failed,
    Flushed,
    Words,
)
from sessions.output import LONGEST_MS
from sessions.playback import PlaybackClock
from sessions.runner import (
    HOLDS_S,
    IDLE_RELEASE_S,
    SENTENCE_GAP_S,
    SLICE_S,
    Conditioning,
    ContextRunner,
    Speech,
)
from telephony.dsp.pcm import decode
from tests import virtual
from tests.tone import RATE, ToneEngine
from tts_core.engine import SpeechChunk, SpeechRequest
from tts_core.errors import Busy, EngineError, LegClosed, LimitExceeded, UnknownVoice, VoxwireError
from tts_core.scheduler import Scheduler
from tts_core.text.alignment import Alignment
from tts_core.text.segment import Segment, TextMode, Utterance


class Plain:
    """Speaks the text as it stands."""

    async def normalise(self, segment: Segment) -> Utterance:
        spoken = segment.text if any(c.isalnum() for c in segment.text) else ""
        return Utterance(segment, spoken, segment.alignment if spoken else Alignment(()))


class Gate:
    """The tenant's limits."""

    def __init__(self) -> None:
        self.held = 0
        self.entered = 0
        self.refuse: VoxwireError | None = None
        self.charged = 0

    async def enter(self) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.held += 1
        self.entered += 1

    def leave(self) -> None:
        self.held -= 1

    async def charge(self, characters: int) -> None:
        self.charged += characters


class Watcher:
    def __init__(self) -> None:
        self.log: list[str] = []

    def started(self, context: Context) -> None:
        self.log.append("started")

    def first_audio(self, context: Context) -> None:
        self.log.append("first_audio")

    def underrun(self, context: Context, seconds: float) -> None:
        self.log.append("underrun")

    def ended(self, context: Context, event: Event) -> None:
        self.log.append(f"ended {type(event).__name__}")


class Desk:
    """A runner with everything around it, on a virtual loop."""

    def __init__(
        self,
        engine: ToneEngine | None = None,
        phrases: Any = None,
        conditioning: Conditioning | None = None,
        **options: Any,
    ) -> None:
        options.setdefault("format", AudioFormat(Encoding.MULAW, 8000))
        self.engine = engine or ToneEngine()
        self.scheduler = Scheduler(self.engine, virtual.clock)
        self.gate = Gate()
        self.watch = Watcher()
        self.events: list[tuple[float, Event]] = []
        self.sink_error: VoxwireError | None = None
        self.context = Context("c", ContextOptions(voice="tone", **options), virtual.clock)
        speech = Speech(self.scheduler, Plain(), self.engine.info, virtual.clock, self.watch)
        self.playback = PlaybackClock(self.context.options.format.rate, virtual.clock)
        self.runner = ContextRunner(
            self.context,
            speech,
            self.sink,
            self.playback,
            self.gate,
            phrases,
            conditioning=conditioning,
            salt="of acme",
        )
        self.runner.start()

    async def sink(self, event: Event) -> None:
        if self.sink_error is not None:
            raise self.sink_error
        self.events.append((virtual.clock(), event))

    def of(self, kind: type) -> list[Any]:
        return [e for _, e in self.events if isinstance(e, kind)]

    @property
    def audio_s(self) -> float:
        return float(sum(e.samples for e in self.of(Audio)) / self.context.options.format.rate)

    async def end(self) -> None:
        await asyncio.wait_for(self.runner.wait(), 3600)
        await self.scheduler.close()


def on_virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        virtual.run(test)

    run.__name__ = test.__name__
    return run


@on_virtual
async def test_speaks_text_in_order_with_words_and_exact_samples() -> None:
    desk = Desk()
    desk.runner.text("Hello there my friend. How are ")
    desk.runner.text("you today?")
    desk.runner.end()
    await desk.end()
    audio = desk.of(Audio)
    assert [a.seq for a in audio] == list(range(len(audio)))
    at = 0
    for a in audio:
        assert a.start_sample == at
        assert len(a.data) == a.samples
        at += a.samples
    done = desk.events[-1][1]
    assert isinstance(done, Done)
    assert done.total_samples == at
    words = [w for e in desk.of(Words) for w in e.words]
    source = desk.context.source
    assert " ".join(w.text for w in words) == "Hello there my friend. How are you today?"
    assert all(source[w.text_start : w.text_end] == w.text for w in words)
    assert words[-1].end <= at / 8000 + 1e-6
    assert done.stats.segments == 2
    assert desk.gate.held == 0
    assert desk.engine.running == 0
    assert desk.watch.log == ["started", "first_audio", "ended Done"]
    assert desk.gate.charged == sum(len(t) for t in desk.engine.spoken)


@on_virtual
async def test_words_come_before_the_audio_they_name() -> None:
    desk = Desk()
    desk.runner.text("One two three four five. Six seven eight nine ten.")
    desk.runner.end()
    await desk.end()
    sent = 0.0
    known: list[Any] = []
    for _, event in desk.events:
        if isinstance(event, Words):
            assert all(w.end > sent for w in event.words)
            known += event.words
        if isinstance(event, Audio):
            begun = [w for w in known if w.start < (event.start_sample + event.samples) / 8000]
            assert begun
            sent = (event.start_sample + event.samples) / 8000
    assert len(known) == 10


@on_virtual
async def test_never_runs_further_ahead_than_allowed() -> None:
    desk = Desk(run_ahead_s=1.0)
    desk.runner.text("word " * 60 + ".")
    desk.runner.end()
    await desk.end()
    first = next(t for t, e in desk.events if isinstance(e, Audio))
    for t, event in desk.events:
        if isinstance(event, Audio):
            ahead = (event.start_sample + event.samples) / 8000 - (t - first)
            assert ahead <= 1.0 + 0.1 + 1e-6
    assert not desk.context.stats.underruns


@on_virtual
async def test_a_context_that_is_failed_from_outside_ends_once_and_holds_nothing() -> None:
    desk = Desk(run_ahead_s=1.0)
    desk.runner.text("One two three four five six seven eight nine ten eleven twelve.")
    await asyncio.sleep(1.03)
    await desk.runner.fail(Busy("enough", retry_after=1.0))
    count = len(desk.events)
    event = desk.events[-1][1]
    assert isinstance(event, Failed)
    assert (event.error.code, event.error.retry_after) == ("busy", 1.0)
    await desk.runner.fail(Busy("again"))
    await asyncio.sleep(5)
    assert len(desk.events) == count
    assert desk.watch.log[-1] == "ended Failed"
    assert (desk.gate.held, desk.engine.running) == (0, 0)
    await desk.end()


@on_virtual
async def test_cancel_is_answered_at_once_and_nothing_follows() -> None:
    desk = Desk(run_ahead_s=1.0)
    desk.runner.text("One two three four five six seven eight nine ten eleven twelve.")
    desk.runner.end()
    await asyncio.sleep(1.03)
    before = virtual.clock()
    event = await desk.runner.cancel()
    assert isinstance(event, Cancelled)
    assert virtual.clock() - before <= 0.02
    assert desk.events[-1][1] is event
    count = len(desk.events)
    await asyncio.sleep(5)
    assert len(desk.events) == count
    assert await desk.runner.cancel() is None
    # 0.2 s a word: five words and a little have been heard.
    assert event.heard.text == "One two three four five"
    assert event.heard.text + event.heard.unheard == desk.context.source
    assert event.last_sample == sum(a.samples for a in desk.of(Audio))
    assert desk.gate.held == 0
    await asyncio.sleep(0)
    assert desk.engine.running == 0
    await desk.end()


@on_virtual
async def test_cancel_in_the_moment_that_text_comes_is_not_lost() -> None:
    for turns in range(6):
        desk = Desk()
        for _ in range(10):
            await asyncio.sleep(0)  # it waits for text
        desk.runner.text("Hello there.")
        for _ in range(turns):
            await asyncio.sleep(0)
        task = desk.runner._task
        async with asyncio.timeout(0.5):
            event = await desk.runner.cancel()
        assert event is not None
        assert task is not None
        assert task.cancelled()
        await desk.end()


@on_virtual
async def test_fifty_rapid_interruptions_leave_nothing_behind() -> None:
    engine = ToneEngine(work_s=0.01)
    for i in range(50):
        desk = Desk(engine)
        desk.runner.text("Some words to be spoken here, and then some more of them.")
        await asyncio.sleep(0.003 * i)
        await desk.runner.cancel()
        assert [type(e) for _, e in desk.events if isinstance(e, TERMINAL)] == [Cancelled]
        assert desk.gate.held == 0
        await desk.end()
    await asyncio.sleep(0.1)
    assert engine.running == 0


@on_virtual
async def test_an_engine_error_ends_the_context_with_its_code() -> None:
    desk = Desk()
    desk.engine.fail = EngineError("broken")
    desk.engine.fail_after_chunks = 2
    desk.runner.text("One two three four five six seven.")
    desk.runner.end()
    await desk.end()
    last = desk.events[-1][1]
    assert isinstance(last, Failed)
    assert last.error.code == "engine_error"
    assert desk.gate.held == 0


@pytest.mark.parametrize("error", [Busy("full", retry_after=1), LimitExceeded("too many", retry_after=2)])
def test_a_refusal_comes_at_once_in_one_terminal_event(error: VoxwireError) -> None:
    async def main() -> None:
        desk = Desk()
        desk.gate.refuse = error
        began = virtual.clock()
        desk.runner.text("Hello there, you.")
        await desk.end()
        assert virtual.clock() - began < 0.05
        assert [type(e) for _, e in desk.events] == [Failed]
        assert desk.of(Failed)[0].error is error
        assert desk.gate.held == 0

    virtual.run(main)


@on_virtual
async def test_the_scheduler_refuses_and_the_tenant_slot_goes_back() -> None:
    desk = Desk(ToneEngine(xrt=0.5))
    desk.runner.text("Hello there, you.")
    await desk.end()
    assert desk.of(Failed)[0].error.code == "busy"
    assert desk.gate.held == 0


@on_virtual
async def test_unspeakable_text_is_a_short_silence_and_a_normal_end() -> None:
    for text in ("...", " ", "?!"):
        desk = Desk()
        desk.runner.text(text)
        desk.runner.end()
        await desk.end()
        assert isinstance(desk.events[-1][1], Done), text
        assert 0.02 <= desk.audio_s <= 0.06
        assert set(b"".join(a.data for a in desk.of(Audio))) <= {0xFF, 0x7F}


@on_virtual
async def test_no_text_at_all_ends_without_audio() -> None:
    desk = Desk()
    desk.runner.end()
    await desk.end()
    assert [type(e) for _, e in desk.events] == [Done]


@on_virtual
async def test_flushed_comes_after_all_audio_before_it() -> None:
    desk = Desk(text=ContextOptions().with_mode(TextMode.SEGMENT).text)
    desk.runner.text("First part here.")
    desk.runner.flush(7)
    desk.runner.text("Second part here.")
    desk.runner.end()
    await desk.end()
    order = [e for _, e in desk.events if isinstance(e, Audio | Flushed)]
    mark = next(i for i, e in enumerate(order) if isinstance(e, Flushed))
    assert {e.segment for e in order[:mark] if isinstance(e, Audio)} == {1}
    assert {e.segment for e in order[mark + 1 :] if isinstance(e, Audio)} == {2}
    assert [e.flush_id for e in order if isinstance(e, Flushed)] == [7]


class LateEngine(ToneEngine):
    """Waits before it begins with its second text."""

    def __init__(self) -> None:
        super().__init__(work_s=0.0)
        self.asked: list[tuple[float, SpeechRequest]] = []
        self.go = asyncio.Event()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        self.asked.append((virtual.clock(), request))
        if len(self.asked) > 1:
            await self.go.wait()
        async for chunk in super().synthesize(request):
            yield chunk


@on_virtual
async def test_a_usual_pause_goes_with_the_speech_behind_it_and_nothing_else_waits() -> None:
    engine = LateEngine()
    desk = Desk(engine, text=ContextOptions().with_mode(TextMode.SEGMENT).text, run_ahead_s=10.0)
    desk.runner.text("This is the first part of what there is to say, and it is long enough.")
    desk.runner.text("Second part here.")
    await asyncio.sleep(0.1)
    lead = desk.playback.lead()
    assert lead > HOLDS_S
    # The next is late: what was made is with the listener, but for the resampler's tail.
    made = desk.context.stats.audio_s
    assert desk.audio_s == pytest.approx(made, abs=5e-3)
    # It is due when the listener has heard that and the pause.
    at, request = engine.asked[1]
    assert request.deadline == pytest.approx(at + lead + (virtual.clock() - at) + SENTENCE_GAP_S, abs=2e-3)
    before = len(desk.of(Audio))
    engine.go.set()
    desk.runner.end()
    await desk.end()
    assert desk.of(Audio)[before].samples > 8000 * SENTENCE_GAP_S  # the pause and more
    assert desk.audio_s == pytest.approx(desk.context.stats.audio_s + SENTENCE_GAP_S, abs=1e-3)


@on_virtual
async def test_a_segments_end_is_no_small_message_of_its_own() -> None:
    fmt = AudioFormat(Encoding.PCM_S16LE, 24000)
    options = ContextOptions().with_mode(TextMode.SEGMENT)
    desk = Desk(ToneEngine(work_s=0.0), text=options.text, format=fmt, run_ahead_s=4.0)
    for word in ("one", "two", "three", "four"):
        desk.runner.text(f"Here is part {word} of a very long answer indeed. ")
    desk.runner.end()
    await desk.end()
    for n in (2, 3, 4):  # the first begins with short ones
        ms = [e.samples // 24 for e in desk.of(Audio) if e.segment == n]
        assert SLICE_S * 1000 < max(ms) <= LONGEST_MS  # a slice and the pause before it
        assert len(ms) <= -(-sum(ms) // 800) + (n == 2)  # no more than their lengths ask
        assert ms[-1] > 100


@on_virtual
async def test_held_text_is_spoken_when_the_client_pauses() -> None:
    desk = Desk(max_buffer_delay_s=2.0)
    desk.runner.text("Let me look that up for you")
    await asyncio.sleep(1.9)
    assert not desk.of(Audio)
    await asyncio.sleep(0.3)
    assert desk.of(Audio)
    assert desk.engine.spoken == ["Let me look that up for you"]
    desk.runner.end()
    await desk.end()


@on_virtual
async def test_a_waiting_context_gives_its_slot_back_and_takes_it_again() -> None:
    desk = Desk()
    desk.runner.text("Hello there. ")
    desk.runner.flush()
    await asyncio.sleep(0.1)
    assert desk.gate.held == 1
    await asyncio.sleep(desk.audio_s + IDLE_RELEASE_S + 1)
    assert desk.gate.held == 0
    assert not desk.context.terminal
    desk.runner.text("And again.")
    desk.runner.end()
    await desk.end()
    assert desk.gate.entered == 2
    assert isinstance(desk.events[-1][1], Done)


@on_virtual
async def test_an_idle_context_ends_with_an_error() -> None:
    desk = Desk(idle_s=60.0)
    desk.runner.text("Hello there. ")
    await desk.end()
    assert desk.of(Failed)[0].error.code == "context_idle"


@on_virtual
async def test_a_gone_listener_ends_it_without_noise() -> None:
    desk = Desk()
    desk.runner.text("Hello there, my friend.")
    desk.sink_error = LegClosed("gone")
    await desk.end()
    assert desk.events == []
    assert desk.watch.log[-1] == "ended Cancelled"
    assert desk.gate.held == 0


@on_virtual
async def test_an_agent_learns_that_the_listener_is_gone() -> None:
    """On a call the audio goes to the leg and the events to the agent."""
    desk = Desk()
    heard: list[Event] = []

    async def sink(event: Event) -> None:
        if isinstance(event, Audio) and event.seq == 2:
            raise LegClosed("the caller hung up")
        heard.append(event)

    desk.runner._sink = sink
    desk.runner.text("Hello there, my friend, how are you.")
    await desk.end()
    assert isinstance(heard[-1], Cancelled)
    assert heard[-1].heard.text + heard[-1].heard.unheard == desk.context.source
    assert desk.watch.log[-1] == "ended Cancelled"
    assert desk.gate.held == 0


@on_virtual
async def test_an_underrun_is_counted_when_text_was_waiting() -> None:
    desk = Desk(ToneEngine(work_s=0.5))  # 0.5 s of work for 0.2 s of audio
    desk.runner.text("Hello there friend. And then some more text.")
    desk.runner.end()
    await desk.end()
    stats = desk.context.stats
    assert stats.underruns >= 1
    assert stats.underrun_s > 1.0
    assert stats.rtf > 1.0
    assert "underrun" in desk.watch.log


@on_virtual
async def test_a_slow_client_is_no_underrun() -> None:
    desk = Desk()
    desk.runner.text("Hello there friend. ")
    desk.runner.flush()
    await asyncio.sleep(10)
    desk.runner.text("More text now.")
    desk.runner.end()
    await desk.end()
    assert desk.context.stats.underruns == 0


@on_virtual
async def test_stats_tell_first_audio_and_leading_silence() -> None:
    desk = Desk(ToneEngine(work_s=0.02), lead_in_ms=100)
    await asyncio.sleep(1)
    desk.runner.text("One two three four. ")
    desk.runner.end()
    await desk.end()
    stats = desk.context.stats
    assert stats.first_segment == 0
    assert 0 <= stats.queue_wait < 0.01
    assert 0.0 <= stats.first_audio <= 0.08
    assert 0.1 <= stats.leading_silence <= 0.11
    assert stats.audio_s == pytest.approx(0.8)


class Cache:
    """A phrase cache in a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[SpeechChunk, ...]] = {}

    async def get(self, request: SpeechRequest) -> tuple[SpeechChunk, ...] | None:
        return self.kept.get(request.text)

    async def put(self, request: SpeechRequest, chunks: tuple[SpeechChunk, ...]) -> None:
        self.kept[request.text] = chunks


@on_virtual
async def test_a_cached_phrase_costs_the_engine_nothing_and_sounds_the_same() -> None:
    cache = Cache()
    said = []
    engine = ToneEngine()
    for _ in range(2):
        desk = Desk(engine, cache, cache=True)
        desk.runner.text("Welcome to Voxwire. How may I help?")
        desk.runner.end()
        await desk.end()
        await asyncio.sleep(0)
        said.append((b"".join(a.data for a in desk.of(Audio)), [e.words for e in desk.of(Words)]))
    assert said[0] == said[1]
    assert len(engine.spoken) == 2
    assert desk.context.stats.cached_segments == 2
    uncached = Desk(engine, cache)
    uncached.runner.text("Welcome to Voxwire.")
    uncached.runner.end()
    await uncached.end()
    assert uncached.context.stats.cached_segments == 0


@on_virtual
async def test_volume_never_clips_hard() -> None:
    desk = Desk(volume=2.0, format=AudioFormat(Encoding.PCM_F32LE, RATE))
    desk.runner.text("Loud words here.")
    desk.runner.end()
    await desk.end()
    audio = decode(b"".join(a.data for a in desk.of(Audio)), "pcm_f32le")
    assert 0.45 < abs(audio).max() < 1.0


@on_virtual
async def test_a_voice_of_the_tenants_own_goes_with_every_segment_until_it_is_gone() -> None:
    engine = ToneEngine(can_clone=True)
    voice = await engine.enroll(ToneEngine.tone(RATE, 660), RATE)
    asked = 0

    async def conditioning() -> bytes:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise UnknownVoice("no such voice", field="voice")
        return voice

    desk = Desk(engine, conditioning=conditioning)
    desk.runner.text("One two. Three four. Five six. Seven eight. ")
    desk.runner.end()
    await desk.end()
    assert engine.spoken == ["One two.", "Three four."]
    assert {r.conditioning for r in engine.requests} == {voice}
    assert {r.salt for r in engine.requests} == {"of acme"}
    (failed,) = desk.of(Failed)
    assert (failed.error.code, failed.stats.segments) == ("unknown_voice", 2)
    assert desk.audio_s == pytest.approx(0.8, abs=0.25)  # what was being spoken is spoken
    assert desk.gate.held == 0


@on_virtual
async def test_a_built_in_voice_has_no_conditioning() -> None:
    desk = Desk()
    desk.runner.text("One two.")
    desk.runner.end()
    await desk.end()
    assert [r.conditioning for r in desk.engine.requests] == [None]
