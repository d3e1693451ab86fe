from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.alignment import Alignment, AlignmentBuilder, Span

Edit = tuple[str, int]
"""What becomes of the next characters of a text, and of how many of them."""

edits = st.lists(
    st.tuples(st.sampled_from(["keep", "replace", "drop", "insert"]), st.integers(1, 5)), max_size=12
)


def edited(text: str, steps: list[Edit]) -> tuple[str, Alignment, list[tuple[int, int]]]:
    """A derived text, its alignment, and the source range of each of its characters."""
    builder, ranges, at = AlignmentBuilder(), [], 0
    for kind, count in steps:
        piece = text[at : at + count]
        if kind == "insert":
            builder.replace("+" * count, at, at)
            ranges += [(at, at)] * count
            continue
        if kind == "keep":
            builder.copy(piece, at)
            ranges += [(at + i, at + i + 1) for i in range(len(piece))]
        elif kind == "replace" and piece:
            builder.replace("x" * (2 * count), at, at + len(piece))
            ranges += [(at, at + len(piece))] * (2 * count)
        at += len(piece)
    derived, alignment = builder.build()
    return derived, alignment, ranges


@given(st.text("abc ", max_size=40), edits)
def test_every_character_maps_to_where_it_came_from(text: str, steps: list[Edit]) -> None:
    derived, alignment, ranges = edited(text, steps)
    assert len(derived) == len(ranges)
    for i, expected in enumerate(ranges):
        assert alignment.source_range(i, i + 1) == expected
        if derived[i] not in "x+":
            assert derived[i] == text[expected[0] : expected[1]]


@given(st.text("abc ", max_size=40), edits, st.integers(0, 60), st.integers(0, 60))
def test_ranges_grow_with_their_ends_and_stay_within_the_text(
    text: str, steps: list[Edit], first: int, length: int
) -> None:
    derived, alignment, ranges = edited(text, steps)
    first = min(first, len(derived))
    last = min(first + length, len(derived))
    start, end = alignment.source_range(first, last)
    assert 0 <= start <= len(text)
    if last > first:
        assert start == ranges[first][0]
        assert end == ranges[last - 1][1]
        assert start <= end <= len(text)


@given(st.text("abc ", max_size=30), edits, edits)
def test_two_maps_in_a_row_are_one(text: str, first: list[Edit], second: list[Edit]) -> None:
    middle, outer, _ = edited(text, first)
    derived, inner, _ = edited(middle, second)
    whole = outer.then(inner)
    for i in range(len(derived)):
        between = inner.source_range(i, i + 1)
        if between[0] < between[1]:  # what was inserted has no place of its own to compare
            assert whole.source_range(i, i + 1) == outer.source_range(*between)
    starts = [s.start for s in whole.spans]
    assert starts == sorted(starts)


@given(st.text("abc", max_size=20), edits, st.integers(0, 1000))
def test_a_shifted_map_is_the_same_further_on(text: str, steps: list[Edit], by: int) -> None:
    derived, alignment, ranges = edited(text, steps)
    for i in range(len(derived)):
        assert alignment.shift(by).source_range(i, i + 1) == (ranges[i][0] + by, ranges[i][1] + by)


def test_identity() -> None:
    alignment = Alignment.identity(5, 10)
    assert alignment.source_range(0, 5) == (10, 15)
    assert alignment.source_range(2, 3) == (12, 13)
    assert alignment.source_range(3, 3) == (13, 13)
    assert Alignment.identity(0, 10) == Alignment(())
    assert Alignment(()).source_range(0, 3) == (0, 0)


def test_a_block_maps_as_a_whole() -> None:
    builder = AlignmentBuilder()
    builder.copy("at ", 0)
    builder.replace("two thirty", 3, 7)
    builder.copy(" sharp", 7)
    text, alignment = builder.build()
    assert text == "at two thirty sharp"
    assert alignment.source_range(3, 6) == (3, 7)
    assert alignment.source_range(7, 13) == (3, 7)
    assert alignment.source_range(0, 6) == (0, 7)
    assert alignment.source_range(14, 19) == (8, 13)


def test_what_is_beyond_the_end_is_the_end() -> None:
    assert Alignment.identity(5).source_range(4, 99) == (4, 5)


def test_neighbours_that_were_copied_are_one_span_and_empty_pieces_are_none() -> None:
    builder = AlignmentBuilder()
    builder.copy("ab", 0)
    builder.copy("", 2)
    builder.replace("", 2, 5)
    builder.copy("cd", 2)
    builder.copy("fg", 5)
    _, alignment = builder.build()
    assert alignment.spans == (Span(0, 4, 0, 4, exact=True), Span(4, 6, 5, 7, exact=True))


def test_maps_compare_by_what_they_map() -> None:
    one, same, other = Alignment.identity(3), Alignment.identity(3), Alignment.identity(4)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "text"
    assert "Span(start=0, end=3" in repr(one)
    with pytest.raises(AttributeError):
        one.more = 1  # type: ignore[attr-defined]


def test_two_long_maps_in_a_row_take_as_long_as_their_spans() -> None:
    def spans(count: int) -> tuple[Alignment, Alignment]:
        outer, inner = AlignmentBuilder(), AlignmentBuilder()
        for i in range(count):
            outer.replace("x", i, i + 1)
            inner.copy("x", i)
            inner.replace(" ", i, i)
        return outer.build()[1], inner.build()[1]

    def looked_at(count: int) -> int:
        class Counted(tuple[Span, ...]):
            seen = 0

            def __getitem__(self, index: Any) -> Any:
                Counted.seen += 1
                return super().__getitem__(index)

            def __iter__(self) -> Iterator[Span]:
                for span in super().__iter__():
                    Counted.seen += 1
                    yield span

        outer, inner = spans(count)
        outer.spans = Counted(outer.spans)
        assert len(outer.then(inner).spans) == 2 * count
        return Counted.seen

    assert looked_at(1000) < 12 * looked_at(100)
