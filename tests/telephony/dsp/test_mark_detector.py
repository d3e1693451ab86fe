"""On speech of the built-in voice, through real encoders (trust.md M2, M3)."""

from __future__ import annotations

import numpy as np
import pytest

from telephony.dsp.mark import Marker, Stream
from telephony.dsp.mark_detector import MARKED, NOTHING, UNSURE, Detection, detect, search, to_base
from tests.peers.channels import CHANNELS, at_rate, jumpy, mulaw
from tests.peers.embedded import RATE, speech
from tts_core.engine import Samples

KEY = b"key of these tests".ljust(32, b".")
CLIPS = 6


def marked(x: Samples, rate: int, payload: int, key: bytes = KEY, start: int = 0) -> Samples:
    stream = Stream(Marker(rate, key, payload), start)
    return np.concatenate([stream.process(x), stream.flush()])


@pytest.mark.parametrize("name", CHANNELS)
def test_every_clip_is_found_with_its_payload(name: str) -> None:
    for n, clip in enumerate(speech(CLIPS)):
        payload = (n * 137 + 11) % 1024
        heard, rate = CHANNELS[name](marked(clip, RATE, payload, start=13 * n), RATE)
        found = detect(to_base(heard, rate), [KEY])
        assert found.marked, (n, found)
        assert found.payload == payload


def test_laid_at_the_rate_of_the_telephone_it_is_found_as_well() -> None:
    for n, clip in enumerate(speech(CLIPS)[:3]):
        heard, _ = mulaw(marked(at_rate(clip, RATE, 8000), 8000, n), 8000)
        found = detect(heard, [KEY])
        assert (found.sure, found.payload) == (True, n)


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_it_is_found_from_every_rate(rate: int) -> None:
    heard = marked(at_rate(speech(CLIPS)[0], RATE, rate), rate, 600)
    found = search(heard, rate, [KEY])
    assert (found.sure, found.payload) == (True, 600)


def test_unmarked_speech_and_other_keys_raise_no_alarm() -> None:
    others = [bytes([n]) * 32 for n in range(8)]
    scores = []
    for n, clip in enumerate(speech(CLIPS)):
        plain, _ = mulaw(clip, RATE)
        known, _ = mulaw(marked(clip, RATE, n), RATE)
        scores += [detect(heard, [key]).score for heard in (plain, known) for key in others[: 2 if n else 8]]
    assert len(scores) == 36
    assert max(scores) < MARKED
    assert np.mean(np.array(scores) < UNSURE) > 0.9


def test_the_right_one_of_many_keys_is_told() -> None:
    heard, _ = mulaw(marked(speech(CLIPS)[1], RATE, 5), RATE)
    found = detect(heard, [b"x" * 32, b"y" * 32, KEY, b"z" * 32])
    assert (found.key, found.payload, found.marked) == (2, 5, True)


def test_a_marked_part_of_a_long_recording_is_found_where_it_is() -> None:
    plain = [mulaw(clip, RATE)[0] for clip in speech(CLIPS)]
    inside, _ = mulaw(marked(speech(CLIPS)[4], RATE, 99), RATE)
    sound = np.concatenate([*plain[:3], inside, *plain[5:6]])
    at = sum(len(clip) for clip in plain[:3]) / 8000
    found = search(sound, 8000, [KEY])
    assert found.marked
    assert found.payload == 99
    assert found.at_s < at + len(inside) / 8000
    assert found.at_s + 18 > at
    assert not search(np.concatenate(plain), 8000, [KEY]).marked


def test_jumps_and_a_cut_start_are_followed() -> None:
    heard, _ = jumpy(seed=5)(marked(speech(CLIPS)[2], RATE, 700)[7123:], RATE)
    found = detect(heard, [KEY])
    assert (found.marked, found.payload) == (True, 700)
    assert found.jumps > 0


def test_the_bar_rises_with_what_is_tried() -> None:
    found = Detection(8.9)
    assert (found.bar, found.marked, found.sure, found.unsure) == (8.0, True, False, False)
    assert Detection(9.0).sure
    more = Detection(8.9, tries=100)
    assert (more.bar, more.marked, more.sure, more.unsure) == (9.0, False, False, True)
    assert not Detection(7.9, tries=100).unsure
    sound = np.concatenate([mulaw(clip, RATE)[0] for clip in speech(CLIPS)[:3]])
    assert search(sound, 8000, [KEY, b"x" * 32]).tries >= 4


@pytest.mark.parametrize("n", [0, 1, 100, 8000])
def test_little_or_nothing_is_no_mark(n: int) -> None:
    assert search(np.zeros(n, np.float32), 8000, [KEY]) == NOTHING
    some = (np.random.default_rng(0).standard_normal(n) * 0.1).astype(np.float32)
    assert search(some, 8000, [KEY]).marked is False


def test_it_stops_when_told_to() -> None:
    calls = iter([False, True])
    sound = np.concatenate([mulaw(clip, RATE)[0] for clip in speech(CLIPS)])
    assert search(sound, 8000, [KEY], stopped=lambda: next(calls)).at_s == 0.0
    assert next(calls, None) is None


def test_what_it_cannot_do_is_as_told() -> None:
    """One per cent faster: not found. Say so wherever the answer is shown."""
    x = marked(speech(CLIPS)[3], RATE, 1)
    where = np.arange(int(len(x) / 1.01)) * 1.01
    faster = np.interp(where, np.arange(len(x)), x).astype(np.float32)
    assert not search(faster, RATE, [KEY]).marked
