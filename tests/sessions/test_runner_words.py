"""Words through the whole runner: whatever is spoken for them, and however the engine cuts and marks it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.events import Audio, AudioFormat, Cancelled, Done, Encoding, Word, Words
from sessions.runner import CLAUSE_GAP_S, SENTENCE_GAP_S
from tests import virtual
from tests.sessions.test_runner import Desk
from tests.tone import RATE, ToneEngine
from tts_core.engine import SpeechChunk, SpeechRequest, WordMark
from tts_core.text.alignment import AlignmentBuilder
from tts_core.text.segment import Segment, TextOptions, Utterance

OUT = 8000
FRAME = round(RATE * 0.0464)
"""A chunk of GEPARD's, where it makes one frame at a time."""


@dataclass(frozen=True)
class Marking:
    """How an engine marks.

    ``when``: all with the first chunk ("early"), each with the chunk in which its word begins ("in time") or
    with the one after ("late"). ``cut``: no mark ends beyond the audio that there is with it.
    """

    when: str = "early"
    cut: bool = False


class Speaker(ToneEngine):
    """A word takes what its letters and ``speeds`` make it, a chunk is of ``sizes``; both lists repeat."""

    def __init__(self, marking: Marking, speeds: list[float], sizes: list[int]) -> None:
        super().__init__()
        self.marking, self.speeds, self.sizes = marking, speeds, sizes
        self.made: list[tuple[tuple[WordMark, ...], int]] = []

    def marks(self, text: str) -> tuple[WordMark, ...]:
        """What is true."""
        out, at = [], 0
        for match, speed in zip(re.finditer(r"\S+", text), cycle(self.speeds)):
            length = round(RATE * speed * len(match[0]))
            out.append(WordMark(*match.span(), at, at + length))
            at += length
        return tuple(out)

    async def synthesize(self, request: SpeechRequest) -> AsyncIterator[SpeechChunk]:
        self.requests.append(request)
        true = self.marks(request.text)
        total = true[-1].sample_end
        self.made.append((true, total))
        waiting, end = list(true), 0
        for size in cycle(self.sizes):
            await asyncio.sleep(0)
            begin, end = end, min(end + size, total)
            last = end == total
            due = {"early": total, "in time": end, "late": begin}[self.marking.when]
            ready = [m for m in waiting if last or m.sample_start < due]
            del waiting[: len(ready)]
            if self.marking.cut:
                ready = [replace(m, sample_end=max(m.sample_start, min(m.sample_end, end))) for m in ready]
            yield SpeechChunk(np.full(end - begin, 0.1, np.float32), begin, tuple(ready), last)
            if last:
                return


NUMBERS = {"1": "one", "2": "twenty two", "3": "three hundred dollars", "4": "forty four thousand and four"}


class Numbers:
    """Speaks digits as words, neighbours that end in "/" as one, and bare signs not at all."""

    def __init__(self) -> None:
        self.utterances: list[Utterance] = []

    async def normalise(self, segment: Segment) -> Utterance:
        builder, text = AlignmentBuilder(), segment.text
        joined = -1
        for match in re.finditer(r"\S+", text):
            word = match[0]
            spoken = " ".join(NUMBERS[c] for c in word if c in NUMBERS)
            joined = match.start() if joined < 0 else joined
            if word.endswith("/"):
                continue
            if spoken:
                builder.replace(spoken, joined, match.end())
            elif word.isalnum() or word[:-1].isalnum():
                builder.copy(word, match.start())
            else:
                joined = -1
                continue
            builder.replace(" ", match.end() - 1, match.end())
            joined = -1
        spoken, alignment = builder.build()
        utterance = Utterance(segment, spoken.rstrip(), segment.alignment.then(alignment))
        if utterance.text:
            self.utterances.append(utterance)
        return utterance


def desk_of(engine: Speaker) -> tuple[Desk, Numbers]:
    desk = Desk(
        engine,
        format=AudioFormat(Encoding.PCM_S16LE, OUT),
        text=TextOptions(clean=False, tags=False),
        run_ahead_s=1000.0,
    )
    numbers = Numbers()
    desk.runner._speech = replace(desk.runner._speech, normaliser=numbers)
    return desk, numbers


def told(desk: Desk) -> list[Word]:
    """The words, each found to be told no later than its audio, in order, and not overlapping."""
    sent, clock, out = 0.0, 0.0, []
    for _, event in desk.events:
        if isinstance(event, Audio):
            sent = (event.start_sample + event.samples) / OUT
        if isinstance(event, Words):
            for word in event.words:
                assert word.start >= sent - 1.5 / OUT, "a word after its audio"
                assert clock <= word.start <= word.end, "words overlap"
                clock = word.end
                out.append(word)
    return out


def truth(engine: Speaker, numbers: Numbers) -> dict[int, float]:
    """When the middle of a word is heard, by where it ends in the text; of those that share no time."""
    middles: dict[int, float] = {}
    at, gap = 0, 0.0
    for utterance, (marks, total) in zip(numbers.utterances, engine.made, strict=True):
        at += round(gap * RATE)
        times: dict[tuple[int, int], list[int]] = {}
        for mark in marks:
            source = utterance.alignment.source_range(mark.text_start, mark.text_end)
            times.setdefault(source, []).extend((at + mark.sample_start, at + mark.sample_end))
        for (a, b), samples in times.items():
            word = utterance.segment.text[
                a - utterance.segment.source_start : b - utterance.segment.source_start
            ]
            if "/" not in word:
                middles[b] = (min(samples) + max(samples)) / 2 / RATE
        at += total
        gap = SENTENCE_GAP_S if utterance.segment.ends_sentence else CLAUSE_GAP_S
    return middles


words = st.sampled_from(
    ["a", "bcd", "efghijk", "1", "2,", "3", "$44", "22.", "x.", "no?", "-", "3/", "1/", "4."]
)
speeds = st.lists(st.floats(0.01, 0.2), min_size=1, max_size=5)
sizes = st.one_of(
    st.just([FRAME]),
    st.lists(st.integers(1, 30_000), min_size=1, max_size=6).filter(lambda n: sum(n) > 900 * len(n)),
)
markings = st.builds(Marking, st.sampled_from(["early", "in time", "late"]), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=14), st.integers(1, 30), speeds, sizes, markings)
def test_words_are_told_in_time_in_order_and_whole(
    said: list[str], piece: int, speeds: list[float], sizes: list[int], marking: Marking
) -> None:
    text = " ".join(["So", *said, "end"])
    engine = Speaker(marking, speeds, sizes)

    async def speak() -> None:
        desk, numbers = desk_of(engine)
        for at in range(0, len(text), piece):
            desk.runner.text(text[at : at + piece])
            await asyncio.sleep(0)
        desk.runner.end()
        await desk.end()
        assert desk.of(Done)
        words = told(desk)
        assert [text[w.text_start : w.text_end] for w in words] == [w.text for w in words] == text.split()
        if marking.cut:
            return
        # Once all is marked, what was heard is as exact as the marks, whenever they came.
        for end, middle in truth(engine, numbers).items():
            assert len(desk.context.heard(round((middle + 0.003) * OUT)).text) >= end
            assert len(desk.context.heard(round((middle - 0.003) * OUT)).text) < end

    virtual.run(speak)


def test_a_long_number_that_is_cut_short_was_heard_or_not_by_its_own_middle() -> None:
    """Told with its first frame, as it is spoken for another two seconds: the barge-in is not fooled."""

    async def speak(heard_s: float) -> str:
        engine = Speaker(Marking("in time", cut=True), [0.06], [FRAME])
        desk, _ = desk_of(engine)
        desk.runner.text("So 4. ")
        desk.runner.end()
        while not desk.of(Done) and desk.audio_s < heard_s + 0.5:
            await asyncio.sleep(0)
        assert [w.text for w in told(desk)] == ["So", "4."]
        await asyncio.sleep(heard_s)
        event = desk.context.heard(desk.playback.heard()) if desk.of(Done) else await desk.runner.cancel()
        await desk.end()
        return (event.heard if isinstance(event, Cancelled) else event).text if event else ""

    # "So" takes 0.12 s, "forty four thousand and four" 1.44 s.
    for heard_s, text in ((0.02, ""), (0.3, "So"), (0.7, "So"), (1.0, "So 4."), (1.5, "So 4.")):
        found: list[str] = []

        async def run(heard_s: float = heard_s, found: list[str] = found) -> None:
            found.append(await speak(heard_s))

        virtual.run(run)
        assert found == [text], heard_s


def test_no_audio_waits_for_the_words() -> None:
    async def run() -> None:
        desk, _ = desk_of(Speaker(Marking("in time"), [0.06], [FRAME]))
        desk.runner.text("4 4 4 and more. ")
        desk.runner.end()
        await desk.end()
        first = next(i for i, (_, e) in enumerate(desk.events) if isinstance(e, Audio))
        assert first <= 1
        assert [w.text for w in told(desk)] == ["4", "4", "4", "and", "more."]

    virtual.run(run)
