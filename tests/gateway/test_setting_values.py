from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.setting_values import Bad, flag, items, number, text, whole, word

ANYTHING = st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers()))


@pytest.mark.parametrize(("raw", "read"), [("7", 7), (7, 7), (" 9 ", 9)])
def test_whole_numbers(raw: object, read: int) -> None:
    assert whole(0, 9)(raw) == read


@pytest.mark.parametrize("raw", [True, "", "1.5", 1.5, None, "10", -1, []])
def test_no_whole_number_from_0_to_9(raw: object) -> None:
    with pytest.raises(Bad):
        whole(0, 9)(raw)


def test_numbers() -> None:
    assert [number(0, 2)(raw) for raw in (1, "0.5", 2.0)] == [1.0, 0.5, 2.0]
    for raw in (True, "nan", float("nan"), "x", None, 2.1):
        with pytest.raises(Bad):
            number(0, 2)(raw)


def test_flags_words_and_lists() -> None:
    assert [flag(raw) for raw in (True, "on", " YES ", "1", False, "off", "No", "0")] == [True] * 4 + [
        False
    ] * 4
    assert word("key", "open")(" Open ") == "open"
    assert text(" a b ") == "a b"
    assert items("a, ,b,") == ["a", "b"]
    assert items(["a", 2]) == ["a", 2]
    for read, raw in (
        (flag, "maybe"),
        (flag, 1),
        (word("key"), "open"),
        (text, "a\nb"),
        (text, 1),
        (items, 1),
    ):
        with pytest.raises(Bad):
            read(raw)


@given(ANYTHING, st.sampled_from([whole(-5, 5), number(-5, 5), flag, word("a", "b"), text, items]))
def test_anything_is_read_or_refused(raw: object, read: object) -> None:
    assert callable(read)
    try:
        read(raw)
    except Bad as error:
        assert str(error).startswith("is ") or "control" in str(error)
