from __future__ import annotations

import math
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.events import AudioFormat, Encoding
from sessions.output import AHEAD_SHARE, LONGEST_BYTES, LONGEST_MS, RAMP_MS, OutputStage
from telephony.dsp.mark import Marker, Stream
from telephony.dsp.pcm import decode, encode
from tests.tone import RATE, ToneEngine


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 32000, 44100, 48000])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_samples_count_exactly_and_bytes_are_whole_samples(rate: int, encoding: Encoding) -> None:
    fmt = AudioFormat(encoding, rate)
    stage = OutputStage(RATE, fmt)
    pcm = ToneEngine.tone(100_003)
    blocks = stage.push(pcm) + stage.finish()
    assert sum(n for _, n in blocks) == math.ceil(len(pcm) * rate / RATE)
    assert all(len(data) == n * fmt.width for data, n in blocks)


def test_first_blocks_are_short() -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, 8000))
    blocks = stage.push(ToneEngine.tone(RATE))
    assert [n for _, n in blocks[:7]] == [8 * ms for ms in (*RAMP_MS, 100, 200, 400)]


def test_blocks_are_long_for_a_listener_who_has_audio() -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, 8000))
    blocks = stage.push(ToneEngine.tone(RATE), lead=1.0)
    assert [n for _, n in blocks] == [8 * ms for ms in (*RAMP_MS, 700)]
    assert [n for _, n in stage.push(ToneEngine.tone(RATE // 4))] == [8 * RAMP_MS[-1]] * 3


def test_a_block_is_as_long_as_a_share_of_what_the_listener_has() -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, RATE))
    blocks = [n * 1000 // RATE for _, n in stage.push(ToneEngine.tone(4 * RATE))]
    assert blocks[:4] == list(RAMP_MS)
    assert blocks == sorted(blocks[:-1]) + blocks[-1:]
    assert set(blocks[4:-1]) == {100, 200, 400, 700, LONGEST_MS}
    for i in range(4, len(blocks)):
        assert blocks[i] <= max(100, AHEAD_SHARE * sum(blocks[:i]))


@pytest.mark.parametrize(("longest", "expected"), [(250.0, 200), (60.0, 100), (100.0, 100), (9e9, 5600)])
def test_a_block_is_no_longer_than_it_may_be(longest: float, expected: int) -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, 8000), longest_ms=longest)
    blocks = stage.push(ToneEngine.tone(10 * RATE), lead=20.0)
    assert {n // 8 for _, n in blocks[len(RAMP_MS) : -1]} | {max(n // 8 for _, n in blocks)} == {expected}


@pytest.mark.parametrize(
    ("ms", "lead", "expected"),
    [
        (880, 2.0, [880]),  # the rest of 80 ms is no message of its own
        (980, 2.0, [900, 80]),  # but for a line that would be too long
        (1280, 3.0, [900, 380]),
        (130, 0.13, [130]),
        (130, 0.12, [100, 30]),  # a listener who has less might run dry meanwhile
        (80, 2.0, [80]),
        (100, 2.0, [100]),
        (0, 2.0, []),
    ],
)
def test_the_last_piece_takes_the_rest_along(ms: int, lead: float, expected: list[int]) -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.PCM_S16LE, RATE))
    stage.push(ToneEngine.tone(RATE * sum(RAMP_MS) // 1000))  # the short ones are behind us
    blocks = stage.push(ToneEngine.tone(RATE * ms // 1000), lead=lead, last=True)
    assert [n * 1000 // RATE for _, n in blocks] == expected
    assert stage.flush() == []


def test_the_first_blocks_are_short_also_in_a_last_piece() -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.PCM_S16LE, RATE))
    blocks = stage.push(ToneEngine.tone(RATE * 90 // 1000), lead=5.0, last=True)
    assert [n * 1000 // RATE for _, n in blocks] == [20, 40, 30]


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("rate", [8000, 24000, 44100, 48000])
@pytest.mark.parametrize("last", [False, True])
def test_a_block_in_base64_leaves_room_for_words_in_a_line_of_64_kib(
    encoding: Encoding, rate: int, last: bool
) -> None:
    stage = OutputStage(RATE, AudioFormat(encoding, rate), longest_ms=9e9)
    blocks = stage.push(ToneEngine.tone(9 * RATE + 2000), lead=99.0, last=last) + stage.finish()
    assert max(len(b64encode(data)) for data, _ in blocks) <= 60_000
    assert max(len(data) for data, _ in blocks) > LONGEST_BYTES // 2  # and are no shorter than that asks


@given(st.lists(st.tuples(st.integers(0, 60_000), st.booleans()), max_size=12), st.floats(0, 10))
def test_a_last_piece_leaves_nothing_and_any_choice_gives_the_same_audio(
    pieces: list[tuple[int, bool]], lead: float
) -> None:
    pcm = ToneEngine.tone(sum(n for n, _ in pieces))
    stage = OutputStage(RATE, AudioFormat(Encoding.PCM_S16LE, RATE))
    got, at = [], 0
    for n, last in pieces:
        blocks = stage.push(pcm[at : at + n], lead=lead, last=last)
        at += n
        got += blocks
        had = lead
        for _, samples in blocks[:-1]:
            had += samples / RATE
        if blocks:
            assert blocks[-1][1] <= RATE * max(RAMP_MS[-1] / 1000, had)
        if last:
            assert sum(samples for _, samples in got) == at
            assert stage.flush() == []
    got += stage.finish()
    assert b"".join(d for d, _ in got) == encode(pcm, "pcm_s16le")


@given(st.lists(st.integers(1, 9000), max_size=20), st.floats(0, 100))
def test_less_than_a_usual_block_is_held_however_much_the_listener_has(
    pieces: list[int], lead: float
) -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, 8000))
    for n in pieces:
        stage.push(ToneEngine.tone(n), lead=lead)
        assert sum(n for _, n in stage.flush()[:1]) < 8 * RAMP_MS[-1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9000), min_size=1, max_size=12), st.sampled_from([8000, 22050, 24000]))
def test_any_pieces_give_the_same_audio(pieces: list[int], rate: int) -> None:
    pcm = ToneEngine.tone(sum(pieces))
    whole = OutputStage(RATE, AudioFormat(Encoding.PCM_S16LE, rate))
    expected = b"".join(d for d, _ in whole.push(pcm) + whole.finish())
    stage = OutputStage(RATE, AudioFormat(Encoding.PCM_S16LE, rate))
    got, at = [], 0
    for n in pieces:
        got += stage.push(pcm[at : at + n], lead=n / 3000)
        at += n
    got += stage.finish()
    assert b"".join(d for d, _ in got) == expected


def test_a_flush_gives_what_is_held_and_loses_nothing() -> None:
    stage = OutputStage(RATE, AudioFormat(Encoding.PCM_F32LE, RATE))
    pcm = ToneEngine.tone(1000)
    blocks = stage.push(pcm[:300]) + stage.flush() + stage.push(pcm[300:]) + stage.finish()
    audio = np.concatenate([decode(d, "pcm_f32le") for d, _ in blocks])
    assert np.array_equal(audio, pcm)
    assert stage.flush() == []


KEY = b"key of these tests".ljust(32, b".")


def marks(rate: int) -> Stream:
    return Stream(Marker(rate, KEY, 5), start=17)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 9000), min_size=1, max_size=12),
    st.sampled_from([8000, 22050, 24000, 44100]),
    st.sets(st.integers(0, 11)),
)
def test_a_mark_changes_no_count_and_lies_on_the_same_samples_however_it_is_cut(
    pieces: list[int], rate: int, flushes: set[int]
) -> None:
    pcm, fmt = ToneEngine.tone(sum(pieces)), AudioFormat(Encoding.PCM_F32LE, rate)
    plain = OutputStage(RATE, fmt)
    unmarked = decode(b"".join(d for d, _ in plain.push(pcm) + plain.finish()), "pcm_f32le")
    stream = marks(rate)
    expected = np.concatenate([stream.process(unmarked), stream.flush()])
    stage = OutputStage(RATE, fmt, marks)
    got, at = [], 0
    for i, n in enumerate(pieces):
        got += stage.push(pcm[at : at + n])
        at += n
        if i in flushes:
            got += stage.flush()
    got += stage.finish()
    assert sum(n for _, n in got) == len(unmarked) == math.ceil(len(pcm) * rate / RATE)
    assert np.array_equal(decode(b"".join(d for d, _ in got), "pcm_f32le"), expected)


def test_a_mark_is_made_for_the_listeners_rate_once_there_is_audio() -> None:
    made: list[int] = []

    def watched(rate: int) -> Stream:
        made.append(rate)
        return marks(rate)

    stage = OutputStage(RATE, AudioFormat(Encoding.MULAW, 8000), watched)
    assert stage.flush() == []
    assert made == []
    blocks = stage.push(ToneEngine.tone(RATE))
    assert [n for _, n in blocks[:4]] == [8 * ms for ms in RAMP_MS]  # the first ones leave as soon as before
    stage.push(ToneEngine.tone(RATE))
    stage.finish()
    assert made == [8000]
    assert OutputStage(RATE, AudioFormat(), watched).finish() == []
    assert made == [8000]


@pytest.mark.parametrize("encoding", list(Encoding))
def test_what_is_encoded_is_the_marked_audio(encoding: Encoding) -> None:
    pcm, fmt = ToneEngine.tone(RATE), AudioFormat(encoding, 8000)
    plain, marked = OutputStage(RATE, fmt), OutputStage(RATE, fmt, marks)
    a, b = (
        decode(b"".join(d for d, _ in stage.push(pcm) + stage.finish()), encoding.value)
        for stage in (plain, marked)
    )
    below = 10 * np.log10(np.sum((a - b) ** 2) / np.sum(a**2))
    assert -30 < below < -15
