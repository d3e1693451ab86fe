"""The table of expected readings, and what holds for any text."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text.alignment import Alignment
from tts_core.text.normaliser import (
    EXPANSION,
    SLACK,
    WINDOW,
    Normaliser,
    as_written,
    normalise_text,
    spell_out,
)
from tts_core.text.segment import Segment, Utterance

TABLE = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("readings.tsv").read_text(encoding="utf-8").splitlines()[1:]
]
NORMALISER = Normaliser(library=False)


def segment(text: str, *, at: int = 0, spell: tuple[tuple[int, int], ...] = ()) -> Segment:
    return Segment(0, at, at + len(text), text, Alignment.identity(len(text), at), spell=spell)


def read(text: str, **kw: object) -> Utterance:
    return NORMALISER.normalise_sync(segment(text, **kw))  # type: ignore[arg-type]


def source_of(utterance: Utterance, spoken: str) -> str:
    at = utterance.text.index(spoken)
    a, b = utterance.alignment.source_range(at, at + len(spoken))
    return utterance.segment.text[a:b]


@pytest.mark.parametrize(("kind", "written", "spoken"), TABLE, ids=[f"{k}: {w}" for k, w, _ in TABLE])
def test_reading(kind: str, written: str, spoken: str) -> None:
    assert normalise_text(written) == spoken


@pytest.mark.parametrize(("kind", "written", "spoken"), TABLE, ids=[f"{k}: {w}" for k, w, _ in TABLE])
def test_reading_leaves_nothing_to_guess(kind: str, written: str, spoken: str) -> None:
    """No figure or sign is left to the voice, and the reading is the same inside a sentence's quotes."""
    assert re.fullmatch(r"[A-Za-z ,.'!?;:()\"—éï-]*", spoken)


def test_table_is_large_and_has_no_row_twice() -> None:
    assert len(TABLE) >= 200
    assert len({w for _, w, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(
    "text", ["Yes.", "I can help you with that right now.", "Well… I don't know — maybe?", ""]
)
def test_plain_text_is_untouched(text: str) -> None:
    u = read(text)
    assert u.text == text
    assert u.alignment.spans == (u.segment.alignment.spans if text else ())


@pytest.mark.parametrize("text", ["...", "🎉", " ", "?!", "***", "\u200b", "--", "[]"])
def test_nothing_to_say(text: str) -> None:
    u = read(text)
    assert (u.text, u.alignment.spans) == ("", ())


def test_all_words_of_a_price_map_to_it() -> None:
    u = read("It is $347.89 now.")
    for word in ("three", "hundred", "dollars", "eighty", "cents"):
        assert source_of(u, word) == "$347.89"
    assert source_of(u, "now") == "now"


def test_blank_separated_parts_keep_their_own_source() -> None:
    u = read("Call (415) 555-0132 at 2:30 PM on March 5th, 2024, please.")
    assert source_of(u, "four one five") == "(415)"
    assert source_of(u, "zero one three two") == "555-0132"
    assert source_of(u, "two thirty") == "2:30"
    assert source_of(u, "PM") == "PM"
    assert source_of(u, "March") == "March"
    assert source_of(u, "fifth") == "5th"
    assert source_of(u, "twenty twenty four") == "2024"
    assert source_of(u, "please") == "please"


def test_alignment_goes_through_the_segments_own() -> None:
    # The client sent "**$5** now" at offset 10; the cleaner made "$5 now" of it.
    cleaned = Segment(0, 10, 20, "$5 now", Alignment.identity(2, 12).then(Alignment.identity(2)))
    u = NORMALISER.normalise_sync(cleaned)
    assert u.text == "five dollars now"
    assert u.alignment.source_range(5, 12) == (12, 14)


def test_spell_ranges() -> None:
    u = read("Code AB-12 is it, room 5.", spell=((5, 10),))
    assert u.text == "Code A. B dash one two is it, room five."
    assert source_of(u, "B dash") == "AB-12"
    assert spell_out("j.D@x") == "J dot D at X"
    assert spell_out("123456") == "one two three four, five six"
    assert spell_out("AB CD") == "A. B, C D"


def test_voice_traps() -> None:
    assert normalise_text("I said no.") == "I said no ."
    assert normalise_text("At 5 p.m.") == "At five PM."
    assert normalise_text("[five](/fYv/)").count("[") == 0


def test_runaway_numbers_stay_short() -> None:
    assert normalise_text("1e308") == "one times ten to the three hundred eight"
    assert len(normalise_text("9" * 5000)) <= EXPANSION * 5000 + SLACK
    assert len(normalise_text("½" * 300)) <= EXPANSION * 300 + SLACK


_SPICY = st.text(
    alphabet=st.one_of(
        st.sampled_from(
            list("0123456789 .,-/:$£€%#@+()[]'\"&*xXapmAPMstndrhkKGBbDrSt½²°–—…_=<>~^|\\\n\ue000٣五🎉")
        ),
        st.characters(),
    ),
    max_size=120,
)


def check(u: Utterance) -> None:
    """The alignment covers the spoken text without gaps, in order and in range."""
    seg = u.segment
    at, source = 0, seg.source_start
    for s in u.alignment.spans:
        assert s.start == at and s.end > s.start
        assert seg.source_start <= s.source_start <= s.source_end <= seg.source_end
        assert s.source_start >= source
        if s.exact:
            assert s.end - s.start == s.source_end - s.source_start
        at, source = s.end, s.source_end
    assert at == len(u.text)
    assert len(u.text) <= (EXPANSION + 1) * len(seg.text) + SLACK


@settings(max_examples=400, deadline=None)
@given(_SPICY, st.integers(0, 1000))
def test_any_text(text: str, at: int) -> None:
    check(read(text, at=at))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([w for _, w, _ in TABLE]), min_size=1, max_size=8),
    st.sampled_from([" ", ", ", ". ", "; ", "-", ""]),
)
def test_any_mix_of_known_forms(words: list[str], joint: str) -> None:
    check(read(joint.join(words)))


@settings(max_examples=100, deadline=None)
@given(_SPICY.filter(bool), st.data())
def test_any_spell_range(text: str, data: st.DataObject) -> None:
    a = data.draw(st.integers(0, len(text)))
    b = data.draw(st.integers(a, len(text)))
    check(read(text, spell=((a, b),)))


_WORDS = st.lists(
    st.sampled_from(
        [
            "the",
            "order",
            "will",
            "ship",
            "in",
            "two",
            "days",
            "and",
            "you",
            "can",
            "call",
            "me",
            "back",
            "about",
            "it",
            "Anna",
            "thanks",
        ]
    ),
    min_size=1,
)


@given(_WORDS)
def test_plain_words_are_a_fixed_point(words: list[str]) -> None:
    text = " ".join(words) + "."
    assert normalise_text(text) == text


@pytest.mark.parametrize(
    "written",
    [
        "$347.89",
        "(415) 555-0132",
        "1205 Main St",
        "March 5, 2024",
        "20°C",
        "3 1/4",
        "1990s",
        "Henry VIII",
        "B7K29",
    ],
)
def test_spoken_forms_are_fixed_points(written: str) -> None:
    once = normalise_text(written)
    assert normalise_text(once) == once


async def test_async_reads_as_sync_and_lets_the_loop_run_between_windows() -> None:
    text = "Order 00123 costs $5.20 and ships by 2:30 PM to the usual place, as we said. " * 12
    seg = segment(text.strip())
    assert len(seg.text) > 4 * WINDOW
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    turns = 0
    spoken = await NORMALISER.normalise(seg)
    task.cancel()
    assert turns >= len(seg.text) // WINDOW
    assert spoken == NORMALISER.normalise_sync(seg)
    check(spoken)
    assert "zero zero, one two three" in spoken.text and not re.search(r"\d", spoken.text)


async def test_library_answers_what_is_only_guessed() -> None:
    normaliser = Normaliser()
    seg = segment("It is 100 rpm/V now.")
    guess = (await normaliser.normalise(seg)).text  # not started: our own guess
    assert guess == NORMALISER.normalise_sync(seg).text
    await normaliser.start()
    try:
        asked: list[str] = []
        library = normaliser._library
        assert library is not None and library.alive
        real = library.read

        async def spy(text: str) -> str | None:
            asked.append(text)
            return await real(text)

        library.read = spy  # type: ignore[method-assign]
        await normaliser.normalise(segment("Your order 00123 ships at 2:30 PM for $5."))
        assert asked == []
        u = await normaliser.normalise(segment("Add 5 dkl of it."))
        assert asked == ["5 dkl"]
        check(u)
    finally:
        await normaliser.close()
    assert (await normaliser.normalise(seg)).text == guess


def test_as_written_is_the_text_itself_unless_nothing_can_be_said() -> None:
    whole = segment("Die Nummer ist 4215, 3 €.")
    assert as_written(whole).text == whole.text
    assert as_written(whole).alignment == whole.alignment
    assert as_written(segment("... !")).text == ""
