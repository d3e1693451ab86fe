from __future__ import annotations

import pytest

from tts_core.text.clauses import after_dash, after_dots, after_mark, beyond, within
from tts_core.text.cuts import MORE, NO, Cut, Wait


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("Hi there, we", True),
        ("Sure, we", True),
        ("Apples, we", False),
        ("Hi there,we", False),
        ("On March 5, 2024 we", False),
        ("In March, 2024 we", False),
        ("Take 1, 2 and", False),
        ("You have: 5 of", True),
        ("In Austin, TX we", False),
        ("Tom Ray, Jr. is", False),
        ("Tom Ray, Junior is", True),
        ("Main Street, Apt. 4 is", False),
        ("We sell (apples, pears", False),
        ("He said “wait there, please", False),
        ("So then, , ok", False),
        ("So then, 你好", True),
        ("One moment, please.", False),
        ("One moment, please!", False),
        ("One moment, please hold", True),
        ("So then, “we", True),
    ],
)
def test_after_a_mark(text: str, cut: bool) -> None:
    at = next(i for i, c in enumerate(text) if c in ",;:")
    answer = after_mark(text, at, True)
    assert isinstance(answer, Cut) is cut
    if isinstance(answer, Cut):
        assert answer.at == at + 1


def test_a_mark_waits_for_what_may_change_the_answer() -> None:
    assert after_mark("Hi there,", 8, False) is MORE
    assert after_mark("Hi there, ", 8, False) is MORE
    assert after_mark("Hi there, T", 8, False) is MORE
    assert after_mark("Hi there, Ap", 8, False) is MORE
    assert isinstance(after_mark("Hi there, Ti", 8, False), Cut)
    assert isinstance(after_mark("Hi there, w", 8, False), Cut)
    assert after_mark("Hi there,", 8, True) is NO


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("Thank you — we", True),
        ("Thank you—we", True),
        ("Thank you – we", True),
        ("Thank you – 5", False),
        ("New York–London", False),
        ("It is 5 — 10", False),
        ("Thanks — we", True),
        ("Apples — we", False),
    ],
)
def test_after_a_dash(text: str, cut: bool) -> None:
    at = next(i for i, c in enumerate(text) if c in "—–")
    assert isinstance(after_dash(text, at, at + 1, True), Cut) is cut


def test_a_dash_waits() -> None:
    assert after_dash("Thank you —", 10, 11, False) is MORE
    assert after_dash("Thank you — ", 10, 11, False) is MORE
    assert after_dash("Thank you —", 10, 11, True) is NO


def test_after_dots() -> None:
    assert isinstance(after_dots("Let me see... there", 10), Cut)
    assert after_dots("Well... there", 4) is NO
    assert after_dots("Let me see...there", 10) is NO


def test_within() -> None:
    text = "some words of text, and more; then others, and the rest of it all goes on"
    assert text[: within(text, 40, False, [])] == "some words of text, and more;"
    assert text[: within(text, 24, False, [])] == "some words of text,"
    assert within("word " * 20, 21, False, []) == 19
    assert within("word because we say so and more", 12, False, []) == 5
    assert within("x" * 90, 20, False, []) == 0
    assert within("a 1 2 3 4 5 6 7 8 9 1 2", 20, False, []) == 0
    assert within("we call Dr. Smith now", 13, False, []) == 7
    assert within(text, 40, False, [(0, 60)]) == 0


def test_beyond() -> None:
    url = "x" * 50
    assert beyond(url, 45, 20, False, []) == Wait(50)
    assert beyond(url + " and", 45, 20, False, []) == Wait(50)
    answer = beyond(url + " and", 45, 20, True, [])
    assert isinstance(answer, Cut)
    assert answer.at == 50
    hard = beyond("x" * 200, 45, 20, False, [])
    assert isinstance(hard, Cut)
    assert hard.at == 20
    marked = beyond("x" * 20 + "\u0301" * 3 + "x" * 200, 45, 20, False, [])
    assert isinstance(marked, Cut)
    assert marked.at == 23
