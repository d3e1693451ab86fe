"""One stream of text spoken as one turn, as a state machine without I/O.

A context takes text, flushes, an end or a cancel from its client, turns the text into work in order (segments
and flush marks), and keeps what is needed to say what the listener heard. It makes sure that exactly one
terminal event leaves it. The driver that speaks the work is ``sessions.runner``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tts_core.errors import BadRequest, TextTooLong, VoxwireError
from tts_core.text.segment import Segment, TextMode, TextOptions
from tts_core.text.segmenter import TextFrontEnd

from .events import AudioFormat, Cancelled, ContextStats, Done, Failed, Heard, Word
from .playback import Clock

MAX_ID = 256


class State(StrEnum):
    """Life of a context; the last three are final."""

    OPEN = "open"
    ENDING = "ending"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How a context is spoken.

    ``hold_s``: pause in the text after which complete clauses that only waited for look-ahead are spoken.
    ``max_buffer_delay_s``: pause after which whatever is held is spoken. ``idle_s``: an open context without
    text for this long ends with ContextIdle. ``run_ahead_s``: audio sent at most this far ahead of the
    listener. ``lead_in_ms``: silence before the first audio, for clients that lose their first samples.
    ``cache``: spoken phrases of this context may be kept for the tenant. ``max_characters``: of all its text,
    which may come, and so wait, at once.
    """

    voice: str = ""
    format: AudioFormat = field(default_factory=AudioFormat)
    speed: float = 1.0
    volume: float = 1.0
    seed: int | None = None
    text: TextOptions = field(default_factory=TextOptions)
    hold_s: float = 0.25
    max_buffer_delay_s: float = 3.0
    idle_s: float = 300.0
    run_ahead_s: float = 3.0
    lead_in_ms: int = 0
    cache: bool = False
    max_characters: int = 50_000

    def with_mode(self, mode: TextMode) -> ContextOptions:
        """A copy with another text mode."""
        return replace(self, text=replace(self.text, mode=mode))


@dataclass(frozen=True, slots=True)
class FlushMark:
    """A point in the work at which a Flushed event is due."""

    flush_id: int


STEP = 128
"""Characters looked at in one go: a tenth of a millisecond, and three where every character is a sign."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Something that is to be done to the text front end, in the client's order."""

    verb: str
    text: str = ""
    more: bool = False
    flush_id: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """A segment or flush mark, and the time (s, monotonic) at which it became ready."""

    item: Segment | FlushMark
    ready_at: float


class Context:
    """State of one context.

    Methods raise BadRequest where the client uses a context that has ended, and TextTooLong beyond limits;
    the context itself stays as it was.
    """

    def __init__(self, context_id: str, options: ContextOptions, clock: Clock) -> None:
        if not context_id or len(context_id) > MAX_ID:
            raise BadRequest(f"context id must have 1 to {MAX_ID} characters", field="context_id")
        self.id = context_id
        self.options = options
        self.state = State.OPEN
        self.stats = ContextStats()
        self.first_text_at: float | None = None
        self.last_text_at = clock()
        self._clock = clock
        self._front: TextFrontEnd | None = TextFrontEnd(options.text)
        """None once the context has ended."""
        self._work: deque[Work] = deque()
        self._backlog: deque[_Step] = deque()
        self._flushes = 0
        self._middles: dict[tuple[int, int], float] = {}
        """Of each word that was told, by where it stands in the text: the seconds at its middle."""
        self._whole: str | None = None
        """Everything the client sent, once the context has ended."""

    # What the client does

    def text(self, text: str) -> None:
        """Add text. Empty text is allowed and does nothing."""
        self._need_open()
        if self.stats.characters + len(text) > self.options.max_characters:
            raise TextTooLong(
                f"a context takes at most {self.options.max_characters} characters", field="text"
            )
        self.last_text_at = self._clock()
        if not text:
            return
        if self.first_text_at is None and text.strip():
            self.first_text_at = self.last_text_at
        self.stats.characters += len(text)
        for at in range(0, len(text), STEP):
            self._do(_Step("text", text[at : at + STEP], more=at + STEP < len(text)))

    def flush(self, flush_id: int | None = None) -> int:
        """Speak everything held; the returned id comes back in a Flushed event."""
        self._need_open()
        self.last_text_at = self._clock()
        self._flushes += 1
        if flush_id is None:
            flush_id = self._flushes
        self._do(_Step("flush"))
        self._do(_Step("mark", flush_id=flush_id))
        return flush_id

    def release(self) -> None:
        """The text paused: speak what only waited for look-ahead."""
        if self.state is State.OPEN:
            self._do(_Step("release"))

    def force(self) -> None:
        """The text paused for too long: speak everything held, without a flush mark."""
        if self.state is State.OPEN:
            self._do(_Step("flush"))

    def end(self) -> None:
        """No more text will come. A second end is ignored."""
        if self.state is State.ENDING:
            return
        self._need_open()
        self.state = State.ENDING
        self._do(_Step("end"))

    # What the driver does

    @property
    def source(self) -> str:
        """Everything the client sent."""
        if self._whole is not None:
            return self._whole
        begun = "" if self._front is None else self._front.source
        return begun + "".join(step.text for step in self._backlog)

    @property
    def held(self) -> bool:
        """Whether text waits in the front end."""
        return self._front is not None and self._front.held

    @property
    def has_work(self) -> bool:
        """Whether a segment or flush mark waits, or text that ``step`` has not looked at."""
        return bool(self._work or self._backlog)

    def step(self) -> bool:
        """Look at the next part of a long text; False when there is none."""
        if not self._backlog:
            return False
        self._take(self._backlog.popleft())
        return True

    @property
    def ending(self) -> bool:
        """Whether the client has sent the end."""
        return self.state is not State.OPEN

    @property
    def terminal(self) -> bool:
        """Whether the terminal event has been made."""
        return self.state in {State.DONE, State.CANCELLED, State.FAILED}

    def next_work(self) -> Work | None:
        """Take the next piece of work, None when there is none."""
        if not self._work:
            return None
        return self._work.popleft()

    def spoke(self, words: tuple[Word, ...]) -> None:
        """Remember words told to the listener, in order; of one that comes again, the times are known now."""
        for word in words:
            self._middles[word.text_start, word.text_end] = (word.start + word.end) / 2

    def heard(self, samples: int) -> Heard:
        """What a listener at ``samples`` (output rate) has heard.

        A word counts as heard when its middle has been played; the text is cut after the last such word.
        """
        rate = self.options.format.rate
        cut = 0
        for (_, end), middle in self._middles.items():
            if middle * rate > samples + 0.5 or samples <= 0:
                break
            cut = end
        source = self.source
        return Heard(samples, round(samples * 1000 / rate), source[:cut], source[cut:])

    def finish(self, total_samples: int) -> Done:
        """All is spoken: the terminal event. Raises RuntimeError if there was one before."""
        self._terminate(State.DONE)
        return Done(self.id, total_samples, self.stats)

    def cancel(self, sent_samples: int, heard_samples: int) -> Cancelled:
        """The client cut the context: the terminal event."""
        self._terminate(State.CANCELLED)
        return Cancelled(self.id, sent_samples, self.heard(heard_samples), self.stats)

    def fail(self, error: VoxwireError) -> Failed:
        """Something went wrong: the terminal event."""
        self._terminate(State.FAILED)
        return Failed(self.id, error, self.stats)

    def _terminate(self, state: State) -> None:
        if self.terminal:
            raise RuntimeError(f"context {self.id!r} has ended already")
        self.state = state
        # It may be kept for a while, to be asked what was heard of it: no more than that is needed.
        self._whole = self.source
        self._work.clear()
        self._backlog.clear()
        self._front = None

    def _need_open(self) -> None:
        if self.state is State.ENDING:
            raise BadRequest("the context takes no more text: its end was sent", field="context_id")
        if self.terminal:
            raise BadRequest("the context has ended", field="context_id")

    def _do(self, step: _Step) -> None:
        # Short texts are looked at here and now, the parts of long ones one by one from the driver's task.
        if self._backlog or step.more:
            self._backlog.append(step)
        else:
            self._take(step)

    def _take(self, step: _Step) -> None:
        if self._front is None:
            return
        match step.verb:
            case "text":
                self._add(self._front.feed(step.text, more=step.more))
            case "flush":
                self._add(self._front.flush())
            case "release":
                self._add(self._front.release())
            case "end":
                self._add(self._front.end())
            case "mark":
                self._work.append(Work(FlushMark(step.flush_id), self._clock()))

    def _add(self, segments: list[Segment]) -> None:
        for segment in segments:
            if self.stats.first_segment < 0 and self.first_text_at is not None:
                self.stats.first_segment = self._clock() - self.first_text_at
            self._work.append(Work(segment, self._clock()))
