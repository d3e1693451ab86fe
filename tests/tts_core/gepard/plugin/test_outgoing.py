from __future__ import annotations

from typing import Any


def test_frames_and_their_entropy_leave_unchanged(inline: dict[str, Any]) -> None:
    """Every code and every entropy of eight requests was compared with the plain loop's."""
    assert inline["requests"]["identical"] == 8
    assert inline["requests"]["entropy"] < 1e-5
