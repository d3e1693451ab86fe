from __future__ import annotations

from typing import Any


def test_the_adapter_serves_this_runner(inline: dict[str, Any]) -> None:
    assert inline["stats"]["runner"] == 1
    assert inline["requests"]["identical"] == 8


def test_frames_that_are_gone_end_a_request_before_its_first_frame(inline: dict[str, Any]) -> None:
    assert inline["context"] == {"identical": True, "lost": [0, "engine_error"], "faults": 1}


def test_pairs_are_joined_and_torn_ones_ended(inline: dict[str, Any]) -> None:
    assert inline["pairs"]["identical"] == 4
    assert inline["pairs"]["torn"] == "fault"
