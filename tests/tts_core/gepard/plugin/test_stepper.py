"""The stepper as one who works in its process sees it; its streams are those of ``test_vllm_model``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tts_core.gepard.plugin.test_serving import SIZES
from tts_core.errors import SettingsError
from tts_core.gepard.plugin.stepper import load


def test_requests_side_by_side_are_each_the_plain_loop(inline: dict[str, Any]) -> None:
    assert inline["requests"]["identical"] == 8
    assert inline["free"] == 16


def test_a_request_goes_on_from_frames_and_a_cancelled_one_gives_none(inline: dict[str, Any]) -> None:
    assert inline["context"]["identical"]


def test_frames_that_are_gone_end_a_request_with_an_error(inline: dict[str, Any]) -> None:
    assert inline["context"]["lost"] == [0, "engine_error"]
    assert inline["context"]["faults"] == 1


def test_voices_come_and_go_and_one_too_many_is_refused(inline: dict[str, Any]) -> None:
    assert inline["voices"] == {
        "identical": 10,
        "refused": ["busy", "bad_request", "bad_request", "bad_request"],
        "kept": 8,
        "erased": [True, False, True],
    }


def test_a_method_that_is_none_of_ours_is_refused(inline: dict[str, Any]) -> None:
    assert inline["unknown"] == ["engine_error"]


def test_a_checkpoint_or_sizes_that_cannot_be_served(tmp_path: Path, directory: Path) -> None:
    options = {"plan": SIZES, "compiled": False, "keeps_kv": True, "arguments": {}}
    with pytest.raises(SettingsError):
        load({**options, "directory": str(tmp_path)})
    with pytest.raises(SettingsError):
        load({**options, "directory": str(directory), "plan": {**SIZES, "max_streams": 0}})
