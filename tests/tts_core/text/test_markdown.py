from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text.items import Level
from tts_core.text.markdown import Block, block, bracket, fence, fence_end, is_sign, may_grow, run


@pytest.mark.parametrize(
    ("text", "kind", "end"),
    [
        ("# Title", Block.HEADING, 2),
        ("###### Six", Block.HEADING, 7),
        ("####### Seven", Block.PLAIN, 7),
        ("#1 choice", Block.PLAIN, 2),
        ("- item", Block.ITEM, 2),
        ("* item", Block.ITEM, 2),
        ("+ item", Block.ITEM, 2),
        ("• item", Block.ITEM, 2),
        ("– item", Block.ITEM, 2),
        ("- [x] done", Block.ITEM, 6),
        ("- [ ] todo", Block.ITEM, 6),
        ("- [link](x)", Block.ITEM, 2),
        ("-5 degrees", Block.PLAIN, 0),
        ("**bold**", Block.PLAIN, 0),
        ("+1 415", Block.PLAIN, 0),
        ("1. One", Block.ITEM, 0),
        ("12) Two", Block.ITEM, 0),
        ("2024. That", Block.PLAIN, 0),
        ("3.5 is", Block.PLAIN, 0),
        ("---\n", Block.RULE, 3),
        ("* * *\n", Block.RULE, 5),
        ("===\n", Block.RULE, 3),
        ("-\n", Block.RULE, 1),
        ("--\n", Block.PLAIN, 0),
        ("--- | :--\n", Block.DELIMITER, 9),
        ("-" * 300, Block.SKIP, 200),
        ("> quote", Block.SKIP, 1),
        (">5", Block.PLAIN, 1),
        ("| a | b", Block.ROW, 0),
        ("```py\nx", Block.FENCE, 5),
        ("~~~\nx", Block.FENCE, 3),
        ("```ls``` is", Block.PLAIN, 0),
        ("plain", Block.PLAIN, 0),
        (":) smile", Block.PLAIN, 0),
    ],
)
def test_blocks(text: str, kind: Block, end: int) -> None:
    found, at = block(text, 0, Level.MORE, table=False)
    assert found is kind
    if kind is not Block.PLAIN:
        assert at == end


@pytest.mark.parametrize(
    "text", ["#", "-", "- [", "- [x]", "1", "1.", "---", "`", "``", "```", "```py", ">", "•", "* "]
)
def test_blocks_that_cannot_be_told_yet(text: str) -> None:
    assert block(text, 0, Level.MORE, table=False)[0] is Block.MORE
    assert block(text, 0, Level.END, table=False)[0] is not Block.MORE


def test_a_pause_after_a_number_makes_it_no_list() -> None:
    assert block("3.", 0, Level.RELEASE, table=False)[0] is Block.PLAIN
    assert block("- ", 0, Level.RELEASE, table=False)[0] is Block.MORE


def test_rows_without_outer_bars_belong_to_a_table_only() -> None:
    assert block("a | b\n", 0, Level.MORE, table=True)[0] is Block.ROW
    assert block("a b\n", 0, Level.MORE, table=True)[0] is Block.PLAIN
    assert block("a b", 0, Level.MORE, table=True)[0] is Block.MORE
    assert block("a b" * 200, 0, Level.MORE, table=True)[0] is Block.PLAIN
    assert block("a | b\n", 0, Level.MORE, table=False)[0] is Block.PLAIN
    assert block("- a\n", 0, Level.MORE, table=True)[0] is Block.ITEM


def test_fences() -> None:
    assert fence("```" + "x" * 120, 0, Level.MORE)[0] is Block.PLAIN
    assert fence("```py", 0, Level.FLUSH) == (Block.FENCE, 5)
    assert fence("``", 0, Level.FLUSH)[0] is Block.PLAIN
    assert fence_end("```\n", 0, "```", Level.MORE) == (True, 3)
    assert fence_end("  ````\n", 0, "```", Level.MORE) == (True, 6)
    assert fence_end("``\n", 0, "```", Level.MORE) == (False, 2)
    assert fence_end("```py\n", 0, "```", Level.MORE) == (False, 3)
    assert fence_end("code", 0, "```", Level.MORE) == (False, 0)
    assert fence_end("~~~\n", 0, "```", Level.MORE) == (False, 0)
    assert fence_end("```", 0, "```", Level.MORE)[0] is None
    assert fence_end("```", 0, "```", Level.FLUSH) == (True, 3)
    assert fence_end("  ", 0, "```", Level.FLUSH)[0] is None
    assert fence_end(" " * 80, 0, "```", Level.MORE)[0] is False


@pytest.mark.parametrize(
    ("text", "after_word", "end"),
    [
        ("](http://a.b/c) x", False, 15),
        ("](a_(b)) x", False, 8),
        ('](<a> "title") x', False, 14),
        ("](see below) x", False, 0),
        ("](a b) x", False, 0),
        ("][ref] x", False, 6),
        ("] x", False, 0),
        ("](\nx)", False, 0),
        ("](" + "a" * 2100, False, 0),
        ("![alt](u) x", False, 9),
        ("![alt] x", False, 0),
        ("! x", False, 0),
        ("[1] x", True, 3),
        ("[1] x", False, 0),
        ("[^12] x", False, 5),
        ("[text](u)", True, 0),
        ("【4:0†source】x", False, 12),
        ("](", False, None),
        ("](http://a", False, None),
        ("](a (", False, 0),
        ("](a(b", False, None),
        ('](a "ti', False, None),
        ("]", False, None),
        ("![al", False, None),
        ("[12", True, None),
        ("[^", True, None),
        ("【4", True, None),
    ],
)
def test_brackets(text: str, after_word: bool, end: int | None) -> None:
    assert bracket(text, 0, after_word=after_word) == end


@settings(max_examples=400)
@given(st.sampled_from("]![【"), st.text("[]()!^1ab <>\"'\n】 ", max_size=20), st.booleans())
def test_brackets_are_decided_once(first: str, text: str, after_word: bool) -> None:
    whole = first + text
    settled: int | None = None
    for end in range(1, len(whole) + 1):
        found = bracket(whole[:end], 0, after_word=after_word)
        if settled is not None:
            assert found == settled
        settled = found


@settings(max_examples=400)
@given(st.text("-*_#>|`~=+1.) [x]a\n:•", min_size=1, max_size=30), st.booleans())
def test_blocks_are_decided_once(text: str, table: bool) -> None:
    if text[0] in " \n":
        return
    settled: tuple[Block, int] | None = None
    for end in range(1, len(text) + 1):
        found = block(text[:end], 0, Level.MORE, table=table)
        if settled is not None:
            assert found[0] is settled[0]
            assert found[1] == settled[1] or found[0] is Block.PLAIN
        elif found[0] is not Block.MORE:
            settled = found


def test_runs() -> None:
    assert run("***a", 0) == 3
    assert run("a***", 1) == 4
    assert run("*" * 100, 0) == 64
    assert may_grow("a***", 1, 4)
    assert not may_grow("***a", 0, 3)
    assert not may_grow("*" * 64, 0, 64)


@pytest.mark.parametrize(
    ("char", "length", "before", "after", "sign"),
    [
        ("*", 1, " ", " ", True),
        ("*", 1, "2", "3", True),
        ("*", 2, "2", "3", True),
        ("*", 2, " ", "b", False),
        ("*", 1, "d", " ", False),
        ("_", 1, "e", "c", True),
        ("_", 2, " ", "i", False),
        ("_", 3, "a", "b", False),
        ("~", 1, " ", "5", True),
        ("~", 2, "a", " ", False),
    ],
)
def test_signs(char: str, length: int, before: str, after: str, sign: bool) -> None:
    assert is_sign(char, length, before, after) is sign
