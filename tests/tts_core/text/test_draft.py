from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.alignment import Span
from tts_core.text.draft import Draft
from tts_core.text.items import Piece


def build(*pieces: Piece) -> Draft:
    draft = Draft()
    for piece in pieces:
        draft.append(piece)
    return draft


def test_outer_and_double_blanks_add_nothing() -> None:
    draft = build(
        Piece(" ", 0, 1, True), Piece("a", 1, 2, True), Piece(" ", 2, 3, True), Piece("\n", 3, 4, False)
    )
    assert draft.text == "a "


def test_a_cut_takes_the_front_and_says_where_the_rest_begins() -> None:
    draft = build(Piece("One.", 0, 4, True), Piece(" ", 4, 6, False), Piece("Two", 6, 9, True))
    text, alignment, spells, rest = draft.cut(4)
    assert (text, spells, rest) == ("One.", (), 6)
    assert alignment.spans == (Span(0, 4, 0, 4, exact=True),)
    assert draft.text == "Two"
    text, alignment, _, rest = draft.cut(3)
    assert (text, rest) == ("Two", 9)
    assert alignment.source_range(0, 3) == (6, 9)
    assert draft.text == ""


def test_a_piece_cut_apart_keeps_its_offsets() -> None:
    draft = build(Piece("One. Two", 10, 18, True))
    assert draft.cut(4)[1].spans == (Span(0, 4, 10, 14, exact=True),)
    text, alignment, _, _ = draft.cut(3)
    assert text == "Two"
    assert alignment.spans == (Span(0, 3, 15, 18, exact=True),)


def test_the_source_of_a_block_stays_with_its_first_part() -> None:
    draft = build(Piece("ab", 0, 7, False), Piece("c", 7, 8, True))
    assert draft.cut(1)[3] == 7
    assert draft.cut(2)[1].spans == (Span(0, 1, 7, 7), Span(1, 2, 7, 8, exact=True))


def test_line_feeds_become_blanks() -> None:
    draft = build(Piece("a", 0, 1, True), Piece("\n", 1, 2, False), Piece("b", 2, 3, True))
    assert draft.text == "a\nb"
    assert draft.cut(3)[0] == "a b"


def test_spelled_ranges_are_cut_along() -> None:
    draft = build(Piece("x ", 0, 2, True))
    draft.spell(True)
    draft.append(Piece("AB. CD", 2, 8, True))
    assert draft.shields == [(2, 9)]
    draft.spell(False)
    draft.append(Piece(" y", 8, 10, True))
    assert draft.shields == [(2, 8)]
    assert draft.cut(5)[2] == ((2, 5),)
    assert draft.text == "CD y"
    assert draft.shields == [(0, 2)]
    assert draft.cut(4)[2] == ((0, 2),)


def test_an_open_spelling_goes_on_after_a_cut() -> None:
    draft = build(Piece("x", 0, 1, True))
    draft.spell(True)
    draft.append(Piece("AB", 1, 3, True))
    assert draft.cut(3)[2] == ((1, 3),)
    draft.append(Piece("CD", 3, 5, True))
    draft.spell(False)
    draft.spell(False)
    assert draft.cut(2)[2] == ((0, 2),)


@given(
    st.lists(st.text("ab. \n", min_size=1, max_size=4), max_size=12), st.lists(st.integers(1, 5), max_size=12)
)
def test_cuts_lose_nothing(parts: list[str], cuts: list[int]) -> None:
    draft, source = Draft(), "".join(parts)
    at = 0
    for part in parts:
        for char in part:
            draft.append(Piece(char, at, at + 1, char != "\n"))
            at += 1
    whole = draft.text
    seen = ""
    for size in [*cuts, len(whole)]:
        text, alignment, _, _ = draft.cut(min(size, len(draft.text)))
        seen += text
        for span in alignment.spans:
            if span.exact:
                assert source[span.source_start : span.source_end] == text[span.start : span.end]
    assert seen.replace(" ", "") == source.replace(" ", "").replace("\n", "")
