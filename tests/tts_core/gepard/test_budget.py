from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.gepard.budget import FRAME_S, MAX_FRAMES, budget_of, words
from tts_core.parts import PART, SLACK


@pytest.mark.parametrize(
    ("count", "cap"), [(1, 94), (2, 129), (5, 232), (8, 300), (20, 300), (24, 332), (60, 640)]
)
def test_the_published_rule_and_what_long_texts_need(count: int, cap: int) -> None:
    """0.7 s + 0.4 s a word, four times that, 80 to 300 frames; from 23 words on 1.5 times the expected."""
    budget = budget_of(" ".join(["word"] * count))
    assert budget.expected_s == pytest.approx(0.7 + 0.4 * count)
    assert budget.cap == cap


def test_words_are_parts_between_blanks_or_seven_characters() -> None:
    assert words("") == words("hi") == 1
    assert words("one  two\nthree") == 3
    assert words("Arbeidsongeschiktheidsverzekering") == 5


def test_the_longest_part_of_the_scheduler_is_never_cut_short() -> None:
    """Slow speech has 11 characters a second."""
    text = ("seven eleven " * 30)[: PART + SLACK]
    assert budget_of(text).cap * FRAME_S > len(text) / 11


@given(st.text(max_size=400), st.integers(1, 2000))
def test_a_budget_is_between_one_frame_and_the_most(text: str, most: int) -> None:
    budget = budget_of(text, most)
    assert 1 <= budget.tight <= budget.cap <= most
    assert budget.expected_s >= 1.1
    assert budget.cap >= min(80, most)


@given(
    st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=60),
    st.text("ab", min_size=1),
)
def test_more_text_never_gets_less(parts: list[str], more: str) -> None:
    shorter, longer = budget_of(" ".join(parts)), budget_of(" ".join([*parts, more]))
    assert longer.cap >= shorter.cap
    assert longer.tight >= shorter.tight
    assert longer.cap <= MAX_FRAMES
