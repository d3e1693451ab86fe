from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest

from gateway.native.messages import TextModeName
from tts_core.text.alignment import Alignment
from tts_core.text.segment import Segment, TextMode, TextOptions, Utterance


def test_the_modes_are_those_of_the_native_protocol() -> None:
    assert {mode.value for mode in TextMode} == set(get_args(TextModeName))


def test_everything_is_on_unless_it_is_turned_off() -> None:
    options = TextOptions()
    assert (options.clean, options.tags, options.normalise) == (True, True, True)
    assert options.mode is TextMode.DELTA
    assert replace(options, clean=False) != options


def test_a_segment_and_its_utterance_are_values() -> None:
    segment = Segment(0, 5, 8, "Hi.", Alignment.identity(3, 5))
    assert segment == Segment(0, 5, 8, "Hi.", Alignment.identity(3, 5))
    assert (segment.speed, segment.volume, segment.pause_before_ms, segment.ends_sentence) == (
        1.0,
        1.0,
        0,
        True,
    )
    utterance = Utterance(segment, "", Alignment(()))
    assert len({segment, replace(segment), utterance.segment}) == 1
    for value, name in ((segment, "text"), (utterance, "text"), (TextOptions(), "clean")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "")
