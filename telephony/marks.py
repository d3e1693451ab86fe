"""The mark ledger: which named points of the audio the listener has reached.

Rules (reference, telephony 4.1 and 5):

* Twilio and Telnyx return pending marks when their buffer is cleared. Each ``clear`` starts a new
  *generation*, the wire name carries it, and an answer from an older one never counts as heard.
* A mark not answered ``queued + 2 s`` after it was sent is given up; the clock goes on alone.
* An answer that comes before the audio can have been played is a peer that answers at once
  (jambonz-feature-server#811): it is not believed, the clock decides, and after three the peer's marks are
  never believed again.
* A mark per small chunk delays the audio (twilio-samples openai python#20): at most five a second go out. A
  mark asked for sooner rides on the next one that does, so it is answered no earlier than it was reached.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from telephony.playclock import PlayoutClock
from tts_core.errors import LegError

__all__ = ["MarkEvent", "MarkLedger", "Outcome"]

_MAX_WAITING = 1024  # marks asked for and not yet answered: far more than five a second can pile up
_MAX_EARLY = 3
_DRIFT = 500e-6  # clocks of real peers differ by up to 200 ppm; allow for more
_DRIFT_SPAN_S = 600.0  # and for no more than ten minutes of speech without a pause


class Outcome(StrEnum):
    """How a mark ended."""

    PLAYED = "played"
    """The peer confirmed it."""
    CLOCK = "clock"
    """Our clock says it was reached; the peer has no marks, or its answers are not believed."""
    TIMED_OUT = "timed_out"
    """The peer never answered."""
    CLEARED = "cleared"
    """The audio before it was cut."""


@dataclass(frozen=True, slots=True)
class MarkEvent:
    """A mark that ended. ``at_sample``: its position in the samples sent on the leg."""

    name: str
    at_sample: int
    outcome: Outcome


@dataclass(slots=True)
class _Wire:
    """A mark on the wire and those that ride on it."""

    name: str
    at_sample: int
    due: float
    earliest: float
    deadline: float
    riders: list[tuple[str, int]]
    timed: bool  # audio was still to be played when it was sent: its answer tells a time
    by_clock: bool = False


class MarkLedger:
    """Marks of one leg. Sans-I/O: times are passed in, names to send are returned.

    Args:
        clock: the leg's playout clock; the ledger confirms positions on it.
        peer_marks: whether the peer answers marks at all; if not, all go by the clock.
        min_gap_s: least seconds between two marks on the wire.
        timeout_s: seconds after a mark's due time at which it is given up.
        early_s: how much earlier than possible an answer may come (clock granularity of the peer).
    """

    def __init__(
        self,
        clock: PlayoutClock,
        *,
        peer_marks: bool = True,
        min_gap_s: float = 0.2,
        timeout_s: float = 2.0,
        early_s: float = 0.05,
    ) -> None:
        self.trusted = peer_marks
        self.generation = 0
        self.answered = 0  # answers to marks of ours, of any generation
        self.early = 0
        self.stale = 0
        self.unknown = 0
        self.timed_out = 0
        self._clock = clock
        self._min_gap_s = min_gap_s
        self._timeout_s = timeout_s
        self._early_s = early_s
        self._waiting: deque[tuple[str, int]] = deque()
        self._wires: deque[_Wire] = deque()
        self._sequence = 0
        self._last_wire = float("-inf")

    def __len__(self) -> int:
        """Marks asked for that have not ended."""
        return len(self._waiting) + sum(len(wire.riders) for wire in self._wires)

    @property
    def pending(self) -> bool:
        """Whether any mark has not ended; cheaper than the length."""
        return bool(self._waiting or self._wires)

    def sent(self, name: str, at_sample: int) -> None:
        """Ask for a mark at ``at_sample`` (not before earlier ones). Raises LegError when too many wait."""
        if len(self._waiting) >= _MAX_WAITING:
            raise LegError("too many marks wait for audio")
        self._waiting.append((name, at_sample))

    def due(self, now: float) -> str | None:
        """Return the wire name of a mark to send now, after all that was sent; ``None`` if none is due."""
        sent = self._clock.sent
        if not self._waiting or self._waiting[0][1] > sent or now - self._last_wire < self._min_gap_s - 1e-9:
            return None
        riders = []
        while self._waiting and self._waiting[0][1] <= sent:
            riders.append(self._waiting.popleft())
        due = max(now, self._clock.floor_end)
        self._sequence += 1
        self._last_wire = now
        wire = _Wire(
            name=f"{self.generation}.{self._sequence}:{sent}",
            at_sample=sent,
            due=due,
            earliest=due
            - self._early_s
            - _DRIFT * max(0.0, due - max(self._clock.since, due - _DRIFT_SPAN_S)),
            deadline=due + self._timeout_s,
            riders=riders,
            timed=due > now,
            by_clock=not self.trusted,
        )
        self._wires.append(wire)
        return None if wire.by_clock else wire.name

    def acked(self, wire_name: str, now: float) -> list[MarkEvent]:
        """Take an answer from the peer; return the marks that it ends, oldest first."""
        generation = _generation(wire_name)
        if generation is not None and generation < self.generation:
            self.answered += 1
            self.stale += 1
            return []
        wire = next((wire for wire in self._wires if wire.name == wire_name), None)
        if wire is None:
            self.unknown += 1
            return []
        self.answered += 1
        if wire.by_clock:
            return []
        if now < wire.earliest:
            self.early += 1
            wire.by_clock = True
            if self.early >= _MAX_EARLY:
                self.trusted = False
                for pending in self._wires:
                    pending.by_clock = True
            return []
        self._clock.confirm(wire.at_sample, now, timed=wire.timed)
        events = []
        while self._wires:
            # The peer plays in order: what comes before a confirmed mark has been played too.
            first = self._wires.popleft()
            events += _end(first, Outcome.PLAYED)
            if first is wire:
                break
        return events

    def expire(self, now: float) -> list[MarkEvent]:
        """End the marks that the clock decides and those given up; return them, oldest first."""
        events: list[MarkEvent] = []
        while self._wires:
            first = self._wires[0]
            if first.by_clock and now >= first.due - 1e-9:
                events += _end(self._wires.popleft(), Outcome.CLOCK)
            elif not first.by_clock and now >= first.deadline - 1e-9:
                self.timed_out += 1
                events += _end(self._wires.popleft(), Outcome.TIMED_OUT)
            else:
                break
        return events

    def clear(self, now: float) -> tuple[int, list[MarkEvent]]:
        """The peer's buffer is cleared at ``now``: start a generation.

        Returns the position heard and the marks that end. A mark already passed by the heard position is not
        called played: the peer has not said so.
        """
        heard = self._clock.cut(now)
        events = [event for wire in self._wires for event in _end(wire, Outcome.CLEARED)]
        events += [MarkEvent(name, at, Outcome.CLEARED) for name, at in self._waiting]
        self._wires.clear()
        self._waiting.clear()
        self.generation += 1
        self._last_wire = float("-inf")
        return heard, events

    def heard(self, now: float) -> int:
        """Position heard by ``now``, in samples sent on the leg; never beyond what was sent."""
        return self._clock.heard(now)


def _end(wire: _Wire, outcome: Outcome) -> list[MarkEvent]:
    return [MarkEvent(name, at, outcome) for name, at in wire.riders]


def _generation(wire_name: str) -> int | None:
    head, dot, _ = wire_name.partition(".")
    return int(head) if dot and head.isascii() and head.isdigit() and len(head) < 10 else None
