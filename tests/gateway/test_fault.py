from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fault import UNREADABLE, bad_request, strings


class Inner(msgspec.Struct):
    rate: int
    name: str = ""


class Outer(msgspec.Struct):
    id: str
    inner: Inner | None = None
    items: list[Inner] = []


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("{}", "id"),
        ('{"id": 5}', "id"),
        ('{"id": "a", "inner": {}}', "inner.rate"),
        ('{"id": "a", "inner": {"rate": "x"}}', "inner.rate"),
        ('{"id": "a", "items": [{"rate": null}]}', "items[0].rate"),
        ("[]", None),
        ('{"id": ', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_the_field_at_fault_is_named(raw: str, field: str | None) -> None:
    with pytest.raises(UNREADABLE) as raised:
        msgspec.json.decode(raw, type=Outer)
    error = bad_request(raised.value)
    assert error.field == field
    assert error.code == "bad_request"
    assert 0 < len(error.message) <= 300


def test_what_can_still_be_read_is() -> None:
    assert strings('{"id": "a", "type": 5, "more": [1]}', "id", "type", "none") == ["a", None, None]
    assert strings('["id"]', "id") == [None]
    assert strings('{"id": "a"', "id") == [None]


@given(st.binary(max_size=100) | st.text(max_size=100))
def test_nothing_else_is_raised_for_any_message(raw: str | bytes) -> None:
    try:
        msgspec.json.decode(raw, type=Outer)
    except UNREADABLE as error:
        assert bad_request(error).status == 400
    assert len(strings(raw, "id", "type")) == 2
