from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.voice_api.strict import decode
from tts_core.errors import BadRequest


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    ttl: float | None = None
    parts: list[str] = []


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(st.characters(codec="utf-8")),
            "ttl": st.floats(allow_nan=False, allow_infinity=False),
            "parts": st.lists(st.text(st.characters(codec="utf-8"))),
        },
    )
)
def test_what_was_written_is_read(wanted: dict[str, Any]) -> None:
    assert decode(json.dumps(wanted).encode(), Asked) == Asked(**wanted)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"name": 1}', b'{"extra": ""}', b'{"ttl": "1"}'),
        *(rb'{"name": "\ud800"}', rb'{"parts": ["a\udc00\ud800"]}', rb'{"\ud800": 1}'),
        *('{"name": "a"}'.encode("utf-16"), '{"name": "a"}'.encode("utf-8-sig")),
        *(b'{"ttl": NaN}', b'{"ttl": Infinity}', b'{"name": "a", "name": "a"}', b'{"name": "a",}'),
        *(b'{"parts": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"ttl": ' + b"9" * 5000 + b"}"),
    ],
)
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(raw, Asked)


@given(st.binary(max_size=60))
def test_no_bytes_give_another_error(raw: bytes) -> None:
    try:
        decode(raw, Asked)
    except BadRequest as error:
        assert error.message


def test_escaped_pairs_are_characters() -> None:
    assert decode(rb'{"name": "\ud83d\ude00\u00e9"}', Asked).name == "😀é"
