"""Scopes and narrowing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.principal import DEFAULT_SCOPES, Principal, Scope, parse_scopes
from tts_core.errors import BadRequest, Forbidden

SCOPES = st.frozensets(st.sampled_from(Scope))
NAMES = st.none() | st.sampled_from(["ada", "bob", ""])
NUMBERS = st.none() | st.integers(0, 100)


@given(SCOPES)
def test_a_scope_opens_its_own_door_only(scopes: frozenset[Scope]) -> None:
    p = Principal("t", "k", scopes)
    for scope in Scope:
        assert p.may(scope) == (scope in scopes)
        if scope in scopes:
            p.require(scope)
        else:
            with pytest.raises(Forbidden):
                p.require(scope)


def test_default_is_speak() -> None:
    assert Principal("t", "k").scopes == DEFAULT_SCOPES == {Scope.SPEAK}
    assert parse_scopes(["speak", "voice:enrol"]) == {Scope.SPEAK, Scope.VOICE_ENROL}
    with pytest.raises(BadRequest, match="call:out"):
        parse_scopes(["root"])


@given(SCOPES, SCOPES | st.none(), NAMES, NAMES, NUMBERS, NUMBERS, NAMES, NAMES)
def test_narrowing_never_widens(
    own: frozenset[Scope],
    asked: frozenset[Scope] | None,
    voice: str | None,
    other: str | None,
    most: int | None,
    more: int | None,
    origin: str | None,
    elsewhere: str | None,
) -> None:
    p = Principal("t", "k", own, voice=voice, max_characters=most, origin=origin)
    n = p.narrow(scopes=asked, voice=other, max_characters=more, origin=elsewhere)
    assert n.scopes <= own
    assert n.scopes == (own if asked is None else own & asked)
    assert n.voice == (other if voice is None else voice)
    assert n.origin == (elsewhere if origin is None else origin)
    given = [c for c in (most, more) if c is not None]
    assert n.max_characters == (min(given) if given else None)


def test_bound_to_a_voice() -> None:
    Principal("t", "k").require_voice("any")
    Principal("t", "k", voice="ada").require_voice("ada")
    with pytest.raises(Forbidden):
        Principal("t", "k", voice="ada").require_voice("bob")
