from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.events import Word
from sessions.words import Timings, WordAligner
from tts_core.engine import WordMark
from tts_core.text.alignment import Alignment, AlignmentBuilder, Span
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
    aligner = WordAligner(u, RATE, 2000)
    words = aligner.add(marks(text), 300, last=True).told
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
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0)
    words = aligner.add(marks(spoken), 600, last=True).told
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
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0)
    words = aligner.add(marks(spoken, 120), 360, last=True).told
    assert [w.text for w in words] == ["on", "March", "5", "we"]
    assert (words[1].start, words[1].end) == (0.12, 0.21)
    assert (words[2].start, words[2].end) == (0.21, 0.24)


def test_what_is_not_spoken_sits_at_the_end_of_the_word_before() -> None:
    text = "Wait - now"
    builder = AlignmentBuilder()
    builder.copy("Wait", 0)
    builder.copy(" now", 6)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0)
    words = aligner.add(marks(spoken), 200, last=True).told
    assert [(w.text, w.start, w.end) for w in words] == [
        ("Wait", 0.0, 0.1),
        ("-", 0.1, 0.1),
        ("now", 0.1, 0.2),
    ]


def test_an_engine_without_marks_gives_proportional_times() -> None:
    text = "aaa bbb"
    aligner = WordAligner(utterance(text, text, Alignment.identity(7)), RATE, 1000)
    words = aligner.add((), 800, last=True).told
    assert [(w.text, w.start, w.end) for w in words] == [("aaa", 1.0, 1.4), ("bbb", 1.4, 1.8)]


def dollars() -> Utterance:
    builder = AlignmentBuilder()
    builder.copy("one ", 0)
    builder.replace("two dollars", 4, 6)
    builder.copy(" three.", 6)
    return utterance("one $2 three.", *builder.build())


def test_words_come_out_as_soon_as_they_are_complete() -> None:
    u = dollars()
    aligner = WordAligner(u, RATE, 0)
    given = [[w.text for w in aligner.add((mark,), 100).told] for mark in marks(u.text)]
    assert given == [["one"], [], ["$2"], ["three."]]
    assert aligner.add((), 400, last=True).told == ()


def test_a_word_is_told_with_the_audio_in_which_it_begins_and_its_end_foreseen() -> None:
    u = dollars()
    aligner = WordAligner(u, RATE, 0)
    one, two, dollar, three = marks(u.text)
    aligner.add((one,), 100)
    assert aligner.add((), 100) == Timings((), ())
    (told,) = aligner.add((two,), 150).told
    # "dollars" cannot have begun by then, and its seven letters take their time.
    assert (told.text, told.start) == ("$2", 0.1)
    assert 0.25 < told.end < 0.8
    # The true end is known with the last of it, and told no more.
    heard = aligner.add((dollar,), 300)
    assert heard.told == ()
    assert [(w.text, w.start, w.end) for w in heard.known] == [("$2", 0.1, 0.3)]
    # What comes next begins no earlier than was told, and where it is, for ourselves.
    rest = aligner.add((three,), 400, last=True)
    assert [(w.text, w.start) for w in rest.told] == [("three.", told.end)]
    assert [(w.text, w.start, w.end) for w in rest.known] == [("three.", 0.3, 0.4)]


def test_a_word_that_begins_later_is_not_told_by_half() -> None:
    u = dollars()
    aligner = WordAligner(u, RATE, 0)
    one, two, dollar, _ = marks(u.text)
    assert [w.text for w in aligner.add((one, two), 100).told] == ["one"]
    (told,) = aligner.add((dollar,), 200).told
    assert (told.text, told.start, told.end) == ("$2", 0.1, 0.3)


def test_the_speed_of_the_voice_and_of_the_request_say_when_a_word_ends() -> None:
    def spoken(step: int) -> WordAligner:
        text = "four five six seven eight nine"
        aligner = WordAligner(utterance(text, text, Alignment.identity(len(text))), RATE, -600)
        aligner.add(marks(text, step), 600, last=True)
        return aligner

    def lengths(before: WordAligner | None, speed: float = 1.0) -> float:
        aligner = WordAligner(dollars(), RATE, 0, speed=speed, before=before)
        one, two, *_ = marks(dollars().text, 20)
        aligner.add((one,), 20)
        (told,) = aligner.add((two,), 25).told
        return told.end - told.start

    assert lengths(spoken(100)) > 1.3 * lengths(spoken(20))
    assert lengths(None, 2.0) < 0.7 * lengths(None)


def test_the_words_of_two_utterances_never_overlap() -> None:
    u = utterance("$2", "two dollars", Alignment((Span(0, 11, 0, 2),)))
    first = WordAligner(u, RATE, 0)
    two, dollar = marks("two dollars", 20)
    (told,) = first.add((two,), 20).told
    assert first.add((dollar,), 40, last=True).told == ()
    assert told.end > 0.1
    after = WordAligner(utterance("Yes.", "Yes.", Alignment.identity(4, 3), 3), RATE, 80, before=first)
    timings = after.add(marks("Yes."), 100, last=True)
    assert timings.told[0].start == told.end
    assert (timings.known[0].start, timings.known[0].end) == (0.08, 0.18)


def test_words_that_are_spoken_as_one_share_its_time_however_its_marks_come() -> None:
    u = utterance("$5 million", "five million dollars", Alignment((Span(0, 20, 0, 10),)))
    whole = WordAligner(u, RATE, 0).add(marks(u.text), 300, last=True).told
    assert [(w.text, w.start, w.end) for w in whole] == [("$5", 0.0, 0.081), ("million", 0.081, 0.3)]
    aligner = WordAligner(u, RATE, 0)
    known: dict[str, Word] = {}
    told: list[list[str]] = []
    for i, mark in enumerate(marks(u.text)):
        timings = aligner.add((mark,), (i + 1) * 100, last=i == 2)
        told.append([w.text for w in timings.told])
        known |= {w.text: w for w in timings.known}
    assert told == [["$5"], [], ["million"]]
    assert tuple(known.values()) == whole


def test_a_mark_that_comes_late_is_told_where_the_audio_is() -> None:
    text = "one two"
    aligner = WordAligner(utterance(text, text, Alignment.identity(7)), RATE, 0)
    assert aligner.add((), 100).told == ()
    one, two = marks(text)
    late = aligner.add((one,), 150)
    assert (late.told[0].start, late.told[0].end) == (0.1, 0.1)
    assert (late.known[0].start, late.known[0].end) == (0.0, 0.1)
    assert aligner.add((two,), 200, last=True).told[0].start == 0.15


@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(0, 3), st.sampled_from("crj")),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 250), max_size=40),
    st.sampled_from(["early", "in time", "late"]),
)
def test_every_word_comes_once_in_order_without_overlap(
    parts: list[tuple[str, int, str]], sizes: list[int], when: str
) -> None:
    """Each written word is spoken as zero or more words, alone or with the next; marks come in pieces."""
    builder, at, pieces = AlignmentBuilder(), 0, []
    joined = -1
    for word, spoken_words, how in parts:
        if how == "c":
            builder.copy(word + " ", at)
        elif how == "j" and joined < 0:
            joined = at
        elif spoken_words:
            builder.replace(
                " ".join(["xy"] * spoken_words) + " ", at if joined < 0 else joined, at + len(word)
            )
        joined = joined if how == "j" else -1
        pieces.append(word)
        at += len(word) + 1
    text = " ".join(pieces)
    spoken, alignment = builder.build()
    aligner = WordAligner(utterance(text, spoken, alignment), RATE, 0)
    waiting = list(marks(spoken))
    total, end = len(waiting) * 100, 0
    words: list[Word] = []
    known: dict[tuple[int, int], Word] = {}
    for size in [*sizes, total]:
        begin, end = end, min(end + size, total)
        due = {"early": total, "in time": end, "late": begin}[when]
        last = end == total
        ready = tuple(m for m in waiting if last or m.sample_start < due)
        del waiting[: len(ready)]
        timings = aligner.add(ready, end, last=last)
        assert all(round(w.start * RATE) >= begin for w in timings.told), "a word after its audio"
        words += timings.told
        known |= {(w.text_start, w.text_end): w for w in timings.known}
        if last:
            break
    assert " ".join(w.text for w in words) == text
    assert list(known) == [(w.text_start, w.text_end) for w in words]
    clock = 0.0
    for w in words:
        assert text[w.text_start : w.text_end] == w.text
        assert clock <= w.start <= w.end
        clock = w.end
    clock = 0.0
    for w in known.values():
        assert clock <= w.start <= w.end <= total / RATE
        clock = w.end
    # What is known in the end does not depend on how it came.
    whole = WordAligner(utterance(text, spoken, alignment), RATE, 0)
    assert whole.add(marks(spoken), total, last=True).known == tuple(known.values())
