from __future__ import annotations

from typing import get_args

import pytest

from sessions import events
from sessions.events import RATES, TERMINAL, AudioFormat, ContextStats, Done, Encoding, Event
from telephony.dsp.pcm import encode
from tts_core.errors import UnsupportedFormat


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("rate", RATES)
def test_the_width_is_what_the_encoder_makes(encoding: Encoding, rate: int) -> None:
    import numpy as np

    fmt = AudioFormat(encoding, rate)
    assert len(encode(np.zeros(rate // 50, np.float32), encoding.value)) == fmt.width * (rate // 50)


@pytest.mark.parametrize("rate", [0, -8000, 8001, 11025, 12000, 96000])
def test_a_rate_that_we_do_not_make_is_refused_by_name(rate: int) -> None:
    with pytest.raises(UnsupportedFormat) as error:
        AudioFormat(rate=rate)
    assert error.value.field == "sample_rate"
    assert all(str(known) in error.value.message for known in RATES)


def test_terminal_events_are_among_the_events() -> None:
    assert set(TERMINAL) < set(get_args(Event))
    assert {kind.__name__ for kind in set(get_args(Event)) - set(TERMINAL)} == {"Audio", "Words", "Flushed"}


def test_every_event_names_its_context_first() -> None:
    for kind in get_args(Event):
        assert next(iter(kind.__dataclass_fields__)) == "context_id"


def test_times_not_reached_are_told_apart_from_zero() -> None:
    stats = ContextStats()
    assert (stats.queue_wait, stats.first_segment, stats.first_audio, stats.leading_silence) == (-1,) * 4
    assert (stats.audio_s, stats.underruns, stats.segments) == (0, 0, 0)
    first, second = Done("a", 0), Done("b", 0)
    first.stats.segments += 1
    assert second.stats.segments == 0  # each its own


def test_events_are_documented() -> None:
    assert all(kind.__doc__ for kind in get_args(Event))
    assert events.Heard.__doc__
