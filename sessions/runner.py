"""Speaks a context: the asyncio driver around ``sessions.context``.

One task per context takes the work in order, has it normalised and spoken, and hands encoded audio, word
timings and the one terminal event to the sink. It sends no further ahead of the listener than the playback
clock allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from telephony.dsp.level import leading_silence
from tts_core.engine import EngineInfo, Samples, SpeechChunk, SpeechRequest
from tts_core.errors import ContextIdle, LegClosed, VoxwireError
from tts_core.text.normaliser import as_written
from tts_core.text.segment import Segment, Utterance

from .context import Context, ContextOptions, FlushMark, State, Work
from .events import Audio, Cancelled, Event, Flushed, Heard, Words
from .nobody import untold
from .output import LONGEST_MS, RAMP_MS, Marks, OutputStage
from .playback import Clock, Playback
from .words import WordAligner

log = logging.getLogger(__name__)

Sink = Callable[[Event], Awaitable[None]]
"""Takes a context's events in order. Raises LegClosed when nobody is there any more."""

Conditioning = Callable[[], Awaitable[bytes]]
"""What makes the engine speak with a voice of the tenant's own.

Asked for each segment: a voice that may not be used any more raises its VoxwireError, which ends the context.
The bytes are not kept here.
"""

SENTENCE_GAP_S = 0.18
CLAUSE_GAP_S = 0.04
"""Pauses between segments, on top of the few tens of milliseconds that the engine's trim leaves."""

IDLE_RELEASE_S = 2.0
"""A context that has been played out and waits for text gives its slot back after this long."""

SLICE_S = 0.8
"""Audio converted before others get their turn on the loop: a millisecond or two of work."""

BLOCK_SHARE = 0.3
"""A block is at most this share of the run-ahead: while one waits for room the listener has the rest."""

HOLDS_S = 1.5
"""With so much in hand a listener gets a usual pause with the first of the speech behind it."""

UNSPEAKABLE_S = 0.04
"""Silence for a context without anything to say: clients take zero audio for a failure (protocols.md 0.8)."""


class Speaker(Protocol):
    """What the runner needs of ``tts_core.scheduler.Scheduler``."""

    def admit(self, stream_id: str) -> None:
        """Promise continuous audio to one more stream; raises Busy or Draining."""
        ...

    def release(self, stream_id: str) -> None:
        """The stream is over."""
        ...

    def first_wait(self, stream_id: str) -> float:
        """Seconds that the stream's first segment waited for the engine; -1 before."""
        ...

    def speak(self, stream_id: str, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """The segment's audio; closing the iterator aborts it."""
        ...


class Normaliser(Protocol):
    """What the runner needs of ``tts_core.text.normaliser.Normaliser``."""

    async def normalise(self, segment: Segment) -> Utterance:
        """The segment in spoken form."""
        ...


class Admission(Protocol):
    """The tenant's own limits, held while a context generates."""

    async def enter(self) -> None:
        """Take a slot; raises LimitExceeded."""
        ...

    def leave(self) -> None:
        """Give it back; a second call does nothing."""
        ...

    async def charge(self, characters: int) -> None:
        """Count text about to be spoken; raises LimitExceeded beyond the tenant's rate."""
        ...


class Phrases(Protocol):
    """A tenant's cache of spoken phrases."""

    async def get(self, request: SpeechRequest) -> tuple[SpeechChunk, ...] | None:
        """The phrase as it was spoken before, or None; never raises."""
        ...

    async def put(self, request: SpeechRequest, chunks: tuple[SpeechChunk, ...]) -> None:
        """Keep a phrase; never raises."""
        ...


class Observer(Protocol):
    """Told about each context, for metrics and logs."""

    def started(self, context: Context) -> None:
        """It was opened."""
        ...

    def first_audio(self, context: Context) -> None:
        """Its first audio is about to leave."""
        ...

    def underrun(self, context: Context, seconds: float) -> None:
        """Its listener ran dry although text was waiting."""
        ...

    def ended(self, context: Context, event: Event) -> None:
        """It has ended with this terminal event."""
        ...


@dataclass(frozen=True, slots=True)
class Speech:
    """What every runner shares."""

    speaker: Speaker
    normaliser: Normaliser
    info: EngineInfo
    clock: Clock
    observer: Observer
    spawn: Callable[[Awaitable[None]], object] = field(default=asyncio.ensure_future)


class ContextRunner:
    """One context being spoken.

    ``text``, ``flush`` and ``end`` return at once; ``cancel`` returns when the Cancelled event has gone out
    and no audio can follow it. Cancelling the runner's task (``abort``) ends it without an event.

    ``conditioning`` is for a voice of the tenant's own; ``salt`` goes to the engine with every segment;
    ``marks`` lays a mark in what is spoken.
    """

    def __init__(  # noqa: PLR0917
        self,
        context: Context,
        speech: Speech,
        sink: Sink,
        playback: Playback,
        admission: Admission,
        phrases: Phrases | None = None,
        *,
        conditioning: Conditioning | None = None,
        salt: str = "",
        marks: Marks | None = None,
    ) -> None:
        self.context = context
        self.playback = playback
        self._speech = speech
        self._sink = sink
        self._admission = admission
        self._phrases = phrases
        self._conditioning = conditioning
        self._salt = salt
        options = context.options
        longest = min(LONGEST_MS, round(options.run_ahead_s * BLOCK_SHARE * 1000))
        self._stage = OutputStage(speech.info.native_rate, options.format, marks, longest_ms=longest)
        self._wake = asyncio.Event()
        self._unbroken = 0  # native samples converted since others had their turn
        self._native = 0  # native samples spoken in this context, pauses included
        self._aligner: WordAligner | None = None  # of the latest utterance
        self._seq = 0
        self._segment = 0
        self._gap_s = 0.0
        self._admitted = False
        self._stream_id = f"{id(self):x}/{context.id}"
        self._tail = ""
        self._forced_at = -1.0  # the pause after which everything held was let go
        self._task: asyncio.Task[None] | None = None
        self._reports = False
        self.ended = asyncio.Event()

    @property
    def options(self) -> ContextOptions:
        """The context's options."""
        return self.context.options

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._speech.observer.started(self.context)
        self._task = asyncio.create_task(self._run(), name=f"context {self.context.id}")

    def text(self, text: str) -> None:
        """Add text; see ``Context.text`` for errors."""
        self.context.text(text)
        self._wake.set()

    def flush(self, flush_id: int | None = None) -> int:
        """Speak all that is held; returns the id of the Flushed event to come."""
        flush_id = self.context.flush(flush_id)
        self._wake.set()
        return flush_id

    def end(self) -> None:
        """No more text."""
        self.context.end()
        self._wake.set()

    def reported(self, sample: int) -> None:
        """The client says that it has played up to ``sample``."""
        self._reports = True
        self.playback.reported(sample)

    def heard(self) -> Heard:
        """What the listener has heard by now; also after the end."""
        return self.context.heard(self.playback.heard())

    async def cancel(self) -> Cancelled | None:
        """Stop at once. No audio leaves after this call began; None if the context had ended already."""
        if self.context.terminal:
            return None
        # Counted before anything is awaited: this is the moment the caller was interrupted.
        heard = self.playback.cut()
        event = self.context.cancel(self.playback.sent_samples, heard)
        await self._stop()
        self._speech.observer.ended(self.context, event)
        try:
            await self._sink(event)
        except LegClosed:
            pass
        self._over()
        return event

    async def fail(self, error: VoxwireError) -> None:
        """Stop at once with ``error``; nothing if the context has ended already."""
        if self.context.terminal:
            return
        self.playback.cut()
        event = self.context.fail(error)
        await self._stop()
        self._speech.observer.ended(self.context, event)
        try:
            await self._sink(event)
        except LegClosed:
            pass
        self._over()

    async def abort(self) -> None:
        """Stop without telling the client, who is gone."""
        if not self.context.terminal:
            event = self.context.cancel(self.playback.sent_samples, self.playback.cut())
            self._speech.observer.ended(self.context, event)
        await self._stop()
        self._over()

    async def wait(self) -> None:
        """Return when the context has ended."""
        await self.ended.wait()

    async def _stop(self) -> None:
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _over(self) -> None:
        """Nothing happens here any more, and what was heard may still be asked for: the rest is let go.

        By hand, so that no collector has to find what refers back to us.
        """
        self.ended.set()
        self._sink = untold
        self._task = self._aligner = self._phrases = self._conditioning = None

    async def _run(self) -> None:
        event: Event | None = None
        try:
            await self._speak_all()
            event = self.context.finish(self.playback.sent_samples)
        except LegClosed:
            # The listener is gone; on a call the agent is still there and must learn how its context ended.
            if not self.context.terminal:
                event = self.context.cancel(self.playback.sent_samples, self.playback.heard())
        except VoxwireError as error:
            event = self.context.fail(error)
        except Exception:
            log.exception("context failed", extra={"context_id": self.context.id})
            event = self.context.fail(VoxwireError("the gateway failed on this context"))
        finally:
            self.playback.release()
            self._leave()
        if event is not None:
            self._speech.observer.ended(self.context, event)
            try:
                await self._sink(event)
            except LegClosed:
                pass
        self._over()

    async def _speak_all(self) -> None:
        while True:
            work = self.context.next_work()
            if work is None:
                if self.context.step():
                    await asyncio.sleep(0)
                    continue
                if self.context.state is State.ENDING:
                    break
                await self._wait_for_text()
                continue
            if isinstance(work.item, FlushMark):
                await self._sink(Flushed(self.context.id, work.item.flush_id))
                continue
            await self._enter()
            await self._admission.charge(len(work.item.text))
            await self._speak(work, work.item)
        if self.playback.sent_samples == 0 and self.context.stats.characters:
            await self._push(self._quiet(UNSPEAKABLE_S))
        await self._emit(self._stage.finish())
        await self.playback.drained()

    async def _wait_for_text(self) -> None:
        """Wait for work; let held text go when the client pauses, and the slot when it pauses for long."""
        options = self.options
        self._wake.clear()
        quiet = self._speech.clock() - self.context.last_text_at
        waits = [options.idle_s - quiet]
        if self.context.held and self._forced_at != self.context.last_text_at:
            waits.append((options.hold_s if quiet < options.hold_s else options.max_buffer_delay_s) - quiet)
        if self._admitted:
            waits.append(max(self.playback.lead() + IDLE_RELEASE_S, IDLE_RELEASE_S - quiet))
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes in the moment it is woken.
            async with asyncio.timeout(max(0.001, min(waits))):
                await self._wake.wait()
            return
        except TimeoutError:
            pass
        quiet = self._speech.clock() - self.context.last_text_at
        if quiet >= options.idle_s:
            raise ContextIdle(f"no text for {options.idle_s:.0f} seconds")
        if self.context.held and quiet >= options.max_buffer_delay_s:
            # An unfinished tag is held even so: it is not looked at again before more text comes.
            self._forced_at = self.context.last_text_at
            self.context.force()
        elif self.context.held and quiet >= options.hold_s:
            self.context.release()
        if (
            self._admitted
            and not self.context.has_work
            and quiet >= IDLE_RELEASE_S
            and self.playback.lead() <= 0
        ):
            self._leave()

    async def _enter(self) -> None:
        if self._admitted:
            return
        await self._admission.enter()
        try:
            self._speech.speaker.admit(self._stream_id)
        except BaseException:
            self._admission.leave()
            raise
        self._admitted = True

    def _leave(self) -> None:
        if self._admitted:
            self._admitted = False
            self._speech.speaker.release(self._stream_id)
            self._admission.leave()

    async def _speak(self, work: Work, segment: Segment) -> None:
        if self.options.text.normalise:
            utterance = await self._speech.normaliser.normalise(segment)
        else:
            utterance = as_written(segment)
        conditioning = None
        if utterance.text and self._conditioning is not None:
            conditioning = await self._conditioning()
        before = await self._pause(segment, utterance)
        if not utterance.text:
            return
        self.context.stats.segments += 1
        rate = self._speech.info.native_rate
        request = self._request(segment, utterance, conditioning, len(before) / rate)
        aligner = WordAligner(utterance, rate, self._native, speed=request.speed, before=self._aligner)
        self._aligner = aligner
        volume = self.options.volume * segment.volume
        spoken = 0
        async with aclosing(self._chunks(request)) as chunks:
            async for chunk in chunks:
                spoken += len(chunk.pcm)
                words = aligner.add(chunk.words, spoken, last=chunk.last)
                self.context.spoke(words.known)
                if words.told:
                    await self._sink(Words(self.context.id, words.told))
                pcm = chunk.pcm
                if self.context.stats.leading_silence < 0 and len(pcm):
                    silent = self._native / rate + leading_silence(pcm, rate)
                    self.context.stats.leading_silence = silent
                self._native += len(pcm)
                if len(before):
                    before, pcm = before[:0], np.concatenate([before, pcm])
                await self._push(pcm, volume, work.ready_at, last=chunk.last)

    def _request(
        self, segment: Segment, utterance: Utterance, conditioning: bytes | None, pause: float
    ) -> SpeechRequest:
        """The engine's request; ``pause``: seconds that go before it and are not sent yet."""
        low, high = self._speech.info.speed_range
        tail, self._tail = self._tail, utterance.text[-200:]
        return SpeechRequest(
            id=f"{self._stream_id}/{segment.index}",
            text=utterance.text,
            voice=self.options.voice,
            conditioning=conditioning,
            seed=self.options.seed,
            speed=min(high, max(low, self.options.speed * segment.speed)),
            continues=tail,
            deadline=self._speech.clock() + self.playback.lead() + pause,
            salt=self._salt,
        )

    async def _chunks(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """The segment's audio, from the phrase cache or the engine; engine time is what we waited for it."""
        stats, clock = self.context.stats, self._speech.clock
        phrases = self._phrases if self.options.cache else None
        if phrases is not None and (known := await phrases.get(request)) is not None:
            stats.cached_segments += 1
            for chunk in known:
                stats.audio_s += len(chunk.pcm) / self._speech.info.native_rate
                yield chunk
            return
        kept: list[SpeechChunk] = []
        async with aclosing(self._speech.speaker.speak(self._stream_id, request)) as chunks:
            while True:
                asked = clock()
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                stats.engine_s += clock() - asked
                if stats.queue_wait < 0:
                    stats.queue_wait = self._speech.speaker.first_wait(self._stream_id)
                stats.audio_s += len(chunk.pcm) / self._speech.info.native_rate
                if phrases is not None:
                    kept.append(chunk)
                yield chunk
        if stats.audio_s:
            stats.rtf = stats.engine_s / stats.audio_s
        if phrases is not None and kept:
            self._speech.spawn(phrases.put(request, tuple(kept)))

    async def _push(
        self, pcm: Samples, volume: float = 1.0, ready_at: float | None = None, *, last: bool = False
    ) -> None:
        """Convert and send, a slice at a time: an engine may hand over ten seconds at once.

        A rest of less than half a slice goes with the slice before it. ``last``: nothing follows for now, and
        what is held leaves, also where there is nothing to add.
        """
        size = int(self._speech.info.native_rate * SLICE_S)
        left = True
        while left:
            here = len(pcm) if len(pcm) < 1.5 * size else size
            piece, pcm = pcm[:here], pcm[here:]
            left = len(pcm) > 0
            if self._unbroken + len(piece) > size:
                self._unbroken = 0
                await asyncio.sleep(0)
            if volume != 1.0:
                piece = np.tanh(piece * np.float32(volume))
            blocks = self._stage.push(piece, lead=self.playback.lead(), last=last and not left)
            await self._emit(blocks, ready_at=ready_at)
            self._unbroken += len(piece)

    async def _pause(self, segment: Segment, utterance: Utterance) -> Samples:
        """The pause before a segment: sent, or given back where it may go with the first of the speech.

        A longer one is sent at once: should the engine be late, it is late behind the pause.
        """
        pause = segment.pause_before_ms / 1000
        if utterance.text:
            pause = max(pause, self._gap_s)
            self._gap_s = SENTENCE_GAP_S if segment.ends_sentence else CLAUSE_GAP_S
        if self._seq == 0 and self.options.lead_in_ms:
            pause += self.options.lead_in_ms / 1000
        self._segment += 1
        quiet = self._quiet(pause)
        if utterance.text and pause <= SENTENCE_GAP_S and self.playback.lead() >= HOLDS_S:
            return quiet
        if pause:
            await self._push(quiet, last=not utterance.text)
        return quiet[:0]

    def _quiet(self, seconds: float) -> Samples:
        """A pause, counted as spoken."""
        pcm = np.zeros(round(seconds * self._speech.info.native_rate), np.float32)
        self._native += len(pcm)
        return pcm

    async def _emit(self, blocks: list[tuple[bytes, int]], *, ready_at: float | None = None) -> None:
        for data, samples in blocks:
            await self._pace(samples)
            if self.context.terminal:
                raise asyncio.CancelledError
            start = self.playback.sent_samples
            event = Audio(self.context.id, self._seq, start, samples, data, self._segment)
            dry = self.playback.sent(samples)
            self._seq += 1
            # The listener ran dry while text of ours was waiting: that is a gap we made.
            if dry > 0 and ready_at is not None and self._speech.clock() - dry > ready_at:
                self.context.stats.underruns += 1
                self.context.stats.underrun_s += dry
                self._speech.observer.underrun(self.context, dry)
            if start == 0 and self.context.first_text_at is not None:
                self.context.stats.first_audio = self._speech.clock() - self.context.first_text_at
                self._speech.observer.first_audio(self.context)
            await self._sink(event)

    async def _pace(self, samples: int) -> None:
        # One block of the usual length may go beyond the run-ahead, a longer one waits for that.
        most = self.options.run_ahead_s - max(0.0, samples / self.options.format.rate - RAMP_MS[-1] / 1000)
        # Looked at again every 250 ms where a client's reports may move the clock meanwhile. Never a wait too
        # short for a clock to show it.
        while (over := self.playback.lead() - most) > 0:  # noqa: ASYNC110
            await asyncio.sleep(max(min(over, 0.25) if self._reports else over, 0.001))
