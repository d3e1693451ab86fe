from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow  # Triton's interpreter is


def test_the_adapter_serves_this_runner(inline_v2: dict[str, Any]) -> None:
    assert inline_v2["stats"]["runner"] == 2
    assert inline_v2["requests"]["identical"] == 8


def test_frames_that_are_gone_end_a_request_before_its_first_frame(inline_v2: dict[str, Any]) -> None:
    assert inline_v2["context"] == {"identical": True, "lost": [0, "engine_error"], "faults": 1}


def test_pairs_are_joined_and_torn_ones_ended(inline_v2: dict[str, Any]) -> None:
    assert inline_v2["pairs"]["identical"] == 4
    assert inline_v2["pairs"]["torn"] == "fault"
