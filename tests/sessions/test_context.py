from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.context import STEP, Context, ContextOptions, FlushMark, State
from sessions.events import AudioFormat, Event, Word
from tts_core.errors import BadRequest, EngineError, TextTooLong
from tts_core.text.segment import Segment, TextMode
from tts_core.text.segmenter import TextFrontEnd


def make(**options: object) -> Context:
    return Context("c", ContextOptions(**options), lambda: 5.0)  # type: ignore[arg-type]


def drain(context: Context) -> list[Segment | FlushMark]:
    out = []
    while (work := context.next_work()) is not None:
        out.append(work.item)
    return out


def test_text_becomes_segments_in_order_and_a_flush_marks_its_place() -> None:
    context = make()
    context.text("First sentence here. Second one")
    assert context.flush() == 1
    context.text(" and a third.")
    context.end()
    items = drain(context)
    kinds = [type(i).__name__ for i in items]
    mark = kinds.index("FlushMark")
    before = "".join(i.text for i in items[:mark] if isinstance(i, Segment))
    assert "Second one" in before
    assert "third" not in before
    assert context.source == "First sentence here. Second one and a third."


@pytest.mark.parametrize("bad", ["", "x" * 257])
def test_ids_have_a_length(bad: str) -> None:
    with pytest.raises(BadRequest):
        Context(bad, ContextOptions(), lambda: 0.0)


def test_no_text_after_the_end_and_a_second_end_is_ignored() -> None:
    context = make()
    context.text("Hello.")
    context.end()
    context.end()
    with pytest.raises(BadRequest):
        context.text("more")
    with pytest.raises(BadRequest):
        context.flush()


def test_limits_refuse_the_message_and_keep_the_rest() -> None:
    context = make(max_characters=20)
    context.text("Hello there. ")
    with pytest.raises(TextTooLong):
        context.text("x" * 8)
    context.end()
    assert context.source == "Hello there. "
    with pytest.raises(TextTooLong):
        make(max_characters=10).text("x" * 11)


@pytest.mark.parametrize("how", ["finish", "cancel", "fail"])
def test_one_terminal_event_and_no_second(how: str) -> None:
    context = make()
    context.text("Hello there, this waits. And this too.")
    ends: dict[str, Callable[[], Event]] = {
        "finish": lambda: context.finish(5),
        "cancel": lambda: context.cancel(5, 3),
        "fail": lambda: context.fail(EngineError("x")),
    }
    ends[how]()
    assert context.terminal
    for again in ends.values():
        with pytest.raises(RuntimeError):
            again()
    if how != "finish":
        assert not context.has_work
    with pytest.raises(BadRequest):
        context.text("more")


def test_heard_cuts_at_the_word_whose_middle_was_played() -> None:
    context = make(format=AudioFormat(rate=8000))
    context.text("One two three.")
    context.spoke((Word("One", 0, 3, 0.0, 0.4), Word("two", 4, 7, 0.4, 0.8), Word("three.", 8, 14, 0.8, 1.2)))
    cases = {
        0: "",
        1599: "",
        1600: "One",
        4799: "One",
        4800: "One two",
        8000: "One two three.",
        10**6: "One two three.",
    }
    for samples, text in cases.items():
        heard = context.heard(samples)
        assert (heard.text, heard.text + heard.unheard) == (text, "One two three."), samples
        assert heard.ms == round(samples / 8)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="ab .,!?1", max_size=80), st.lists(st.integers(1, 9), max_size=30))
def test_work_does_not_depend_on_how_the_text_came(text: str, cuts: list[int]) -> None:
    whole = make()
    whole.text(text)
    whole.end()
    pieces = make()
    at = 0
    for n in cuts:
        pieces.text(text[at : at + n])
        at += n
    pieces.text(text[at:])
    pieces.end()
    assert drain(whole) == drain(pieces)


def test_options_change_their_text_mode_alone() -> None:
    options = ContextOptions(speed=1.5).with_mode(TextMode.SEGMENT)
    assert (options.text.mode, options.speed) == (TextMode.SEGMENT, 1.5)
    assert make().state is State.OPEN


@pytest.mark.parametrize("mode", list(TextMode))
def test_a_long_text_is_looked_at_in_steps_and_comes_out_the_same(mode: TextMode) -> None:
    text = "This is sentence number 42 for Dr. Smith. It costs $3.50 at 2:30 p.m., please check it. " * 60
    context = Context("c", ContextOptions().with_mode(mode), lambda: 5.0)
    context.text(text)
    if mode is not TextMode.FINAL:
        context.flush()
    context.end()
    assert context.source == text
    steps, items = 0, []
    while context.has_work:
        steps += context.step()
        items += drain(context)
        assert context.source == text
    assert steps >= len(text) // STEP
    whole = TextFrontEnd(ContextOptions().with_mode(mode).text)
    expected = whole.feed(text) + whole.flush() + whole.end()
    got = [i for i in items if isinstance(i, Segment)]
    if mode is TextMode.SEGMENT:
        # An over-long message is cut at sentences; which of its last ones stay together may differ.
        assert " ".join(s.text for s in got) == " ".join(s.text for s in expected)
        assert [s.source_start for s in got[1:]] == [s.source_end for s in got[:-1]]
    else:
        assert got == expected
    if mode is not TextMode.FINAL:
        assert isinstance(items[-1], FlushMark)


def test_all_text_counts_be_it_looked_at_or_spoken_or_not() -> None:
    context = make(max_characters=3000)
    context.text("word " * 500)
    with pytest.raises(TextTooLong):
        context.text("word " * 200)
    assert context.source == "word " * 500
    while context.step() or context.next_work():
        pass
    with pytest.raises(TextTooLong):
        context.text("word " * 200)
    context.text("word " * 100)
    assert context.stats.characters == 3000
