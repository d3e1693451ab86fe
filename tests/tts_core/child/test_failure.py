"""Errors between processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.child.failure import Failed
from tts_core.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    SettingsError,
    TextTooLong,
    VoxwireError,
)


@given(
    st.sampled_from([SettingsError, BadRequest, TextTooLong, EngineError, EngineCrashed, EngineTimeout]),
    st.text(min_size=1),
    st.none() | st.text(),
)
def test_an_error_arrives_as_it_was(kind: type[VoxwireError], words: str, field: str | None) -> None:
    failed = Failed.of(7, kind(words, field=field))
    assert failed.id == 7
    error = failed.error(EngineError, SettingsError, BadRequest)
    assert (type(error), error.message, error.field) == (kind, words, field)


@pytest.mark.parametrize("kinds", [(), (EngineError,), (EngineError, SettingsError)])
def test_who_expects_other_kinds_gets_an_engine_error(kinds: tuple[type[VoxwireError], ...]) -> None:
    error = Failed.of(1, TextTooLong("too long", field="text")).error(*kinds)
    assert (type(error), error.message, error.field) == (EngineError, "too long", None)


def test_an_unknown_code_is_an_engine_error() -> None:
    assert type(Failed(1, "who_knows", "x").error(VoxwireError)) is EngineError
