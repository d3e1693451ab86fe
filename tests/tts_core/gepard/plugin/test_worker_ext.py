from __future__ import annotations

from typing import Any


def test_a_voice_that_was_set_is_what_the_model_reads(inline: dict[str, Any]) -> None:
    assert inline["embedded"]["voice"]


def test_frames_that_were_put_are_read_and_their_handles_age(inline: dict[str, Any]) -> None:
    assert inline["embedded"]["frames"] < 1e-5
    assert inline["context"] == {"identical": True, "lost": [0, "engine_error"], "faults": 1}


def test_the_counters_are_the_samplers(inline: dict[str, Any]) -> None:
    stats = inline["stats"]
    assert stats["steps"] > 60
    assert stats["cursor"] > 1024
    assert stats["resumed"] == 0
