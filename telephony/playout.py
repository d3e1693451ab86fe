"""Playout of one leg: a bounded queue, one writer, a bounded lead, marks, and what was heard.

The leg's only writer is :class:`Playout`: speech and keep-alive silence go through it, so they never
interleave (openclaw PR118727). It is sans-I/O: the timer wheel calls :meth:`Playout.tick`, the sink puts
messages on the wire at once, and time comes from the injected clock.

Pacing towards a peer with a buffer keeps its *lead* (audio sent ahead of playout) at the profile's target.
The lead is computed, not counted in ticks, so after any stall the next tick sends what is missing: never more
than the lead, and after a stall longer than the lead the playout clock has been rebased and the audio goes on
from there. A peer without a buffer gets one frame a tick, and misses what a stall ate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from telephony.dsp import fade, pcm
from telephony.marks import MarkEvent, MarkLedger
from telephony.playclock import PlayoutClock
from telephony.profile import Profile
from telephony.wheel import Clock
from tts_core.errors import LegClosed, LegError

__all__ = ["Playout", "PlayoutStats", "Sink"]

_GAP_S = 0.001  # a dry spell shorter than this is rounding, not a gap


class Sink(Protocol):
    """Where the messages go. Each call writes at once, in this loop turn, and never waits."""

    def media(self, payload: bytes) -> None:
        """Send whole frames of encoded audio."""

    def mark(self, name: str) -> None:
        """Ask the peer to confirm that everything sent so far has been played."""

    def clear(self) -> None:
        """Ask the peer to drop what it has not played."""


@dataclass(slots=True)
class PlayoutStats:
    """Counts of one leg.

    ``underruns``/``underrun_s``: times the listener ran dry within an utterance because no audio was there,
    and for how long. ``stalls``/``stall_s``: the same because we sent too late although audio was there (the
    clock was rebased). ``dropped_samples``: queued audio cut before it was sent.
    """

    messages: int = 0
    frames: int = 0
    silence_frames: int = 0
    underruns: int = 0
    underrun_s: float = 0.0
    stalls: int = 0
    stall_s: float = 0.0
    dropped_samples: int = 0
    padded_samples: int = 0


class Playout:
    """One leg's playout.

    Args:
        profile: what the peer wants.
        clock: monotonic seconds.
        sink: the wire. An exception of the sink goes through to the caller of the method that sent.
        on_mark: told how each mark ended; called from within the method that found out.
        on_busy: called when ticks are needed from now on (see :attr:`busy`).

    Positions and counts are samples at the profile's rate, over the life of the leg. Silence that the profile
    demands between utterances is not counted in them; the padding of an utterance's last frame is.
    """

    def __init__(
        self,
        profile: Profile,
        clock: Clock,
        sink: Sink,
        on_mark: Callable[[MarkEvent], None] | None = None,
        on_busy: Callable[[], None] | None = None,
    ) -> None:
        self.profile = profile
        self.stats = PlayoutStats()
        self._clock = clock
        self._sink = sink
        self._on_mark = on_mark
        self._on_busy = on_busy
        self._buffer = bytearray()
        self._capacity = round(profile.queue_s / profile.frame_s) * profile.frame_bytes
        self._playclock = PlayoutClock(profile.rate)
        self.marks = MarkLedger(
            self._playclock,
            peer_marks=profile.has_marks,
            min_gap_s=profile.mark_gap_s,
            timeout_s=profile.mark_timeout_s,
        )
        self._open = False  # within an utterance
        self._started: float | None = None  # when its first frame left
        self._held_back = False  # whole frames waited for the lead when we last looked
        self._next_send = -math.inf  # while they do: the lead takes no message before
        self._ticking = False  # on_busy was told and ticks have not ended
        self._marking = False  # marks wait, here or at the peer
        self._dry = False  # our clock, and a tick found nothing to send within the utterance
        self._tail = b""  # faded end of what was cut, sent with the next tick
        self._closed_at: int | None = None  # position heard when the listener went

    @property
    def sent_samples(self) -> int:
        """Samples sent."""
        return self._playclock.sent

    @property
    def position(self) -> int:
        """Position at which the next byte given to :meth:`play` will lie."""
        return self._playclock.sent + len(self._buffer) // self.profile.width

    @property
    def generation(self) -> int:
        """Counts the clears."""
        return self.marks.generation

    @property
    def busy(self) -> bool:
        """Whether ticks are needed: frames or marks wait, or the profile demands silence."""
        if self._closed_at is not None:
            return False
        if self.profile.needs_silence or self._tail or len(self._buffer) >= self.profile.frame_bytes:
            return True
        return len(self.marks) > 0

    def queued_s(self) -> float:
        """Seconds of audio that wait here."""
        return len(self._buffer) / self.profile.width / self.profile.rate

    def room(self) -> float:
        """Seconds of audio that :meth:`play` takes now."""
        return self.room_bytes() / self.profile.width / self.profile.rate

    def room_bytes(self) -> int:
        """The same in bytes; whole samples."""
        return max(0, self._capacity - len(self._buffer))

    def lead_s(self) -> float:
        """Seconds of audio that the peer has ahead of playout (its buffer and what is under way)."""
        return self._playclock.lead(self._clock())

    def heard_samples(self) -> int:
        """Position heard now: the last confirmed mark and the time since; never beyond what was sent."""
        return self.marks.heard(self._clock()) if self._closed_at is None else self._closed_at

    def play(self, data: bytes) -> None:
        """Queue encoded audio, and send what the lead allows at once.

        Raises:
            LegError: the queue has not that much room (wait for it), the bytes end within a sample, or they
                 are a file with a header, which would be heard as noise.
            LegClosed: after :meth:`close`.
        """
        self._check()
        if not data:
            return
        if len(data) > self.room_bytes():
            raise LegError("the playout queue is full")
        if len(data) % self.profile.width:
            raise LegError("audio ends within a sample")
        if not self._open:
            if _is_file(data):
                raise LegError("audio must have no file header")
            self._open = True
            self._started = None
        elif self._dry and self.profile.owns_clock:
            data = self._faded_in(data)
        self._dry = False
        self._buffer += data
        if not self._held_back or not self._ticking or self._clock() >= self._next_send:
            self._kick()

    def end_utterance(self) -> None:
        """Pad the last frame with silence and send it; being dry from here on is no underrun.

        Nothing happens after :meth:`close`.
        """
        over = len(self._buffer) % self.profile.frame_bytes
        if over:
            padding = self.profile.silence[over:]
            self.stats.padded_samples += len(padding) // self.profile.width
            self._buffer += padding
        self._open = False
        self._dry = False
        self._kick()

    def mark(self, name: str) -> None:
        """Name the end of the audio queued so far; ``on_mark`` says how the mark ended, always.

        The mark goes out after the frame that holds its position, so end the utterance where it ends. Raises
        LegError when far too many wait, LegClosed after :meth:`close`.
        """
        self._check()
        self.marks.sent(name, self.position)
        self._marking = True
        self._send_mark(self._clock())
        self._kick()

    def clear(self) -> int:
        """Cut: drop the queue, tell the peer in this same call, end all marks; return the position heard.

        Nothing given to :meth:`play` before is sent after, except, where we own the playout clock, a fade of
        ``fade_ms`` so that the cut does not click. Safe to repeat; after :meth:`close` it only tells.
        """
        if self._closed_at is not None:
            return self._closed_at
        now = self._clock()
        cut = bytes(self._buffer[: self.profile.frame_bytes])
        self.stats.dropped_samples += len(self._buffer) // self.profile.width
        self._buffer.clear()
        outstanding = self._playclock.sent > self._playclock.start
        heard, events = self.marks.clear(now)
        self._open = self._held_back = self._dry = False
        self._started = None
        try:
            if self.profile.has_clear and outstanding:
                self._sink.clear()
        finally:
            if self.profile.owns_clock and cut and outstanding:
                self._tail = self._faded_out(cut)
            self._tell(events)
        if self._tail:
            self._kick()
        return heard

    def close(self) -> int:
        """The listener is gone: drop everything, end all marks, send no more; return the position heard."""
        if self._closed_at is None:
            self.stats.dropped_samples += len(self._buffer) // self.profile.width
            self._buffer.clear()
            self._tail = b""
            self._held_back = False
            heard, events = self.marks.clear(self._clock())
            self._closed_at = heard
            self._tell(events)
        return self._closed_at

    def mark_played(self, wire_name: str) -> None:
        """Take the peer's confirmation of a mark that the sink was given."""
        self._tell(self.marks.acked(wire_name, self._clock()))

    def tick(self, due: float, now: float, missed: int = 0) -> bool:
        """Serve one period of the timer wheel, due at ``due`` and served at ``now``.

        Returns whether ticks are needed further on; if not, ``on_busy`` tells when they are again.
        """
        if due < self._next_send and self._held_back and not self._marking:
            return True  # most ticks: the listener has enough for now
        if self._closed_at is not None:
            return False
        if self.profile.owns_clock:
            self._step(due, missed)
        else:
            self._pump(now, due)
        if self._marking:
            self._send_mark(now)
            self._tell(self.marks.expire(now))
            self._marking = self.marks.pending
        self._ticking = self.busy
        return self._ticking

    def _check(self) -> None:
        if self._closed_at is not None:
            raise LegClosed("the listener is gone")

    def _kick(self) -> None:
        """Send what may go now; ask for ticks for the rest."""
        if not self.profile.owns_clock and self._closed_at is None:
            now = self._clock()
            self._pump(now, now)
        if self._on_busy is not None and not self._ticking and self.busy:
            self._ticking = True
            self._on_busy()

    def _pump(self, now: float, due: float) -> None:
        """Fill the peer's buffer up to the lead.

        The lead is judged at the deadline, so that a tick a little late does not put a message off.
        """
        profile = self.profile
        frames = len(self._buffer) // profile.frame_bytes
        if not frames:
            self._held_back = False
            return
        lead = max(0.0, self._playclock.floor_end - due)
        first = self._started is None
        started = now if self._started is None else self._started
        target = profile.first_burst_s if now - started < profile.first_burst_s else profile.lead_s
        low = target / 2
        frame_s = profile.frame_s
        while frames:
            allowed = min(frames, profile.max_message_frames, int((target - lead) / frame_s + 1e-6))
            if allowed <= 0 or (allowed < profile.message_frames and lead > low and self._open):
                break
            if profile.message_frames <= allowed < frames:
                allowed -= allowed % profile.message_frames
            self._emit(allowed, now, first)
            first = False
            frames -= allowed
            lead += allowed * frame_s
            if self._marking:
                self._send_mark(now)
        self._held_back = frames > 0
        if frames:
            # A fall of the target after the first burst only makes it later.
            self._next_send = self._playclock.floor_end - target + profile.message_frames * frame_s - _GAP_S

    def _step(self, due: float, missed: int) -> None:
        """Send the frames of one tick to a peer that plays what comes when it comes."""
        profile = self.profile
        # What a stall ate beyond the lead is gone: a burst would be dropped or stretch the call's delay.
        steps = 1 + min(missed, int(profile.lead_s / profile.frame_s + 1e-6))
        if missed and len(self._buffer) >= profile.frame_bytes * (1 + missed) and steps <= missed:
            self.stats.stalls += 1
            self.stats.stall_s += (1 + missed - steps) * profile.frame_s
        for _ in range(steps):
            if self._tail:
                tail, self._tail = self._tail, b""
                self._sink.media(tail)
                self.stats.messages += 1
            elif len(self._buffer) >= profile.frame_bytes:
                self._emit(1, due, True)
            else:
                if self._open and self._started is not None:
                    self.stats.underruns += not self._dry
                    self.stats.underrun_s += profile.frame_s
                    self._dry = True
                if profile.needs_silence:
                    self._sink.media(profile.silence)
                    self.stats.messages += 1
                    self.stats.silence_frames += 1

    def _emit(self, frames: int, now: float, first: bool) -> None:
        size = frames * self.profile.frame_bytes
        payload = bytes(self._buffer[:size])
        del self._buffer[:size]
        gap = self._playclock.add(frames * self.profile.frame_samples, now)
        if gap > _GAP_S and not first:
            if self._held_back:
                self.stats.stalls += 1
                self.stats.stall_s += gap
            else:
                self.stats.underruns += 1
                self.stats.underrun_s += gap
        if self._started is None:
            self._started = now
        self.stats.frames += frames
        self.stats.messages += 1
        self._sink.media(payload)

    def _send_mark(self, now: float) -> None:
        name = self.marks.due(now)
        if name is not None:
            self._sink.mark(name)

    def _tell(self, events: list[MarkEvent]) -> None:
        if self._on_mark is not None:
            for event in events:
                self._on_mark(event)

    def _faded_out(self, data: bytes) -> bytes:
        profile = self.profile
        samples = pcm.decode(data, profile.encoding)
        samples = samples[: round(profile.rate * profile.fade_ms / 1000)]
        faded = pcm.encode(fade.fade_out(samples, profile.rate, profile.fade_ms), profile.encoding)
        return faded + profile.silence[len(faded) :]

    def _faded_in(self, data: bytes) -> bytes:
        profile = self.profile
        samples = pcm.decode(data, profile.encoding)
        return pcm.encode(fade.fade_in(samples, profile.rate, profile.fade_ms), profile.encoding)


def _is_file(data: bytes) -> bool:
    """Whether audio begins with a container's header (aiavatarkit PR339, twilio/media-streams#56).

    Only signatures too long to occur by chance in samples.
    """
    if data[:4] in (b"RIFF", b"RIFX") and data[8:12] == b"WAVE":
        return True
    if data[:4] in (b"OggS", b"fLaC", b".snd"):
        return True
    return len(data) >= 10 and data[:3] == b"ID3" and data[3] < 5 and all(byte < 0x80 for byte in data[6:10])
