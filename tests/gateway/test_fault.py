from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fault import UNREADABLE, bad_request, reading, said, strings
from tts_core.errors import BadRequest


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


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (r'"hi \ud83d there"', "hi \ufffd there"),
        (r'"\ude00 lone"', "\ufffd lone"),
        (r'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (r'"a pair \uD83D\uDE00"', "a pair \U0001f600"),
        (r'"a backslash \\ud800 \ud800"', "a backslash \\ud800 \ufffd"),
        (rb'"bytes \ud800"', "bytes \ufffd"),
    ],
)
def test_half_a_pair_does_not_cost_the_message(raw: str | bytes, read: str) -> None:
    assert reading(msgspec.json.decode)(raw) == read
    assert strings('{"id": ' + (raw if isinstance(raw, str) else raw.decode()) + "}", "id") == [read]


@pytest.mark.parametrize("raw", [r'{"id": "\ud800"', b'"\xff \\ud800"', '"' + r"\ud800" * 11_000 + '"', "["])
def test_what_is_broken_otherwise_stays_refused(raw: str | bytes) -> None:
    with pytest.raises(UNREADABLE):
        reading(msgspec.json.decode)(raw)


@given(st.text(st.characters()))
def test_any_text_as_a_script_writes_it_is_read(text: str) -> None:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert reading(msgspec.json.decode)(json.dumps(text)) == whole


@given(st.binary(max_size=100) | st.text(max_size=100))
def test_nothing_else_is_raised_for_any_message(raw: str | bytes) -> None:
    try:
        msgspec.json.decode(raw, type=Outer)
    except UNREADABLE as error:
        assert bad_request(error).status == 400
    assert len(strings(raw, "id", "type")) == 2


@pytest.mark.parametrize(
    ("message", "field", "words"),
    [
        ("must be a number", "speed", "speed: must be a number"),
        ("speed must be a number", "speed", "speed must be a number"),
        ("speedy voices are none", "speed", "speed: speedy voices are none"),
        ("send less", None, "send less"),
        ("send less", "", "send less"),
    ],
)
def test_the_field_is_named_once(message: str, field: str | None, words: str) -> None:
    assert said(BadRequest(message, field=field)) == words
