"""Character times: every character once, in order, within its audio; both clocks of clients agree."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.elevenlabs_alignment import CharacterClock, Slice
from sessions.events import Word

RATE = 8000


def word(text: str, start: float, end: float, at: int) -> Word:
    return Word(text, at, at + len(text), start, end)


def test_a_word_shares_its_time_among_its_characters() -> None:
    clock = CharacterClock(RATE)
    clock.add((word("abcd", 0.1, 0.5, 0),), "abcd ef")
    assert clock.take(0, 8000) == Slice(
        ("a", "b", "c", "d", " "), (100, 200, 300, 400, 500), (100, 100, 100, 100, 500)
    )


def test_times_are_of_the_message_and_the_last_character_takes_the_silence() -> None:
    clock = CharacterClock(RATE)
    clock.add((word("ab", 0.0, 0.2, 0), word("c", 0.6, 0.7, 3)), "ab c")
    assert clock.take(0, 1200) == Slice(("a", "b"), (0, 100), (100, 50))
    assert clock.take(1200, 4000) == Slice((" ",), (50,), (300,))
    assert clock.take(4000, 8000) == Slice(("c",), (100,), (400,))


def test_audio_without_a_character_has_an_empty_one_or_none() -> None:
    assert CharacterClock(RATE).take(0, 800) == Slice(("",), (0,), (100,))
    assert CharacterClock(RATE, filler=False).take(0, 800) is None
    assert CharacterClock(RATE).take(800, 800) is None


def test_absolute_times_count_from_the_start_of_the_context() -> None:
    clock = CharacterClock(RATE, absolute=True)
    clock.add((word("ab", 0.5, 0.7, 0),), "ab")
    assert clock.take(0, 800) is None
    assert clock.take(800, 8000) == Slice(("a", "b"), (500, 600), (100, 400))


def test_a_blank_at_the_very_end_is_told_with_its_word() -> None:
    clock = CharacterClock(RATE)
    clock.add((word("ab", 0.0, 0.2, 0),), "ab cd")
    assert clock.take(0, 1600) == Slice(("a", "b", " "), (0, 100, 200), (100, 100, 0))


def test_what_is_not_spoken_belongs_to_its_neighbours_or_the_end() -> None:
    text = "**ab** 😀 c 😀!"
    clock = CharacterClock(RATE)
    clock.add((word("ab", 0.0, 0.2, 2), word("c", 0.4, 0.6, 9)), text)
    found = clock.take(0, 8000)
    assert found is not None
    rest = clock.rest(text, 8000)
    assert rest is not None
    assert "".join(found.chars + rest.chars) == text
    assert set(rest.starts) == set(rest.durations) == {0}
    assert clock.rest(text, 8000) is None


def test_words_that_come_late_begin_with_their_message() -> None:
    clock = CharacterClock(RATE)
    clock.take(0, 800)
    clock.add((word("ab", 0.02, 0.2, 0),), "ab")
    assert clock.take(800, 2400) == Slice(("a", "b"), (0, 10), (10, 190))


@st.composite
def speech(draw: st.DrawFn) -> tuple[str, list[Word], list[int]]:
    """A text, its words at times that never overlap, and how its audio is cut."""
    text = draw(st.text(alphabet="ab \n😀*é", min_size=1, max_size=60))
    now, words = 0.0, []
    for found in re.finditer(r"\S+", text):
        now += draw(st.floats(0, 0.5))
        length = draw(st.floats(0, 0.4))
        words.append(Word(found[0], found.start(), found.end(), now, now + length))
        now += length
    pieces = draw(st.lists(st.integers(1, 4000), min_size=1, max_size=30))
    return text, words, [*pieces, round(now * RATE) + 1]


@given(speech(), st.booleans(), st.integers(1, 4))
def test_any_speech_is_told_whole_and_in_time(
    drawn: tuple[str, list[Word], list[int]], filler: bool, lead: int
) -> None:
    text, words, pieces = drawn
    clock = CharacterClock(RATE, filler=filler)
    sample, told, summed, last = 0, "", 0, 0
    for piece in pieces:
        # Words come no later than their audio, some of them well before.
        due = [w for w in words if w.start * RATE < sample + lead * piece]
        words = words[len(due) :]
        clock.add(tuple(due), text)
        found = clock.take(sample, sample + piece)
        start, sample = round(sample * 1000 / RATE), sample + piece
        end = round(sample * 1000 / RATE)
        if found is None:
            assert not filler or start == end
            continue
        assert len(found.chars) == len(found.starts) == len(found.durations) > 0
        assert all(length >= 0 for length in found.durations)
        assert list(found.starts) == sorted(found.starts)
        assert found.ends()[:-1] == found.starts[1:]
        assert start + found.ends()[-1] == end
        assert start + found.starts[0] >= last
        last = start + found.starts[-1]
        summed += found.ends()[-1]
        assert not filler or summed == end, "pipecat's clock"
        told += "".join(found.chars)
    rest = clock.rest(text, sample)
    assert told + ("".join(rest.chars) if rest else "") == text


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=8), st.integers(50, 2000))
def test_times_never_run_back_whatever_times_the_words_have(
    times: list[tuple[float, float]], step_ms: int
) -> None:
    clock, text = CharacterClock(8000, absolute=True), ""
    for start, end in times:
        begin, text = len(text), text + "word "
        clock.add((Word("word", begin, begin + 4, start, end),), text)
    starts: list[int] = []
    chars: list[str] = []
    for at in range(0, 60_000, step_ms):
        taken = clock.take(at * 8, (at + step_ms) * 8)
        if taken is not None:
            starts += taken.starts
            chars += taken.chars
    assert "".join(chars) == text
    assert starts == sorted(starts)
