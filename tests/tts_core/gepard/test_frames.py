from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tts_core.gepard.cases import random_codes
from tts_core.errors import BadRequest, EngineError
from tts_core.gepard.frames import MAX_CONTEXT, FrameRequest, SpeakerPrefix
from tts_core.gepard.sampling import Sampling

ROWS = np.arange(16, dtype=np.float32).reshape(2, 8)
PLAIN = FrameRequest("a", (1, 2, 3), None, Sampling(max_frames=10))


def test_a_fingerprint_names_rows_and_salt() -> None:
    one = SpeakerPrefix.of(ROWS)
    assert one.fingerprint == SpeakerPrefix.of(ROWS.copy(order="F")).fingerprint
    assert len(one.fingerprint) == 64
    others = [SpeakerPrefix.of(ROWS + 1), SpeakerPrefix.of(ROWS, b"a"), SpeakerPrefix.of(ROWS, b"b")]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_a_prefix_keeps_rows_of_its_own() -> None:
    rows = ROWS.copy()
    made = SpeakerPrefix.of(rows)
    rows[0, 0] = 99.0
    assert made.rows[0, 0] == 0.0 and not made.rows.flags.writeable


@pytest.mark.parametrize("rows", [ROWS[0], ROWS.astype(np.float64), ROWS[:0], ROWS + np.inf])
def test_rows_that_are_no_prefix(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    with pytest.raises(BadRequest):
        SpeakerPrefix("0" * 64, rows)


def test_places_in_the_window() -> None:
    assert PLAIN.positions == 13
    assert replace(PLAIN, uncond=(1,), prefix=SpeakerPrefix.of(ROWS)).positions == 15
    assert replace(PLAIN, uncond=(1,) * 5, context=random_codes(7)).positions == 22


def test_requests_that_are_none() -> None:
    with pytest.raises(BadRequest):
        replace(PLAIN, ids=())
    with pytest.raises(BadRequest):
        replace(PLAIN, uncond=())
    with pytest.raises(BadRequest):
        replace(PLAIN, context=random_codes(MAX_CONTEXT + 1))
    with pytest.raises(EngineError):
        replace(PLAIN, context=np.full((2, 32), 9, np.uint8))
