"""The asyncio leg: a Twilio media stream on any text WebSocket.

It wires the sans-I/O parts: :class:`~telephony.media_streams.protocol.Protocol` reads and makes messages,
:class:`~telephony.playout.Playout` decides when audio leaves, the shared timer wheel calls it. One reader
task per leg; the leg sits on the wheel only while it has something to say.

Use it as a context manager::

    async with MediaStreamLeg(socket, wheel) as leg:
        started = leg.started
        await leg.play(mulaw)
        await leg.hangup()
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from telephony.marks import MarkEvent, Outcome
from telephony.media_streams.protocol import Dtmf, MarkPlayed, Media, Protocol, Started, Stopped, Warned
from telephony.media_streams.socket import TextSocket
from telephony.playout import Playout
from telephony.profile import TWILIO, Profile
from telephony.wheel import Clock, Handle, TimerWheel
from tts_core.errors import LegClosed, LegError, PeerViolation, VoxwireError

__all__ = ["LegEvent", "MediaStreamLeg"]

logger = logging.getLogger(__name__)

LegEvent = Media | Dtmf | MarkEvent
"""What :meth:`MediaStreamLeg.events` yields."""

_PROBE = "~probe"
_PROOF_MEDIA = 50  # a second of the caller after the probe: the peer lives, and would have answered
_MAX_CONTROL = 512  # keys and marks nobody takes: no call presses that many
_SLACK_S = 1.0  # on top of the deadlines that the mark ledger keeps itself


class _Sink:
    """Puts the playout's messages on the socket."""

    __slots__ = ("_gone", "_protocol", "_socket")

    def __init__(self, protocol: Protocol, socket: TextSocket, gone: Callable[[VoxwireError], None]) -> None:
        self._protocol = protocol
        self._socket = socket
        self._gone = gone

    def media(self, payload: bytes) -> None:
        try:  # 17 times a second and call: not one call more than needed
            self._socket.send_text(self._protocol.media(payload))
        except LegClosed as error:
            self._gone(error)
            raise

    def mark(self, name: str) -> None:
        self._send(self._protocol.mark(name))

    def clear(self) -> None:
        self._send(self._protocol.clear())

    def _send(self, text: str) -> None:
        try:
            self._socket.send_text(text)
        except LegClosed as error:
            self._gone(error)
            raise


class MediaStreamLeg:
    """One call.

    Args:
        socket: accepted and authenticated already.
        wheel: the process's timer wheel, started.
        clock: monotonic seconds, the wheel's.
        profile: pacing; mu-law at 8 kHz is the only format Twilio takes.
        start_timeout_s: how long the peer may take to send ``start``.
        inbound_s: seconds of the caller's audio kept for a slow reader; older audio is dropped and counted.
        probe: send a mark at the start; a peer that keeps talking and never answers it is a one-way stream
            and is refused.

    Positions are samples at 8 kHz over the life of the leg (see :class:`~telephony.playout.Playout`).
    """

    def __init__(
        self,
        socket: TextSocket,
        wheel: TimerWheel,
        *,
        clock: Clock = time.monotonic,
        profile: Profile = TWILIO,
        start_timeout_s: float = 10.0,
        inbound_s: float = 2.0,
        probe: bool = True,
    ) -> None:
        if (profile.encoding, profile.rate) != ("mulaw", 8000):
            raise LegError("Twilio takes mu-law at 8 kHz only")
        self.protocol = Protocol()
        self.playout = Playout(
            profile, clock, _Sink(self.protocol, socket, self._finish), self._mark_ended, self._turn
        )
        self.inbound_dropped = 0
        self._socket = socket
        self._wheel = wheel
        self._start_timeout_s = start_timeout_s
        self._probe = probe
        self._inbound_max = max(1, round(inbound_s / 0.020))
        self._inbound: deque[LegEvent] = deque()
        self._media_held = 0
        self._media_after_probe = -1  # -1: no probe out
        self._probe_failed = False
        self._deaf = False
        self._handle: Handle | None = None
        self._reader: asyncio.Task[None] | None = None
        self._names = itertools.count()
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._started: asyncio.Future[Started] | None = None
        self._wake = asyncio.Event()  # something for events(), or the end
        self._room = asyncio.Event()
        self._blocked = 0  # calls of play() that wait for it
        self._end: VoxwireError | None = None

    # -- life ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> MediaStreamLeg:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> Started:
        """Read until ``start``; return it.

        Raises PeerViolation for a peer that breaks the protocol or is a one-way stream, LegClosed if it hangs
        up or takes too long; the socket is closed then.
        """
        self._started = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(self._start_timeout_s):
                return await asyncio.shield(self._started)
        except TimeoutError:
            await self.close(1002, "no start")
            raise LegClosed("the peer sent no start in time") from None
        except BaseException:
            await self.close()
            raise
        finally:
            if not self._started.done():
                self._started.cancel()
            elif not self._started.cancelled():
                self._started.exception()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close now, drop what is queued and wake everybody that waits. Safe to repeat and to cancel."""
        self._finish(LegClosed("the leg was closed"))
        try:
            await self._socket.close(code, reason)
        finally:
            if self._reader is not None and self._reader is not asyncio.current_task():
                self._reader.cancel()
                await asyncio.wait([self._reader])

    async def hangup(self) -> None:
        """Speak what is queued, then close: after the last mark, or two seconds after it was due.

        Closing makes Twilio go on after ``<Connect>`` in its TwiML: it hangs up if no verb follows.
        Cancelling it closes nothing.
        """
        try:
            await self.drained()
        except LegClosed:
            pass  # the listener was faster
        await self.close()

    @property
    def started(self) -> Started:
        """What the peer said at the start. Raises LegError before."""
        if self.protocol.started is None:
            raise LegError("the stream has not started")
        return self.protocol.started

    @property
    def closed(self) -> bool:
        """Whether the leg has ended."""
        return self._end is not None

    @property
    def error(self) -> VoxwireError | None:
        """Why it ended: LegClosed in the normal case."""
        return self._end

    # -- speaking -----------------------------------------------------------------------------------------

    async def play(self, data: bytes) -> None:
        """Queue mu-law at 8 kHz, waiting for room.

        What a :meth:`clear` meanwhile finds waiting is dropped, never played after the cut. Raises
        LegClosed when the listener is gone. Cancelling drops what was not queued yet.
        """
        generation = self.playout.generation
        view = memoryview(data)
        while view:
            self._check()
            size = min(len(view), self.playout.room_bytes())
            if not size:
                self._room.clear()
                self._blocked += 1
                try:
                    await self._room.wait()
                finally:
                    self._blocked -= 1
                self._check()
                if self.playout.generation != generation:
                    return
                continue
            self.playout.play(bytes(view[:size]))
            view = view[size:]

    def end_utterance(self) -> None:
        """The utterance ends here: its last frame is padded. Raises LegClosed."""
        self._check()
        self.playout.end_utterance()

    def mark(self, name: str) -> None:
        """Name the end of what was queued; a :class:`~telephony.marks.MarkEvent` says how it ended.

        Raises LegClosed; LegError when far too many marks wait.
        """
        self._check()
        self.playout.mark(name)

    def clear(self) -> int:
        """Cut now, on the wire in this loop turn; return the position heard. Works on a closed leg too."""
        heard = self.playout.heard_samples()
        try:
            return self.playout.clear()
        except LegClosed:
            return heard  # nothing is left to cut
        finally:
            self._room.set()

    def heard(self) -> int:
        """Position heard now; never beyond what was sent."""
        return self.playout.heard_samples()

    async def drained(self) -> None:
        """End the utterance and wait until the listener has heard all of it.

        It returns at the latest two seconds after the audio must have been played, also when
        :meth:`clear` cuts it. Raises LegClosed when the listener hangs up first.
        """
        self._check()
        self.playout.end_utterance()
        name = f"~drained.{next(self._names)}"
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[name] = waiter
        profile = self.playout.profile
        limit = self.playout.queued_s() + self.playout.lead_s() + profile.mark_timeout_s + profile.mark_gap_s
        try:
            self.playout.mark(name)
            async with asyncio.timeout(limit + _SLACK_S):
                await waiter
        except TimeoutError:
            logger.error("media stream: a mark was not ended by its deadline")
        finally:
            self._waiters.pop(name, None)

    # -- listening ----------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[LegEvent]:
        """Yield the caller's audio and keys and how marks ended, in order, until the leg ends.

        For one reader. Ends normally when the peer hangs up; raises PeerViolation when it was refused.
        """
        while True:
            while self._inbound:
                event = self._inbound.popleft()
                self._media_held -= isinstance(event, Media)
                yield event
            if self._end is not None:
                if isinstance(self._end, PeerViolation):
                    raise self._end
                return
            self._wake.clear()
            await self._wake.wait()

    # -- inside -------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._end is not None:
            raise self._end if isinstance(self._end, LegClosed) else LegClosed("the leg was refused")

    def _turn(self) -> None:
        """Sit on the wheel while there is something to do."""
        if self._end is None and self._handle is None:
            self._handle = self._wheel.add(self._tick)

    def _tick(self, due: float, now: float, missed: int) -> None:
        try:
            needed = self.playout.tick(due, now, missed)
        except LegError as error:
            self._finish(error)
            return
        if self._blocked and self.playout.room_bytes():
            self._room.set()
        if not needed and self._handle is not None:
            self._handle.cancel()
            self._handle = None

    async def _read(self) -> None:
        error: VoxwireError = LegClosed("the listener hung up")
        try:
            async for text in self._socket:
                for event in self.protocol.receive_text(text):
                    self._receive(event)
                if self.protocol.stopped or self._end is not None:
                    break
        except PeerViolation as violation:
            error = violation
            logger.error("media stream refused", extra={"reason": violation.message})
        except LegError as closed:
            error = closed
        finally:
            self._finish(error)
        if isinstance(self._end, PeerViolation):
            await self._socket.close(1002, "protocol violation")

    def _receive(self, event: object) -> None:
        if isinstance(event, Media):
            self._queue_media(event)
        elif isinstance(event, MarkPlayed):
            self.playout.mark_played(event.name)
        elif isinstance(event, Dtmf):
            self._queue(event)
        elif isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Warned):
            logger.warning("media stream: odd message", extra={"reason": f"{event.kind}: {event.detail}"})
        elif isinstance(event, Stopped):
            logger.debug("media stream stopped by the peer")

    def _begin(self, started: Started) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_result(started)
        if self._probe:
            # With nothing buffered a two-way stream answers at once; a one-way stream never does.
            self._media_after_probe = 0
            self.playout.mark(_PROBE)

    def _queue_media(self, media: Media) -> None:
        if self._media_after_probe >= 0:
            self._media_after_probe += 1
            self._judge_probe()
        if self._media_held >= self._inbound_max:
            oldest = next(i for i, event in enumerate(self._inbound) if isinstance(event, Media))
            del self._inbound[oldest]
            self._media_held -= 1
            self.inbound_dropped += 1
        self._media_held += 1
        self._queue(media)

    def _queue(self, event: LegEvent) -> None:
        if len(self._inbound) - self._media_held >= _MAX_CONTROL and not isinstance(event, Media):
            raise PeerViolation("more keys and marks than anybody can take")
        self._inbound.append(event)
        self._wake.set()

    def _mark_ended(self, event: MarkEvent) -> None:
        if event.name == _PROBE:
            self._probe_failed = event.outcome is Outcome.TIMED_OUT
            if not self._probe_failed:
                self._media_after_probe = -1
            return
        waiter = self._waiters.pop(event.name, None)
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(None)
            return
        if event.outcome is Outcome.TIMED_OUT and not self.playout.marks.answered and not self._deaf:
            self._deaf = True
            logger.error("media stream: the peer answers no marks; is it <Start><Stream>, which is one-way?")
        if self._end is None and len(self._inbound) - self._media_held < _MAX_CONTROL:
            self._inbound.append(event)
            self._wake.set()

    def _judge_probe(self) -> None:
        if self.protocol.two_way:
            self._media_after_probe = -1
        elif self._probe_failed and self._media_after_probe >= _PROOF_MEDIA:
            raise PeerViolation(
                "no mark was ever answered: this is a one-way stream and the caller hears nothing; "
                "use <Connect><Stream>, not <Start><Stream>"
            )

    def _finish(self, error: VoxwireError) -> None:
        if self._end is not None:
            return
        self._end = error
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._started is not None and not self._started.done():
            self._started.set_exception(error)
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(
                    error if isinstance(error, LegClosed) else LegClosed("the leg was refused")
                )
        self._waiters.clear()
        self.playout.close()
        self._wake.set()
        self._room.set()
