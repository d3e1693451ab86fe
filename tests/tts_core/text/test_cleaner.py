from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text.cleaner import MAX_SPELL, Cleaner
from tts_core.text.items import Break, Item, Level, Manner, Piece, Spell, Stop
from tts_core.text.segment import TextOptions


def items(text: str, options: TextOptions | None = None, level: Level = Level.END) -> list[Item]:
    cleaner = Cleaner(options or TextOptions())
    cleaner.feed(text)
    return list(cleaner.items(level))


def said(text: str, options: TextOptions | None = None, level: Level = Level.END) -> str:
    return "".join(
        i.text if isinstance(i, Piece) else "|" if isinstance(i, Stop) else ""
        for i in items(text, options, level)
    )


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a  b\t c", "a b c"),
        ("**b** *i* __b__ _i_ ~~s~~", "b i b i s"),
        ("2*3 4 * 5 snake_case ~6", "2*3 4 * 5 snake_case ~6"),
        ("`x*y_z` and ``<b>``", "x*y_z and"),
        ("[a](b)![c](d) e[1] [2]", "a e 2"),
        ("&amp;&lt;&#39;&nbsp;&bogus; &", "&< ' &bogus; &"),
        (r"\*a\* \q \<b>", "*a* \\q \\"),
        ("a\\\nb", "a\nb"),
        ("a 😀 b 😀.", "a b."),
        ("a\u200bb\u202e", "ab"),
        ("e\u0301 \u0301x", "é x"),
        ("\ud83d\ude00 \ud835\udc00 \ud83d", " \U0001d400"),
        ("# H\ntext", "|H|\ntext"),
        ("a\n\nb", "a|b"),
        ("a\n- b\n- c", "a|b|c"),
        ("a\n\n\n\nb", "a|b"),
        ("x\n```\ncode\n```\ny", "x|\ny"),
        ("x ```py\ncode\n``` y", "x| y"),
        ("x ~~~ y", "x y"),
        ("| a |\n| b |\nc", "||\nc"),
        ("a<br>b<p>c</p>d", "a\nb|c|d"),
        ("a <zz> b<zz>c<i>d</i>e", "a b cde"),
        ("<https://a.b/_c_> <jo_e@b.de>", "https://a.b/_c_ jo_e@b.de"),
        ("<a@é.de>", "a@é.de>"),
        ("a <|x|> b <<p|q>> c <!-- d -->e", "a b c e"),
    ],
)
def test_cleaning(text: str, clean: str) -> None:
    assert said(text) == clean


def test_offsets() -> None:
    text = "a **bc**\u0301 &amp; e\u0301\u200bf"
    for item in items(text):
        assert isinstance(item, Piece)
        if item.exact:
            assert text[item.start : item.end] == item.text
    assert [(i.text, i.start, i.end) for i in items(text) if isinstance(i, Piece) and not i.exact] == [
        ("&", 10, 15),
        ("é", 16, 18),
    ]


def test_lines_that_are_wrapped_and_lines_that_end() -> None:
    assert said("short\nline") == "short\nline"
    assert said("x" * 60 + "\nline") == "x" * 60 + " line"


def test_tags() -> None:
    assert items("<break time='1s'/>") == [Break(0, 1000)]
    assert items("<speed ratio='1.5'/>") == [Manner(0, 1.5, 1.0)]
    assert items("<volume ratio='.5'>a</volume>")[::2] == [Manner(0, 1.0, 0.5), Manner(20, 1.0, 1.0)]
    assert items("</speed></break><emotion value='x'/>") == []
    assert items("<spell>A_*B</spell>") == [
        Spell(True),
        Piece("A", 7, 8, True),
        Piece("_", 8, 9, True),
        Piece("*", 9, 10, True),
        Piece("B", 10, 11, True),
        Spell(False),
    ]
    nested = [i for i in items("<prosody rate='slow'>" * 40) if isinstance(i, Manner)]
    assert len(nested) == 40
    assert items("<break/><spell>a</spell>", TextOptions(tags=False)) == [Piece("a", 15, 16, True)]


def test_spelling_ends_by_itself() -> None:
    out = items("<spell>" + "A" * (MAX_SPELL + 5))
    assert out.index(Spell(False)) == len(out) - 2
    assert out[-1] == Piece("A" * 5, 7 + MAX_SPELL, 12 + MAX_SPELL, True)


def test_without_cleaning() -> None:
    plain = TextOptions(clean=False)
    text = "# **a** [b](c) `d` &amp; <i>x</i>\n- e"
    assert said(text, plain) == "# **a** [b](c) `d` &amp; < i>x< /i>\n- e"
    assert said("a\u202eb<|x|>c <emotion v='1'/>d", plain) == "ab c d"


@pytest.mark.parametrize(
    ("text", "more", "release", "flush"),
    [
        ("ab", "a", "a", "ab"),
        ("a.", "a", "a.", "a."),
        ("a!", "a", "a!", "a!"),
        ("a <b", "a", "a", "a"),
        ("a [1", "a", "a", "a 1"),
        ("a &am", "a", "a", "a &am"),
        ("b.**", "b.", "b.", "b."),
        ("2*", "2", "2", "2"),
        ("a \\", "a", "a", "a \\"),
        ("a\n- ", "a", "a", "a|"),
        ("a ```", "a", "a", "a|"),
        ("a ]", "a", "a", "a"),
        ("\ud83d", "", "", ""),
    ],
)
def test_levels(text: str, more: str, release: str, flush: str) -> None:
    for level, expected in ((Level.MORE, more), (Level.RELEASE, release), (Level.FLUSH, flush)):
        assert said(text, level=level) == expected


def test_an_open_bracket_outlasts_a_flush_but_not_the_end() -> None:
    cleaner = Cleaner(TextOptions())
    cleaner.feed("a <bre")
    assert list(cleaner.items(Level.FLUSH)) == [Piece("a", 0, 1, True)]
    assert cleaner.waiting == "<bre"
    assert cleaner.at == 2
    assert list(cleaner.items(Level.END)) == []
    assert cleaner.waiting == ""


def test_a_new_message_begins_a_line() -> None:
    cleaner = Cleaner(TextOptions())
    out: list[Item] = []
    for message in ("one", "- two", "| row", "three"):
        cleaner.new_message()
        cleaner.feed(message)
        out += cleaner.items(Level.FLUSH)
    assert [i.text for i in out if isinstance(i, Piece)] == ["one", "two", "three"]


def test_an_open_fence_outlasts_a_message() -> None:
    cleaner = Cleaner(TextOptions())
    out: list[Item] = []
    for message in ("```\ncode", "more code\n", "```\n", "text"):
        cleaner.new_message()
        cleaner.feed(message)
        out += cleaner.items(Level.FLUSH)
    assert [i.text for i in out if isinstance(i, Piece)][-1] == "text"


def test_calm_only_amid_plain_words() -> None:
    for text, calm in (
        ("a wo", True),
        ("a wo ", True),
        ("a <b", False),
        ("", False),
        ("a\n", False),
        ("```\nx", False),
    ):
        cleaner = Cleaner(TextOptions())
        cleaner.feed(text)
        list(cleaner.items(Level.MORE))
        assert cleaner.calm is calm, text


@settings(max_examples=300, deadline=None)
@given(st.text("ab1 *_`~[]()<>|!#-\n\\&;.e\u0301\u200b😀", max_size=80), st.booleans(), st.integers(1, 7))
def test_pieces_are_in_order_and_the_same_for_any_split(text: str, clean: bool, step: int) -> None:
    options = TextOptions(clean=clean)
    cleaner = Cleaner(options)
    out: list[Item] = []
    for at in range(0, len(text), step):
        cleaner.feed(text[at : at + step])
        out += cleaner.items(Level.MORE)
    out += cleaner.items(Level.END)
    assert cleaner.waiting == ""
    assert cleaner.at == len(text)
    assert join(out) == join(items(text, options))
    at = 0
    for item in out:
        if isinstance(item, Piece):
            assert at <= item.start <= item.end <= len(text)
            at = item.end
            assert not item.exact or text[item.start : item.end] == item.text


def join(out: list[Item]) -> list[Item]:
    """Exact pieces that touch, put together: how they are cut is no matter."""
    done: list[Item] = []
    for item in out:
        last = done[-1] if done else None
        if (
            isinstance(item, Piece)
            and isinstance(last, Piece)
            and item.exact
            and last.exact
            and last.end == item.start
        ):
            done[-1] = Piece(last.text + item.text, last.start, item.end, True)
        else:
            done.append(item)
    return done
