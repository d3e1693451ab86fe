from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def pairs(inline: dict[str, Any]) -> dict[str, Any]:
    assert inline["scheduler"] == "PairScheduler"
    facts: dict[str, Any] = inline["pairs"]
    return facts


def test_both_halves_take_every_step_together(pairs: dict[str, Any]) -> None:
    assert pairs["identical"] == 4
    assert pairs["same_frames"]


def test_a_half_alone_is_held_and_can_be_aborted(pairs: dict[str, Any]) -> None:
    assert pairs["alone"] == 0
    assert pairs["left"] == 0


def test_a_pair_that_loses_a_half_ends_with_a_fault(pairs: dict[str, Any]) -> None:
    assert pairs["torn"] == "fault"


def test_pairs_wait_for_room_for_both(pairs: dict[str, Any]) -> None:
    """Twelve pairs and sixteen rows: never a half without the other."""
    assert pairs["at_once"] == 16
    assert pairs["many"] == 12
