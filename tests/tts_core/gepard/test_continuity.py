from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tts_core.gepard.cases import random_codes
from tests.virtual import Clock
from tts_core.engine import SpeechRequest
from tts_core.gepard.continuity import FORGET_S, MOST_FRAMES, STREAMS, Continuity

FIRST = SpeechRequest("s/c/0", "Hello there.", "default", salt="t")
NEXT = replace(FIRST, id="s/c/1", text="How are you?", continues="Hello there.")
CODES = random_codes(20)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_next_segment_of_a_stream_gets_the_one_before(clock: Clock) -> None:
    continuity = Continuity(clock=clock)
    assert continuity.before(NEXT) is None
    continuity.keep(FIRST, CODES)
    before = continuity.before(NEXT)
    assert before is not None
    assert before.text == FIRST.text
    assert np.array_equal(before.codes, CODES)
    assert continuity.before(replace(NEXT, continues="there.")) is before  # the tail of a long text


@pytest.mark.parametrize(
    "other",
    [
        {"id": "s/d/1"},
        {"voice": "plain"},
        {"salt": "another tenant"},
        {"continues": ""},
        {"continues": "Something else."},
    ],
)
def test_nobody_else_does(clock: Clock, other: dict[str, str]) -> None:
    continuity = Continuity(clock=clock)
    continuity.keep(FIRST, CODES)
    assert continuity.before(replace(NEXT, **other)) is None  # type: ignore[arg-type]


def test_long_old_and_broken_segments_are_not_gone_on_from(clock: Clock) -> None:
    continuity = Continuity(clock=clock)
    continuity.keep(FIRST, random_codes(MOST_FRAMES + 1))
    assert len(continuity) == 0
    continuity.keep(FIRST, CODES)
    clock.now += FORGET_S + 1
    assert continuity.before(NEXT) is None
    continuity.keep(FIRST, CODES)
    continuity.drop(NEXT)
    assert continuity.before(NEXT) is None
    off = Continuity(0, clock)
    off.keep(FIRST, CODES)
    assert len(off) == 0


def test_it_stays_small_and_forgets_a_deleted_voice(clock: Clock) -> None:
    continuity = Continuity(clock=clock)
    for i in range(STREAMS + 5):
        continuity.keep(replace(FIRST, id=f"s{i}/0", salt=str(i % 2)), CODES)
    assert len(continuity) == STREAMS
    continuity.forget("0")
    assert len(continuity) == STREAMS // 2
    clock.now += FORGET_S + 1
    continuity.keep(FIRST, CODES)
    assert len(continuity) == 1
