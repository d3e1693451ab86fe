from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.characters import ORDINARY, compose, extends, is_hidden, is_picture, is_space


@pytest.mark.parametrize("char", ["\u0301", "\u20d2", "\u0903", "\u1161", "\u11a8", "\ufe0f", "\u3099"])
def test_marks_extend_the_character_before(char: str) -> None:
    assert extends(char)


@given(st.characters(exclude_categories=["Cs"]), st.characters(exclude_categories=["Cs"]))
def test_whatever_composes_extends(base: str, mark: str) -> None:
    if len(unicodedata.normalize("NFC", base + mark)) < len(unicodedata.normalize("NFC", base)) + 1:
        assert extends(mark)


@pytest.mark.parametrize("char", ["\x00", "\x07", "\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\u00ad"])
def test_hidden(char: str) -> None:
    assert is_hidden(char)


@pytest.mark.parametrize("char", ["\ud800", "\udfff", "\ue000", "\U000e0041", "\U000f0000", "\ufdd0"])
def test_hidden_by_block(char: str) -> None:
    assert is_hidden(char)
    assert not is_hidden("a")


@pytest.mark.parametrize("char", [" ", "\t", "\n", "\r", "\x85", "\u00a0", "\u2003", "\u2028", "\u3000"])
def test_spaces(char: str) -> None:
    assert is_space(char)
    assert not is_space("a")


@pytest.mark.parametrize("char", "😀👩🏻✅➡→★☎⌚─⠋🇩⭐\ufe0f\u20e3")
def test_pictures(char: str) -> None:
    assert is_picture(char)


@pytest.mark.parametrize("char", "aZ9é€£°≥×ß中あ한Я©™—…“")
def test_what_is_read_is_no_picture(char: str) -> None:
    assert not is_picture(char)
    assert not is_hidden(char)


@given(st.text())
def test_ordinary_runs_need_no_treatment(text: str) -> None:
    """Whatever the fast path copies is visible, composed, and has no sign of markdown or markup in it."""
    for m in ORDINARY.finditer(text):
        run = m[0]
        assert unicodedata.is_normalized("NFC", run)
        assert not any(is_hidden(c) or is_picture(c) or extends(c) for c in run)
        assert not set(run) & set("<&[]!*_`~\\【\n\t")
        assert "  " not in run
        assert run == run.strip()


def test_ordinary_takes_plain_text_at_once() -> None:
    text = "It costs $3.50 (or £5), “more or less” – naïve, 中文, Привет"
    m = ORDINARY.match(text)
    assert m is not None
    assert m[0] == text


def test_compose() -> None:
    assert compose("e\u0301") == "é"
    assert compose("\u212b") == "Å"
