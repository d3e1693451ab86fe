from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import EngineError, SettingsError
from tts_core.gepard.layout import LOGITS, OUTGOING, SERIALS, Layout, age, pack, rows_for, unpack
from tts_core.nanocodec import fsq

frames = st.lists(st.tuples(*(st.integers(0, levels - 1) for levels in fsq.LEVELS)), max_size=5)


@given(frames)
def test_a_frame_survives_its_way_out(rows: list[tuple[int, ...]]) -> None:
    codes = np.array(rows, np.uint8).reshape(-1, fsq.CHANNELS)
    ids = pack(codes)
    assert np.array_equal(unpack(ids.tolist()), codes)
    for row in ids.tolist():
        assert len(set(row)) == 8
        assert OUTGOING <= min(row) <= max(row) < 1 << 31


@given(st.lists(st.integers(-5000, 20000), min_size=8, max_size=8))
def test_other_numbers_are_a_frame_or_an_error(offsets: list[int]) -> None:
    row = [OUTGOING + offset for offset in offsets]
    try:
        codes = unpack([row])
    except EngineError:
        assert any(not g * 2016 <= t < (g + 1) * 2016 for g, t in enumerate(offsets))
    else:
        assert pack(codes).tolist() == [row]


@given(st.integers(0, SERIALS - 1), st.integers(0, SERIALS >> 1))
def test_ages_are_right_across_the_wrap(serial: int, passed: int) -> None:
    assert age((serial + passed) % SERIALS, serial) == passed


def test_the_ranges_of_the_real_model_do_not_meet_and_fit_32_bits() -> None:
    layout = Layout(248_320, 248_071, 248_076, 8, 2048, 1 << 18)
    assert layout.voice == 248_320
    assert layout.voice_ids(1)[0] == layout.voice + 8
    assert layout.voice_ids(layout.voices - 1)[-1] + 1 == layout.frame
    assert layout.frame + SERIALS <= OUTGOING
    assert layout.serials([5, layout.voice, layout.frame + 3, layout.frame]) == [3, 0]
    assert Layout.of(layout.as_dict()) == layout
    assert LOGITS == 217


@pytest.mark.parametrize(
    "numbers",
    [
        {"text": 300, "stop": 300, "fault": 1},
        {"text": 300, "stop": 1, "fault": 1},
        {"text": 300, "stop": 1, "fault": 2, "frame_rows": 1000},
        {"text": 300, "stop": 1, "fault": 2, "voice_rows": 12},
        {"text": 1 << 30, "stop": 1, "fault": 2, "voice_rows": 1 << 31},
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        Layout(**numbers)


@given(st.integers(1, 256), st.integers(1, 2048))
def test_a_full_house_cannot_make_a_live_handle_stale(streams: int, frames_each: int) -> None:
    rows = rows_for(streams, frames_each)
    assert rows >= 4 * streams * frames_each
    assert rows & (rows - 1) == 0
