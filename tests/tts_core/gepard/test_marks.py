from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.engine import WordMark
from tts_core.gepard.marks import CHARACTERS_S, VOICES, Marks, Pace

TEXT = "one three five"


def test_words_are_placed_by_their_characters_at_the_voices_speed() -> None:
    marks = Marks(TEXT, 100.0)
    assert marks.upto(100, 100) == (WordMark(0, 3, 0, 100),)  # ends with the sound there is
    assert marks.upto(300, 300) == ()  # it takes as long even so
    assert marks.upto(1000, 1000) == (WordMark(4, 9, 400, 1000),)
    assert marks.upto(1200, 1200) == (WordMark(10, 14, 1000, 1200),)
    assert marks.finish(1200, 1400) == ()


def test_words_keep_their_pace_however_small_the_chunks_are() -> None:
    whole, frames = Marks(TEXT, 100.0), Marks(TEXT, 100.0)
    begun = [mark.sample_start for end in range(10, 1500, 10) for mark in frames.upto(end, end)]
    assert begun == [mark.sample_start for mark in whole.upto(1500, 1500)] == [0, 400, 1000]


def test_a_word_whose_end_is_sure_is_told_ahead() -> None:
    marks = Marks(TEXT, 100.0)
    assert [m.text_start for m in marks.upto(50, 1000)] == [0, 4]
    assert marks.upto(100, 1000) == ()


def test_what_is_left_at_the_end_is_spread_over_what_is_left() -> None:
    assert Marks(TEXT, 100.0).finish(0, 1500) == (
        WordMark(0, 3, 0, 400),
        WordMark(4, 9, 400, 1000),
        WordMark(10, 14, 1000, 1500),
    )


def test_a_voice_that_was_faster_than_thought_gives_what_is_left_its_time_back() -> None:
    marks = Marks(TEXT, 100.0)
    assert marks.upto(450, 450) == (WordMark(0, 3, 0, 400), WordMark(4, 9, 400, 450))
    # "five" needs 500; it was expected at 1000, the sound ends at 900.
    assert marks.finish(450, 900) == (WordMark(10, 14, 450, 900),)
    marks = Marks(TEXT, 100.0)
    marks.upto(450, 450)
    assert marks.finish(450, 1200) == (WordMark(10, 14, 700, 1200),)


def test_no_text_has_no_words() -> None:
    assert Marks("  ", 100.0).upto(1 << 20, 1 << 20) == Marks("", 100.0).finish(0, 5) == ()


def test_the_speed_of_a_voice_is_learned_and_the_oldest_forgotten() -> None:
    pace = Pace()
    start = pace.of("a")
    assert start == pytest.approx(22050 / CHARACTERS_S)
    for _ in range(30):
        pace.learn("a", "ten chars", 22050)  # 10 with the blank
    assert pace.of("a") == pytest.approx(2205, rel=1e-3)
    assert pace.of("b") == start
    pace.learn("c", "", 1000)
    pace.learn("c", "words", 0)
    assert pace.of("c") == start
    for i in range(VOICES):
        pace.learn(str(i), "ten chars", 22050)
    assert pace.of("a") == start


@given(
    st.lists(st.text("abcdefghijklm", min_size=1, max_size=12), max_size=20).map(" ".join),
    st.floats(1.0, 4000.0),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40_000)), max_size=12),
    st.integers(0, 20_000),
)
def test_every_word_comes_once_in_order_without_overlap_within_the_sound(
    text: str, pace: float, chunks: list[tuple[int, int]], tail: int
) -> None:
    marks, at, sure = Marks(text, pace), 0, 0
    total = sum(samples for samples, _ in chunks) + tail
    given_marks: list[WordMark] = []
    for samples, ahead in chunks:
        before = at
        at += samples
        sure = max(sure, min(total, at + ahead))
        new = marks.upto(at, sure)
        assert all(mark.sample_end <= sure for mark in new)
        # With the chunk it begins in, at the latest.
        assert all(mark.sample_start >= before for mark in new)
        given_marks += new
    new = marks.finish(at, total)
    assert all(mark.sample_start >= at for mark in new)
    given_marks += new
    assert [text[m.text_start : m.text_end] for m in given_marks] == text.split()
    clock = 0
    for mark in given_marks:
        assert clock <= mark.sample_start <= mark.sample_end <= total
        clock = mark.sample_end
