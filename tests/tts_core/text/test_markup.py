from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text import markup
from tts_core.text.markup import Found, Kind, Tag, pause_ms, scan, speed_of, spells, volume_of


def tag(text: str) -> Tag:
    found = scan(text, 0, closed=True)
    assert found.kind is Kind.TAG
    assert found.end == len(text)
    assert found.tag is not None
    return found.tag


@pytest.mark.parametrize(
    ("text", "name", "closing", "empty", "attributes"),
    [
        ("<b>", "b", False, False, {}),
        ("</B >", "b", True, False, {}),
        ("<br/>", "br", False, True, {}),
        ("<br / >", "br", False, True, {}),
        ('<break time="500ms"/>', "break", False, True, {"time": "500ms"}),
        ("<break time='0.5s' strength = weak />", "break", False, True, {"time": "0.5s", "strength": "weak"}),
        ("<break time=500ms/>", "break", False, True, {"time": "500ms"}),
        ("<break time=“1s”/>", "break", False, True, {"time": "1s"}),
        ("<amazon:effect name='x'>", "amazon:effect", False, False, {"name": "x"}),
        ("<input disabled>", "input", False, False, {}),
    ],
)
def test_tags(text: str, name: str, closing: bool, empty: bool, attributes: dict[str, str]) -> None:
    assert tag(text) == Tag(name, closing, empty, attributes)


@pytest.mark.parametrize(
    "text",
    [
        "< 5 and x > 2",
        "<3",
        "<",
        "<-",
        "<=",
        "<a, b>",
        "<x<y>",
        "<a\n\nb>",
        "<y",
        "<a " + "word " * 20 + ">",
        "<a b=" + "c" * 300 + ">",
        "<< 3",
        "<<",
        "<jo+x",
        "<jo@ex",
    ],
)
def test_signs(text: str) -> None:
    assert scan(text, 0, closed=True).kind is Kind.LITERAL


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("<|im_start|>x", 12),
        ("<｜end▁of▁sentence｜>x", 19),
        ("<|im", 4),
        ("<|a b<", 2),
        ("<|" + "x" * 100 + "|>", 2),
        ("<<h|ə|l>>x", 9),
        ("<<h|ə", 5),
        ("<!-- a > b -->x", 14),
        ("<!-- a", 6),
        ("<!--" + "a" * 2100, 4),
        ("<!DOCTYPE html>x", 15),
        ("<?xml version='1'?>x", 19),
        ("<bre", 4),
        ("<break time='5", 14),
        ("</emo", 5),
        ("<foo a='", 8),
    ],
)
def test_drops(text: str, end: int) -> None:
    assert scan(text, 0, closed=True) == Found(Kind.DROP, end)


@pytest.mark.parametrize(
    "text", ["<jo.doe+x@example.com>", "<https://a.b/c?d=1>", "<mailto:a@b.c>", "<www.a.com/b>"]
)
def test_autolinks(text: str) -> None:
    assert scan(text + " more", 0, closed=False) == Found(Kind.AUTOLINK, len(text))


CORPUS = [
    "<b>",
    "<break time='5ms'/>",
    "<|a|>",
    "<<a|b>>",
    "<!-- x -->",
    "<a.b@c.de>",
    "<https://x.y/z>",
    "<x y z>",
]
CORPUS += [
    "<a, b>",
    "<3",
    "</p >",
    "<a\n\nb>",
    "<www.a/b>",
    "<| a <b>",
    "<<b>",
    "<a b='c > d'>",
    "<p " + "w " * 40 + "=>",
]


@settings(max_examples=300)
@given(
    st.sampled_from(CORPUS) | st.text("<>|/!?-a1=' \n@.:é", max_size=40).map("<".__add__), st.text(max_size=5)
)
def test_a_verdict_never_changes_with_what_follows(text: str, more: str) -> None:
    whole = text + more
    settled: Found | None = None
    for end in range(1, len(whole) + 1):
        found = scan(whole[:end], 0, closed=False)
        if settled is not None:
            assert found == settled
        elif found.kind is not Kind.MORE:
            assert found.end <= end
            settled = found
    assert scan(whole, 0, closed=True).kind is not Kind.MORE


@given(st.text("a <>='\"|/!", min_size=1))
def test_no_tag_is_waited_for_without_end(text: str) -> None:
    long = "<" + text * (2200 // len(text) + 1)
    assert scan(long, 0, closed=False).kind is not Kind.MORE


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("<break/>", 500),
        ("<break time='500ms'/>", 500),
        ("<break time='0.5s'/>", 500),
        ("<break time='.25s'/>", 250),
        ("<break time='2'/>", 2000),
        ("<break time='300'/>", 300),
        ("<break duration='1s'/>", 1000),
        ("<break time='99s'/>", 5000),
        ("<break time='soon'/>", 500),
        ("<break time='-1s'/>", 500),
        ("<break strength='none'/>", 0),
        ("<break strength='X-STRONG'/>", 1500),
        ("<break strength='odd'/>", 500),
    ],
)
def test_pauses(text: str, ms: int) -> None:
    assert pause_ms(tag(text)) == ms


@pytest.mark.parametrize(
    ("text", "speed", "volume"),
    [
        ("<speed ratio='1.2'/>", 1.2, None),
        ("<speed value='0.1'/>", 0.5, None),
        ("<speed ratio='999'/>", 2.0, None),
        ("<speed ratio='fast'/>", 1.2, None),
        ("<speed/>", None, None),
        ("<speed ratio='nan'/>", None, None),
        ("<volume ratio='0.5'/>", None, 0.5),
        ("<volume value='9'/>", None, 2.0),
        ("<prosody rate='120%' volume='+6dB'>", 1.2, 1.995),
        ("<prosody rate='+20%' volume='-6dB'>", 1.2, 0.501),
        ("<prosody rate='-20%' volume='silent'>", 0.8, 0.0),
        ("<prosody rate='x-slow' pitch='high'>", 0.6, None),
        ("<prosody volume='+9999dB'>", None, 2.0),
        ("<emotion value='1.2'/>", None, None),
    ],
)
def test_speed_and_volume(text: str, speed: float | None, volume: float | None) -> None:
    assert speed_of(tag(text)) == (None if speed is None else pytest.approx(speed, abs=0.001))
    assert volume_of(tag(text)) == (None if volume is None else pytest.approx(volume, abs=0.001))


def test_spelling() -> None:
    assert spells(tag("<spell>"))
    assert spells(tag("<say-as interpret-as='characters'>"))
    assert not spells(tag("<say-as interpret-as='date'>"))
    assert not spells(tag("<b>"))


def test_tag_sets_are_disjoint_where_they_mean_different_things() -> None:
    assert not markup.BLOCK_TAGS & markup.INLINE_TAGS
    assert markup.SPEECH_TAGS <= markup.KNOWN_TAGS
