"""The bounds of a reference clip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tts_core.errors import BadRequest
from tts_core.nanocodec.clip import MAX_SAMPLES, check_clip


def test_a_clip_is_passed_on() -> None:
    clip = np.linspace(-1, 1, 100, dtype=np.float32)
    assert np.array_equal(check_clip(clip), clip)
    assert check_clip(clip[::2]).flags.c_contiguous
    assert len(check_clip(np.zeros(MAX_SAMPLES, np.float32))) == 60 * 22050


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(0, np.float32),
        np.zeros(MAX_SAMPLES + 1, np.float32),
        np.zeros((2, 100), np.float32),
        np.zeros(100, np.int16),
        np.array([0, np.nan], np.float32),
        np.array([0, np.inf], np.float32),
    ],
)
def test_others_are_refused(bad: Any) -> None:
    with pytest.raises(BadRequest) as refused:
        check_clip(bad)
    assert refused.value.field == "reference"
