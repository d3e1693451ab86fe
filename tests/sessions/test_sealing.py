"""Seals open with their key and their context alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.sealing import KEY_RECORD, context, new_key, seal, unseal

PARTS = st.lists(st.none() | st.integers() | st.text(max_size=4), max_size=4)


@given(st.binary(max_size=100), st.binary(max_size=20), st.data())
def test_only_the_same_opens(data: bytes, bound_to: bytes, draw: st.DataObject) -> None:
    secret = new_key()
    sealed = seal(secret, data, bound_to)
    assert unseal(secret, sealed, bound_to) == data
    assert seal(secret, data, bound_to) != sealed
    assert unseal(new_key(), sealed, bound_to) is None
    assert unseal(secret, sealed, bound_to + b"x") is None
    at = draw.draw(st.integers(0, len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[at] ^= 1
    assert unseal(secret, bytes(flipped), bound_to) is None
    assert unseal(secret, sealed[:at], bound_to) is None


@given(PARTS, PARTS)
def test_contexts_differ_where_their_parts_do(a: list[str | int | None], b: list[str | int | None]) -> None:
    assert (context("k", *a) == context("k", *b)) == (a == b)
    assert context("k", *a) != context("l", *a)


def test_a_sealed_key_has_its_length() -> None:
    assert len(seal(new_key(), new_key(), b"")) == KEY_RECORD
