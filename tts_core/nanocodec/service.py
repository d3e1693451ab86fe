"""The codec off the event loop: streams in, spread over processes, samples out.

Each decoding process holds the states of its streams and batches them (``batcher``); a stream stays with the
process that it was opened on. A process that dies is started again; its streams, whose states went with it,
fail with EngineCrashed. References are encoded in a process of their own, at low priority, which starts with
the first clip and ends when none came for a while: an encoder takes seconds and would stall every call.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..child.failure import Failed
from ..child.frames import numbers, raw
from ..errors import EngineCrashed, EngineError, EngineTimeout
from . import convert, wire
from .clip import check_clip
from .duty import Duty
from .fsq import CHANNELS, Codes, check
from .link import CodecLink, open_link
from .vigil import LOOK_S, Vigil, processor_s

log = logging.getLogger(__name__)

MAX_REQUEST = 2048
"""Frames of one call of ``decode``: 95 s."""

MAX_QUEUE = 4096
"""Frames that may wait at one process: two minutes of work; with admission it never comes near."""

MAX_CLIPS = 8
"""Clips that may wait to be encoded."""

ENCODE_S = 300.0
"""Deadline of one clip: 60 s of sound take 40 s on an idle core, and the process yields to the decoders."""

IDLE_S = 60.0
"""The encoding process ends after so long without a clip; it holds some 400 MB."""

BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pause before starting a process again, by how often in a row it died without finishing anything."""

Samples = NDArray[np.float32]

_T = TypeVar("_T")


class CodecStream:
    """One utterance being decoded, from ``CodecService.open``. Close it."""

    def __init__(self, service: CodecService, seat: _Seat, ident: int) -> None:
        self._service = service
        self._seat = seat
        self._ident = ident
        self._error: EngineError | None = None

    def decode(self, codes: ArrayLike) -> asyncio.Future[Samples]:
        """Decode the next frames. Calls are served in their order, awaited or not.

        Cancelling the future drops the samples; the frames are decoded all the same, so the stream goes on
        unharmed.

        Args:
            codes: integers ``[n, 32]``, 0 <= n <= 2048.

        Returns:
            A future of the samples, float32 ``[n * 1024]`` at 22.05 kHz.

        Raises:
            EngineError: codes out of range, the stream is closed, or too much is waiting; from the future:
                EngineCrashed when the process died, after which the stream is over.

        """
        frames = check(codes)
        if frames.ndim != 2 or len(frames) > MAX_REQUEST:
            raise EngineError(f"up to {MAX_REQUEST} frames can be decoded at a time")
        if self._error is not None:
            raise self._error
        return self._service._submit(self._seat, self._ident, frames)

    def close(self) -> None:
        """Free the state; what still waits is dropped. Idempotent."""
        if self._error is None:
            self._fail(EngineError("the codec stream is closed"))
            self._service._forget(self._seat, self._ident)

    def _fail(self, error: EngineError) -> None:
        self._error = error


class _Pending:
    """Futures of requests at a process, with the frames each holds."""

    def __init__(self) -> None:
        self._futures: dict[int, tuple[int, int, asyncio.Future[Samples]]] = {}
        self.frames = 0

    def __bool__(self) -> bool:
        return bool(self._futures)

    def add(self, request: int, stream: int, frames: int) -> asyncio.Future[Samples]:
        future: asyncio.Future[Samples] = asyncio.get_running_loop().create_future()
        self._futures[request] = (stream, frames, future)
        self.frames += frames
        return future

    def take(self, request: int) -> asyncio.Future[Samples] | None:
        entry = self._futures.pop(request, None)
        if entry is None:
            return None
        self.frames -= entry[1]
        return entry[2]

    def fail(self, error: EngineError, stream: int | None = None) -> None:
        """Fail the requests of a stream, or all."""
        for request in [r for r, entry in self._futures.items() if stream in (None, entry[0])]:
            future = self.take(request)
            if future is not None:
                _fail(future, error)


class _Seat:
    """A place for a decoding process: the process in it changes, the seat stays."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.link: CodecLink | None = None
        self.ready = False
        self.streams: dict[int, CodecStream] = {}
        self.pending = _Pending()
        self.vigil = Vigil(self._processor_s, clock)
        self.watchdog: asyncio.TimerHandle | None = None
        self.deaths = 0
        self.restart: asyncio.Task[None] | None = None

    def _processor_s(self) -> float | None:
        pid = self.link.pid if self.link is not None else None
        return None if pid is None else processor_s(pid)


class CodecService:
    """NanoCodec in processes of its own.

    Args:
        model: a codec file (safetensors), or a ``.nemo``, which is converted at the first start.
        backend: see ``backends.open_decoder``.
        processes: decoding processes, each one core (or one stream of work on a device).
        max_queue: frames that may wait at a process; more are refused.
        device: for the torch and nemo backends.
        batch_frames: most frames of all streams in one step of a process. More makes a GPU faster and, on a
            CPU, which gains little, everyone wait longer.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        model: Path,
        *,
        backend: str = "onnx",
        processes: int = 1,
        max_queue: int = MAX_QUEUE,
        device: str = "cpu",
        batch_frames: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = Path(model)
        self._backend = backend
        self._device = device
        self._batch_frames = batch_frames
        self._max_queue = max_queue
        self._seats = [_Seat(clock) for _ in range(processes)]
        self._ids = itertools.count(1)
        self._duty = Duty(processes, clock=clock)
        self._encoder = _EncoderSeat(lambda: self._configure("encode"))
        self._started = False
        self._closed = False

    async def start(self) -> None:
        """Convert the model if need be, start the processes and wait until all are warm.

        Raises:
            EngineError: the model cannot be converted or loaded, or there is no such backend here.

        """
        if self._closed:
            raise EngineError("the codec is closed")
        if self._started:
            return
        self._started = True
        try:
            self._model = await asyncio.to_thread(convert.ensure, self._model)
            starts = [asyncio.ensure_future(self._launch(seat)) for seat in self._seats]
            try:
                await asyncio.gather(*starts)
            except BaseException:
                for start in starts:
                    start.cancel()
                await asyncio.gather(*starts, return_exceptions=True)
                raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the processes; what waits fails with EngineError. Idempotent."""
        self._closed = True
        error = EngineError("the codec is closed")
        tasks: list[asyncio.Future[None]] = [asyncio.ensure_future(self._encoder.close(error))]
        for seat in self._seats:
            seat.ready = False
            self._vacate(seat, error)
            if seat.restart is not None:
                seat.restart.cancel()
                tasks.append(seat.restart)
            if seat.link is not None:
                tasks.append(asyncio.ensure_future(seat.link.close()))
        await asyncio.gather(*tasks, return_exceptions=True)

    def open(self) -> CodecStream:
        """Begin a stream, on the process that has the fewest.

        Raises:
            EngineError: no process is there to take it.

        """
        ready = [seat for seat in self._seats if seat.ready]
        if not ready:
            raise EngineError("the codec is not running")
        seat = min(ready, key=lambda seat: len(seat.streams))
        stream = CodecStream(self, seat, next(self._ids) & 0xFFFFFFFF)
        seat.streams[stream._ident] = stream
        return stream

    async def encode(self, pcm: NDArray[np.float32]) -> Codes:
        """Encode a reference clip, after those that wait.

        Cancelling drops the result.

        Args:
            pcm: float32 ``[n]`` at 22.05 kHz, at most 60 s.

        Returns:
            Codes uint8 ``[ceil(n / 1024), 32]``.

        Raises:
            BadRequest: the clip is empty, too long or not finite.
            EngineCrashed: the process died.
            EngineTimeout: it took more than 300 s.
            EngineError: not running, or eight clips wait already.

        """
        clip = check_clip(pcm)
        if self._closed or not self._started:
            raise EngineError("the codec is not running")
        return await self._encoder.encode(clip)

    @property
    def duty(self) -> float:
        """Share of the last ten seconds that the decoding processes worked, 0 .. 1."""
        return self._duty.value()

    @property
    def alive(self) -> bool:
        """Whether a process takes streams."""
        return any(seat.ready for seat in self._seats)

    @property
    def streams(self) -> int:
        """Open streams."""
        return sum(len(seat.streams) for seat in self._seats)

    @property
    def queued(self) -> int:
        """Frames that wait to be decoded."""
        return sum(seat.pending.frames for seat in self._seats)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the decoding processes that take streams."""
        return tuple(
            s.link.pid for s in self._seats if s.ready and s.link is not None and s.link.pid is not None
        )

    # -- streams --------------------------------------------------------------------------------------

    def _submit(self, seat: _Seat, stream: int, codes: Codes) -> asyncio.Future[Samples]:
        if not len(codes):
            nothing: asyncio.Future[Samples] = asyncio.get_running_loop().create_future()
            nothing.set_result(np.zeros(0, np.float32))
            return nothing
        if seat.pending.frames + len(codes) > self._max_queue or seat.link is None:
            raise EngineError("the codec has too much to do")
        request = next(self._ids) & 0xFFFFFFFF
        future = seat.pending.add(request, stream, len(codes))
        if seat.watchdog is None:
            self._watch(seat)
        seat.link.send(wire.Codes(stream, request), raw(codes))
        return future

    def _forget(self, seat: _Seat, stream: int) -> None:
        seat.streams.pop(stream, None)
        seat.pending.fail(EngineError("the codec stream is closed"), stream)
        if seat.link is not None:
            seat.link.send(wire.Close(stream))
        self._watch(seat)

    def _message(self, seat: _Seat, link: CodecLink, message: wire.Message, payload: memoryview) -> None:
        if seat.link is not link:
            return
        if isinstance(message, wire.Step):
            seat.deaths = 0
            self._duty.add(message.busy_s)
        elif isinstance(message, wire.Samples):
            samples = numbers(payload, np.float32)
            wanted = seat.pending.take(message.request)
            if wanted is not None and not wanted.done():
                wanted.set_result(samples)
        self._watch(seat)

    # -- processes ------------------------------------------------------------------------------------

    def _configure(self, role: str) -> wire.Configure:
        return wire.Configure(role, str(self._model), self._backend, self._device, self._batch_frames)

    async def _launch(self, seat: _Seat) -> None:
        link = open_link(
            lambda message, payload: self._message(seat, link, message, payload),
            lambda: self._lost(seat, link),
        )
        seat.link = link
        await link.start(self._configure("decode"))
        seat.ready = True

    async def _relaunch(self, seat: _Seat) -> None:
        while not self._closed:
            await asyncio.sleep(BACKOFF_S[min(seat.deaths, len(BACKOFF_S)) - 1])
            try:
                await self._launch(seat)
                return
            except EngineError as error:
                seat.deaths += 1
                log.error("a codec process did not start again", extra={"reason": error.message})

    def _lost(self, seat: _Seat, link: CodecLink) -> None:
        if seat.link is not link or self._closed or not seat.ready:
            return
        seat.ready = False
        seat.deaths += 1
        log.warning("a codec process died; starting another", extra={"streams": len(seat.streams)})
        self._vacate(seat, EngineCrashed("the codec died while it decoded this"))
        seat.restart = asyncio.ensure_future(self._relaunch(seat))

    def _vacate(self, seat: _Seat, error: EngineError) -> None:
        """End all streams of a seat."""
        if seat.watchdog is not None:
            seat.watchdog.cancel()
            seat.watchdog = None
        for stream in seat.streams.values():
            stream._fail(error)
        seat.streams.clear()
        seat.pending.fail(error)

    def _watch(self, seat: _Seat) -> None:
        """A process said something or got its first work: watch over what it does while it has any."""
        seat.vigil.heard()
        if not seat.pending and seat.watchdog is not None:
            seat.watchdog.cancel()
            seat.watchdog = None
        elif seat.pending and seat.watchdog is None:
            seat.watchdog = asyncio.get_running_loop().call_later(LOOK_S, self._look, seat)

    def _look(self, seat: _Seat) -> None:
        seat.watchdog = None
        wrong = seat.vigil.look()
        if not wrong:
            seat.watchdog = asyncio.get_running_loop().call_later(LOOK_S, self._look, seat)
            return
        log.error("a codec process gives nothing any more: replacing it", extra={"reason": wrong})
        if seat.link is not None:
            seat.link.kill()


class _EncoderSeat:
    """The encoding process, started when there is something to encode; one clip at a time, in order."""

    def __init__(self, configure: Callable[[], wire.Configure]) -> None:
        self._configure = configure
        self._link: CodecLink | None = None
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[Codes] | None = None
        self._ids = itertools.count(1)
        self._request = 0
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """Process id, None while there is none."""
        return self._link.pid if self._link is not None else None

    async def encode(self, clip: NDArray[np.float32]) -> Codes:
        """See ``CodecService.encode``."""
        if self._waiting >= MAX_CLIPS:
            raise EngineError("too many references wait to be encoded")
        self._waiting += 1
        try:
            async with asyncio.timeout(ENCODE_S), self._turn:
                return await self._encode(clip)
        except TimeoutError as error:
            raise EngineTimeout("the reference took too long to encode") from error
        finally:
            self._waiting -= 1

    async def _encode(self, clip: NDArray[np.float32]) -> Codes:
        if self._idle is not None:
            self._idle.cancel()
        link = self._link or await self._start()
        self._request = next(self._ids) & 0xFFFFFFFF
        self._answer = asyncio.get_running_loop().create_future()
        link.send(wire.Samples(0, self._request), raw(clip))
        try:
            return await self._answer
        except (asyncio.CancelledError, TimeoutError):
            # It cannot be told to stop: the next clip is not to wait for one that nobody wants.
            self._end()
            raise
        finally:
            self._answer = None
            if self._link is not None:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)

    async def _start(self) -> CodecLink:
        link = open_link(
            lambda message, payload: self._message(link, message, payload), lambda: self._lost(link)
        )
        self._link = link
        try:
            await link.start(self._configure())
        except BaseException:
            self._link = None
            raise
        if self._link is not link:  # closed meanwhile
            await link.close()
            raise EngineError("the codec is closed")
        return link

    async def close(self, error: EngineError) -> None:
        """End the process; what is being encoded fails with ``error``."""
        if self._idle is not None:
            self._idle.cancel()
        if self._answer is not None:
            _fail(self._answer, error)
        self._end()
        await asyncio.gather(*self._closing)

    def _end(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            closing = asyncio.ensure_future(link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _message(self, link: CodecLink, message: wire.Message, payload: memoryview) -> None:
        if link is not self._link or self._answer is None or self._answer.done():
            return
        if isinstance(message, wire.Codes) and message.request == self._request:
            self._answer.set_result(numbers(payload, np.uint8, CHANNELS))
        elif isinstance(message, Failed) and message.id == self._request:
            self._answer.set_exception(EngineError(message.message))

    def _lost(self, link: CodecLink) -> None:
        if link is not self._link:
            return
        self._end()
        if self._answer is not None:
            _fail(self._answer, EngineCrashed("the codec died while it encoded this"))


def _fail(future: asyncio.Future[_T], error: EngineError) -> None:
    """Fail a future that may be over, or that nobody awaits: asyncio is not to complain of the latter."""
    if not future.done():
        future.set_exception(error)
        future.exception()
