"""Shares one engine among many streams and promises each of them continuity.

Four rules (design rules 7 and 8):

- *Admit on continuity.* A stream (one context being spoken) is admitted only while the measured speed of the
  engine covers every admitted stream in real time with a margin, and its first segment would not wait too
  long. Everyone else is refused at once with a hint when to come back; nobody is queued into silence.
- *Earliest deadline first.* Among the segments that wait, the one whose listener would hear silence first
  goes first. A segment without a deadline gets one when it reaches the head of its stream, so a stream with
  a long text cannot crowd out one that came later.
- *Nobody holds a slot for long.* A segment with much to say is asked of the engine in parts of a few seconds,
  each of which waits its turn.
- *A slow reader holds no slot.* The engine is read at its own pace into the request's buffer, bounded in
  seconds of audio; closing the iterator drops the buffer, the queue entry or the running work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .engine import Engine, SpeechChunk, SpeechRequest, WordMark
from .errors import Busy, Draining, EngineError, EngineTimeout, LimitExceeded, VoxwireError
from .parts import parts
from .patience import Patience

log = logging.getLogger(__name__)

_SMOOTH = 0.2
"""Weight of the newest sample in the moving averages: about the last ten segments count."""

_FIRST_GUESS_S = 0.05
"""Time for one segment before any was measured; a 12-word clause costs the built-in voice half of it."""

_CLOSE_S = 1.0
"""An engine must let go of an abandoned request within one step; longer than this is logged and left."""


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The scheduler at one moment.

    ``active``: admitted streams. ``running``/``queued``: segments at the engine / waiting for it.
    ``xrt``: what the engine can do, in seconds of audio per second; ``needed``: what the admitted streams
    may take of it, margin included. ``queue_wait_s``: moving average of the wait for a slot;
    ``predicted_wait_s``: what a new stream's first segment would wait. The rest are totals since the start.
    """

    active: int
    running: int
    queued: int
    xrt: float
    needed: float
    queue_wait_s: float
    predicted_wait_s: float
    ready: bool
    draining: bool
    admitted: int
    refused: int
    finished: int
    aborted: int
    failed: int


@dataclass(slots=True)
class StreamStats:
    """What one admitted stream has had so far. Waits in seconds; ``first_wait_s`` None before its first."""

    admitted_at: float
    requests: int = 0
    first_wait_s: float | None = None
    last_wait_s: float = 0.0
    total_wait_s: float = 0.0


TOGETHER_S = 0.8
"""What a reader who is behind gets at once: each piece costs him the same, however long it is."""


class _Job:
    """One segment on its way through the engine."""

    __slots__ = (
        "_changed",
        "_room",
        "buffered",
        "chunks",
        "enqueued_at",
        "error",
        "expiry",
        "head_since",
        "request",
        "seq",
        "started",
        "stream_id",
        "task",
    )

    def __init__(self, stream_id: str, request: SpeechRequest, seq: int, now: float) -> None:
        self.stream_id = stream_id
        self.request = request
        self.seq = seq
        self.enqueued_at = now
        self.head_since = now
        self.chunks: deque[SpeechChunk] = deque()
        self.buffered = 0
        self.error: BaseException | None = None
        self.started = False
        self.task: asyncio.Task[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def put(self, chunk: SpeechChunk) -> None:
        self.chunks.append(chunk)
        self.buffered += len(chunk.pcm)
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._changed.set()

    async def room(self, limit: int) -> None:
        """Wait until fewer than ``limit`` samples are held."""
        while self.buffered >= limit:
            self._room.clear()
            await self._room.wait()

    async def next(self, most: int) -> SpeechChunk:
        """The next chunk, and with it up to ``most`` samples in all those that lie behind it."""
        while not self.chunks:
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()
        chunks = [self.chunks.popleft()]
        samples = len(chunks[0].pcm)
        while self.chunks and samples + len(self.chunks[0].pcm) <= most:
            chunks.append(self.chunks.popleft())
            samples += len(chunks[-1].pcm)
        self.buffered -= samples
        self._room.set()
        return chunks[0] if len(chunks) == 1 else _joined(chunks)


@dataclass(slots=True)
class _Lane:
    """The segments of one stream, in order: only the head may be started."""

    waiting: deque[_Job] = field(default_factory=deque)
    running: int = 0
    served_at: int = 0


class Scheduler:
    """Admission, order and fairness in front of one engine.

    Args:
        engine: a started engine (it may also be started later: until a worker is alive nobody is admitted).
        clock: monotonic seconds; must run with the event loop's clock, which times the deadlines.
        max_streams: a hard cap on top of the measured one; None for none.
        max_wait_s: refuse when a new stream's first segment would wait longer than this. Clients drop audio
            that comes later than 2-3 s (design rule 7).
        headroom: how much faster than real time the engine must be for what is admitted. 2.0 leaves the
            other half to bursts and to the gateway's own work on the same cores.
        per_stream: segments of one stream at the engine at the same time.
        max_pending: segments of one stream waiting or running; one more raises LimitExceeded.
        first_chunk_s: deadline from the start of a segment to its first audio, and between its chunks.
        queue_s: how long past its deadline a segment may wait for a slot before EngineTimeout.
        buffer_s: seconds of audio held for a slow reader before the engine is no longer read.
        on_wait: called with the queue wait in seconds of every started segment (for metrics).

    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], float] = time.monotonic,
        max_streams: int | None = None,
        max_wait_s: float = 1.0,
        headroom: float = 2.0,
        *,
        per_stream: int = 2,
        max_pending: int = 64,
        first_chunk_s: float = 5.0,
        queue_s: float = 10.0,
        buffer_s: float = 60.0,
        on_wait: Callable[[float], None] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._max_streams = max_streams
        self._max_wait_s = max_wait_s
        self._headroom = headroom
        self._per_stream = per_stream
        self._max_pending = max_pending
        self._first_chunk_s = first_chunk_s
        self._queue_s = queue_s
        self._together = int(TOGETHER_S * engine.info.native_rate)
        self._buffer = max(1, int(buffer_s * engine.info.native_rate))
        self._on_wait = on_wait
        self._ready = True
        self._draining = False
        self._closed = False
        self._streams: dict[str, StreamStats] = {}
        self._lanes: dict[str, _Lane] = {}
        self._running: set[_Job] = set()
        self._queued = 0
        self._seq = 0
        self._service_s = _FIRST_GUESS_S
        self._stream_s = 5.0
        self._wait_s = 0.0
        self._admitted = self._refused = self._finished = self._aborted = self._failed = 0

    # -- state for the gateway ------------------------------------------------------------------------

    def set_ready(self, ready: bool) -> None:
        """Whether new streams may come at all (the gateway's own readiness). True at the start."""
        self._ready = ready

    def set_draining(self, draining: bool = True) -> None:
        """Refuse new streams with Draining; the admitted go on to their end."""
        self._draining = draining

    @property
    def draining(self) -> bool:
        """True once the gateway drains."""
        return self._draining

    @property
    def idle(self) -> bool:
        """True when no stream is admitted and no segment waits or runs: the drain is done."""
        return not (self._streams or self._lanes or self._running)

    @property
    def stats(self) -> SchedulerStats:
        """A snapshot; cheap."""
        return SchedulerStats(
            active=len(self._streams),
            running=len(self._running),
            queued=self._queued,
            xrt=self._engine.capacity().xrt,
            needed=len(self._streams) * self._headroom,
            queue_wait_s=self._wait_s,
            predicted_wait_s=self._predicted_wait(),
            ready=self._ready,
            draining=self._draining,
            admitted=self._admitted,
            refused=self._refused,
            finished=self._finished,
            aborted=self._aborted,
            failed=self._failed,
        )

    def stream_stats(self, stream_id: str) -> StreamStats | None:
        """Give the figures of an admitted stream (live object, do not change it); None after ``release``."""
        return self._streams.get(stream_id)

    def first_wait(self, stream_id: str) -> float:
        """Seconds that an admitted stream's first segment waited for a slot; -1 before it was started."""
        stream = self._streams.get(stream_id)
        return -1.0 if stream is None or stream.first_wait_s is None else stream.first_wait_s

    # -- admission ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise as ``admit`` would now, and admit nobody: for work that is cheaper to refuse early."""
        if self._draining or self._closed:
            self._refused += 1
            raise Draining("the gateway is shutting down")
        retry_after = self._why_not()
        if retry_after is not None:
            self._refused += 1
            raise Busy("no room for one more stream now", retry_after=retry_after)

    def admit(self, stream_id: str) -> None:
        """Promise continuity to one more stream; a stream already admitted is left as it is.

        Raises:
            Draining: the gateway takes no new work.
            Busy: not ready, or one more stream could break the promise to all; carries ``retry_after``.

        """
        if stream_id in self._streams:
            return
        self.check()
        self._admitted += 1
        self._streams[stream_id] = StreamStats(admitted_at=self._clock())

    def release(self, stream_id: str) -> None:
        """Free the share of a stream that ended. Close its iterators first. Unknown ids do nothing."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._stream_s += _SMOOTH * (self._clock() - stream.admitted_at - self._stream_s)

    def _why_not(self) -> float | None:
        """Seconds to wait before asking again, or None where there is room now."""
        capacity = self._engine.capacity()
        if not self._ready or capacity.alive < 1:
            return 1.0
        count = len(self._streams) + 1
        # Before the first measurement only what runs side by side can be promised.
        can = capacity.xrt if capacity.xrt > 0 else capacity.slots * self._headroom
        if count * self._headroom > can or (self._max_streams is not None and count > self._max_streams):
            # With n streams of mean length L, one ends about every L / n seconds.
            return round(min(5.0, max(0.5, self._stream_s / count)), 3)
        wait = self._predicted_wait()
        if wait > self._max_wait_s:
            return round(min(5.0, max(0.5, wait - self._max_wait_s)), 3)
        return None

    def _predicted_wait(self) -> float:
        """Seconds until a segment that comes now, due at once, would be started.

        Ahead of it are those running, those waiting that fall due within the longest wait we accept (of those
        without a deadline only the head of each stream), and one for every admitted stream that has not asked
        yet.
        """
        horizon = self._clock() + self._max_wait_s
        ahead = len(self._running) + sum(1 for s in self._streams.values() if s.requests == 0)
        for lane in self._lanes.values():
            for i, job in enumerate(lane.waiting):
                if self._due(job) > horizon or (i and job.request.deadline is None):
                    break
                ahead += 1
        slots = self._slots()
        return max(0, ahead - slots + 1) * self._service_s / slots

    def _slots(self) -> int:
        return max(1, self._engine.capacity().slots)

    # -- speech ---------------------------------------------------------------------------------------

    async def speak(self, stream_id: str, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Speak one segment of an admitted stream; segments of a stream are started in the order asked for.

        The request is queued when the first chunk is asked for; of a long text the first part, and each
        other one when the audio before has been taken. Closing the iterator (or cancelling the task that
        reads it) takes the request out of the queue, or stops it at the engine.

        Raises:
            EngineError: the stream was not admitted, or the engine failed.
            EngineTimeout: no slot or no audio within the deadline.
            LimitExceeded: too many segments of this stream are pending.

        """
        made, due = 0, request.deadline
        spans = parts(request.text)
        for n, (start, end) in enumerate(spans):
            part = request
            if len(spans) > 1:
                part = replace(
                    request,
                    id=f"{request.id}.{n}",
                    text=request.text[start:end],
                    continues=request.text[:start][-200:] if n else request.continues,
                    # When the listener has heard what was made so far.
                    deadline=due if due is None else due + made / self._engine.info.native_rate,
                )
            base, final = made, n == len(spans) - 1
            job = self._enqueue(stream_id, part)
            try:
                while True:
                    chunk = await job.next(self._together)
                    if due is not None and not made:
                        due = max(due, self._clock())
                    made = base + chunk.start_sample + len(chunk.pcm)
                    yield _moved(chunk, start, base, last=final and chunk.last)
                    if chunk.last:
                        break
            finally:
                self._abandon(job)

    async def close(self) -> None:
        """Stop everything; readers get EngineError. Idempotent. The engine itself is left alone."""
        self._closed = True
        error = EngineError("the gateway is shutting down")
        for lane in list(self._lanes.values()):
            for job in list(lane.waiting):
                self._unqueue(job)
                job.fail(error)
        tasks = []
        for job in list(self._running):
            job.fail(error)
            if job.task is not None:
                job.task.cancel()
                tasks.append(job.task)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * _CLOSE_S)

    def _enqueue(self, stream_id: str, request: SpeechRequest) -> _Job:
        stream = self._streams.get(stream_id)
        if stream is None or self._closed:
            raise EngineError("this stream has not been admitted")
        lane = self._lanes.setdefault(stream_id, _Lane())
        if len(lane.waiting) + lane.running >= self._max_pending:
            raise LimitExceeded("too many segments of this stream are waiting", retry_after=0.5)
        now = self._clock()
        self._seq += 1
        stream.requests += 1
        job = _Job(stream_id, request, self._seq, now)
        patience = self._queue_s + max(0.0, (request.deadline or now) - now)
        job.expiry = asyncio.get_running_loop().call_later(patience, self._expire, job)
        lane.waiting.append(job)
        self._queued += 1
        self._dispatch()
        return job

    def _due(self, job: _Job) -> float:
        if job.request.deadline is not None:
            return job.request.deadline
        return job.head_since + self._max_wait_s

    def _dispatch(self) -> None:
        """Start the most urgent heads while there are slots."""
        while self._queued and len(self._running) < self._slots() and not self._closed:
            best: tuple[float, int, int] | None = None
            chosen: _Job | None = None
            for lane in self._lanes.values():
                if not lane.waiting or lane.running >= self._per_stream:
                    continue
                job = lane.waiting[0]
                key = (self._due(job), lane.served_at, job.seq)
                if best is None or key < best:
                    best, chosen = key, job
            if chosen is None:
                return
            self._start(chosen)

    def _start(self, job: _Job) -> None:
        self._unqueue(job)
        lane = self._lanes.setdefault(job.stream_id, _Lane())
        lane.running += 1
        self._seq += 1
        lane.served_at = self._seq
        wait = self._clock() - job.enqueued_at
        self._wait_s += _SMOOTH * (wait - self._wait_s)
        stream = self._streams.get(job.stream_id)
        if stream is not None:
            stream.last_wait_s = wait
            stream.total_wait_s += wait
            if stream.first_wait_s is None:
                stream.first_wait_s = wait
        if self._on_wait is not None:
            self._on_wait(wait)
        self._running.add(job)
        job.started = True
        job.task = asyncio.get_running_loop().create_task(self._pump(job), name=f"speak-{job.request.id}")
        # A task cancelled before its first step never runs its body: the slot is freed here in any case.
        job.task.add_done_callback(lambda _task: self._ended(job))

    def _unqueue(self, job: _Job) -> None:
        if job.expiry is not None:
            job.expiry.cancel()
            job.expiry = None
        lane = self._lanes.get(job.stream_id)
        if lane is None or job not in lane.waiting:
            return
        lane.waiting.remove(job)
        self._queued -= 1
        if lane.waiting:
            lane.waiting[0].head_since = max(lane.waiting[0].head_since, self._clock())
        elif not lane.running:
            del self._lanes[job.stream_id]

    def _expire(self, job: _Job) -> None:
        job.expiry = None
        self._unqueue(job)
        self._failed += 1
        job.fail(EngineTimeout("the engine had no time for this segment"))

    def _ended(self, job: _Job) -> None:
        self._finish(job)
        job.task = None  # whose error has the job

    def _finish(self, job: _Job) -> None:
        """Free the job's slot, once."""
        if job not in self._running:
            return
        self._running.remove(job)
        lane = self._lanes.get(job.stream_id)
        if lane is not None:
            lane.running -= 1
            if not lane.waiting and not lane.running:
                del self._lanes[job.stream_id]
        self._dispatch()

    def _abandon(self, job: _Job) -> None:
        """Let go of a job whose reader is gone, at the end or before it."""
        if not job.started:
            if job.error is None:
                self._aborted += 1
            self._unqueue(job)
        elif job in self._running and job.task is not None:
            self._aborted += 1
            job.task.cancel()
        job.chunks.clear()
        job.buffered = 0

    async def _pump(self, job: _Job) -> None:
        """Read the engine at its own pace into the job's buffer."""
        started = self._clock()
        chunks = self._engine.synthesize(job.request)
        try:
            async with Patience(self._first_chunk_s) as patience:
                while True:
                    patience.begin()
                    chunk = await anext(chunks, None)
                    patience.end()
                    if chunk is None:
                        raise EngineError("the engine stopped before the end")
                    job.put(chunk)
                    if chunk.last:
                        self._finished += 1
                        self._service_s += _SMOOTH * (self._clock() - started - self._service_s)
                        self._finish(job)
                        return
                    await job.room(self._buffer)
        except TimeoutError:
            self._failed += 1
            job.fail(EngineTimeout("the engine gave no audio in time"))
        except VoxwireError as error:
            self._failed += 1
            job.fail(error)
        except Exception:
            self._failed += 1
            log.exception("engine failed", extra={"request": job.request.id})
            job.fail(EngineError("the engine failed"))
        finally:
            await _close(chunks)


def _joined(chunks: Sequence[SpeechChunk]) -> SpeechChunk:
    """Chunks that follow each other as one."""
    words = tuple(word for chunk in chunks for word in chunk.words)
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    return SpeechChunk(pcm, chunks[0].start_sample, words, chunks[-1].last)


def _moved(chunk: SpeechChunk, characters: int, samples: int, *, last: bool) -> SpeechChunk:
    """A chunk of a part as one of the whole."""
    if not characters and last == chunk.last:
        return chunk
    words = tuple(
        WordMark(
            w.text_start + characters,
            w.text_end + characters,
            w.sample_start + samples,
            w.sample_end + samples,
        )
        for w in chunk.words
    )
    return SpeechChunk(chunk.pcm, chunk.start_sample + samples, words, last)


async def _close(chunks: AsyncIterator[SpeechChunk]) -> None:
    """Close an engine's iterator, whatever kind it is, within a deadline."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is None:
        return
    try:
        async with asyncio.timeout(_CLOSE_S):
            await aclose()
    except TimeoutError:
        log.warning("engine did not let go of a request in time")
    except Exception:
        log.exception("engine failed while closing a request")
