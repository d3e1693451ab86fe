from __future__ import annotations

import pytest

from sessions.session import REMEMBERED, Session, UnknownContext
from tts_core.errors import BadRequest, Draining, LimitExceeded


def test_ids_are_unique_while_open_and_may_come_back() -> None:
    session: Session[str] = Session("t", max_contexts=2)
    assert session.open("a", "first") == 1
    with pytest.raises(BadRequest):
        session.open("a", "again")
    session.close("a", "first")
    assert "a" not in session
    assert session.ended("a") == "first"
    assert session.open("a", "second") == 2
    assert session.get("a") == "second"
    assert session.ended("a") is None


def test_one_context_too_many_is_refused_alone() -> None:
    session: Session[str] = Session("t", max_contexts=1)
    session.open("a", "x")
    with pytest.raises(LimitExceeded) as refused:
        session.open("b", "y")
    assert refused.value.retry_after
    assert session.all() == ["x"]
    session.close("a", "x")
    session.open("b", "y")


def test_fifty_rapid_turns_leave_nothing_open() -> None:
    session: Session[int] = Session("t", max_contexts=5)
    for i in range(50):
        session.open(f"c{i}", i)
        session.close(f"c{i}", i)
    assert len(session) == 0
    assert session.ended("c49") == 49
    assert session.ended("c0") is None
    assert sum(session.ended(f"c{i}") is not None for i in range(50)) == REMEMBERED


def test_closing_an_older_owner_does_not_touch_the_newer() -> None:
    session: Session[str] = Session("t", max_contexts=5)
    session.open("a", "new")
    session.close("a", "old")
    assert session.get("a") == "new"


def test_unknown_and_draining() -> None:
    session: Session[str] = Session("t", max_contexts=5)
    with pytest.raises(UnknownContext):
        session.get("nope")
    assert session.find("nope") is None
    session.draining = True
    with pytest.raises(Draining):
        session.open("a", "x")
    assert session.open("a", "of a call", finishing=True) == 1


def test_where_nobody_asks_an_ended_context_only_its_id_is_known() -> None:
    session: Session[object] = Session("t", max_contexts=1, keep_ended=False)
    value = object()
    session.open("a", value)
    assert not session.knew("a")
    session.close("a", value)
    assert session.knew("a")
    assert session.ended("a") is None
    for i in range(REMEMBERED):
        session.open(f"c{i}", value)
        session.close(f"c{i}", value)
    assert not session.knew("a")
