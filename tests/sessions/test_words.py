from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.events import Word
from sessions.words import WordAligner
from tts_core.engine import WordMark
from tts_core.text.alignment import Alignment, AlignmentBuilder
from tts_core.text.segment import Segment, Utterance

RATE = 1000


def utterance(text: str, spoken: str, alignment: Alignment, start: int = 0) -> Utterance:
    segment = Segment(0, start, start + len(text), text, Alignment.identity(len(text), start))
    return Utterance(segment, spoken, alignment)


def marks(spoken: str, step: int = 100) -> tuple[WordMark, ...]:
    out, at = [], 0
    for i, word in enumerate(spoken.split()):
        start = spoken.index(word, at)
        at = start + len(word)
        out.append(WordMark(start, at, i * step, (i + 1) * step))
    return tuple(out)


def test_plain_words_keep_their_times_and_offsets() -> None:
    text = "Hello there, you."
    u = utterance(text, text, Alignment.identity(len(text), 10), start=10)
    aligner = WordAligner(u, RATE, 2.0)
    words = aligner.add(marks(text)) + aligner.finish(300)
    assert [(w.text, w.text_start, w.text_end) for w in words] == [
        ("Hello", 10, 15),
        ("there,", 16, 22),
        ("you.", 23, 27),
    ]
    assert [(w.start, w.end) for w in words] == [(2.0, 2.1), (2.1, 2.2), (2.2, 2.3)]


def test_many_spoken_words_become_the_one_that_was_sent() -> None:
    text = "It costs $300. Fine"
    builder = AlignmentBuilder()
    builder.copy("It costs ", 0)
    builder.replace("three hundred dollars", 9, 13)
    builder.copy(". Fine", 13)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0.0)
    words = aligner.add(marks(spoken)) + aligner.finish(600)
    assert [(w.text, w.start, w.end) for w in words] == [
        ("It", 0.0, 0.1),
        ("costs", 0.1, 0.2),
        ("$300.", 0.2, 0.5),
        ("Fine", 0.5, 0.6),
    ]


def test_one_spoken_block_is_shared_by_the_words_it_covers() -> None:
    text = "on March 5 we"
    builder = AlignmentBuilder()
    builder.copy("on ", 0)
    builder.replace("Marchfifth", 3, 10)
    builder.copy(" we", 10)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0.0)
    words = aligner.add(marks(spoken, 120)) + aligner.finish(360)
    assert [w.text for w in words] == ["on", "March", "5", "we"]
    assert (words[1].start, words[1].end) == (0.12, 0.22)
    assert (words[2].start, words[2].end) == (0.22, 0.24)


def test_what_is_not_spoken_sits_at_the_end_of_the_word_before() -> None:
    text = "Wait - now"
    builder = AlignmentBuilder()
    builder.copy("Wait", 0)
    builder.copy(" now", 6)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0.0)
    words = aligner.add(marks(spoken)) + aligner.finish(200)
    assert [(w.text, w.start, w.end) for w in words] == [
        ("Wait", 0.0, 0.1),
        ("-", 0.1, 0.1),
        ("now", 0.1, 0.2),
    ]


def test_an_engine_without_marks_gives_proportional_times() -> None:
    text = "aaa bbb"
    aligner = WordAligner(utterance(text, text, Alignment.identity(7)), RATE, 1.0)
    words = aligner.finish(800)
    assert [(w.text, w.start, w.end) for w in words] == [("aaa", 1.0, 1.4), ("bbb", 1.4, 1.8)]


def test_words_come_out_as_soon_as_they_are_complete() -> None:
    text = "one $2 three."
    builder = AlignmentBuilder()
    builder.copy("one ", 0)
    builder.replace("two dollars", 4, 6)
    builder.copy(" three.", 6)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0.0)
    given = [[w.text for w in aligner.add((mark,))] for mark in marks(spoken)]
    assert given == [["one"], [], ["$2"], ["three."]]
    assert aligner.finish(400) == ()


@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_every_word_comes_once_in_order_without_overlap(parts: list[tuple[str, int, bool]], cut: int) -> None:
    """Each written word is spoken as zero or more words; marks arrive in pieces."""
    builder, at, pieces = AlignmentBuilder(), 0, []
    for word, spoken_words, copied in parts:
        if copied:
            builder.copy(word + " ", at)
        elif spoken_words:
            builder.replace(" ".join(["xy"] * spoken_words) + " ", at, at + len(word))
        pieces.append(word)
        at += len(word) + 1
    text = " ".join(pieces)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0.0)
    all_marks = marks(spoken)
    words: list[Word] = []
    for i in range(0, len(all_marks), cut):
        words += aligner.add(all_marks[i : i + cut])
    words += aligner.finish(len(all_marks) * 100)
    assert " ".join(w.text for w in words) == text
    last = 0.0
    for w in words:
        assert text[w.text_start : w.text_end] == w.text
        assert last <= w.start <= w.end <= max(1, len(all_marks)) * 0.1 + 1e-9
        last = w.end
