from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.gepard.cases import prefix_of
from tts_core.errors import BadRequest, EngineError, UnknownVoice
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import Rows
from tts_core.gepard.prefixes import KEPT, Prefixes, pack
from tts_core.gepard.tiny import make_tiny


def rows_of(checkpoint: Checkpoint, seed: int = 0) -> Rows:
    return prefix_of(checkpoint, seed).rows


def test_a_voice_survives_its_bytes(checkpoint: Checkpoint) -> None:
    rows = rows_of(checkpoint)
    data = pack(rows)
    prefixes = Prefixes(checkpoint.config)
    assert len(data) == prefixes.size == 8 * checkpoint.config.hidden_size * 2
    prefix = prefixes.of("vc_1", data, "salt")
    assert prefix is not None
    assert np.array_equal(prefix.rows, rows.astype(np.float16).astype(np.float32))
    assert prefixes.of("vc_1", data, "salt") is prefix


def test_the_fingerprint_tells_rows_and_salts_apart(checkpoint: Checkpoint) -> None:
    prefixes = Prefixes(checkpoint.config)
    names = {
        prefix.fingerprint
        for seed in (0, 1)
        for salt in ("a", "b")
        if (prefix := prefixes.of("v", pack(rows_of(checkpoint, seed)), salt)) is not None
    }
    assert len(names) == 4


def test_built_in_voices(checkpoint: Checkpoint) -> None:
    prefixes = Prefixes(checkpoint.config)
    with pytest.raises(UnknownVoice):
        prefixes.of("default", None, "")
    null = rows_of(checkpoint)
    prefixes.learned(null)
    prefix = prefixes.of("default", None, "")
    assert prefix is not None
    assert np.array_equal(prefix.rows, null)
    assert prefixes.of("plain", None, "") is None
    with pytest.raises(UnknownVoice):
        prefixes.of("heart", None, "")
    with pytest.raises(EngineError):
        prefixes.learned(null[:4])


def test_a_model_without_speakers_has_one_voice(tmp_path: Path, checkpoint: Checkpoint) -> None:
    config = Checkpoint.open(make_tiny(tmp_path, cloning=False)).config
    prefixes = Prefixes(config)
    assert prefixes.size == 0
    assert prefixes.of("default", None, "") is None
    with pytest.raises(BadRequest):
        prefixes.of("vc_1", pack(rows_of(checkpoint)), "")


def test_forgetting_a_salt_forgets_its_voices_alone(checkpoint: Checkpoint) -> None:
    prefixes = Prefixes(checkpoint.config)
    for seed in (0, 1):
        for salt in ("a", "b"):
            prefixes.of("v", pack(rows_of(checkpoint, seed)), salt)
    assert len(prefixes) == 4
    known = {prefixes.of("v", pack(rows_of(checkpoint, seed)), "a") for seed in (0, 1)}
    assert set(prefixes.forget("a")) == {prefix.fingerprint for prefix in known if prefix is not None}
    assert prefixes.forget("a") == prefixes.forget("never") == ()
    assert len(prefixes) == 2


def test_the_least_recently_used_go_first(checkpoint: Checkpoint) -> None:
    prefixes = Prefixes(checkpoint.config)
    data = pack(rows_of(checkpoint))
    first = prefixes.of("v", data, "0")
    for i in range(1, KEPT):
        prefixes.of("v", data, str(i))
    assert prefixes.of("v", data, "0") is first
    prefixes.of("v", data, "new")
    assert len(prefixes) == KEPT
    assert prefixes.of("v", data, "0") is first


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_what_float16_cannot_hold_is_no_voice(checkpoint: Checkpoint, value: float) -> None:
    rows = rows_of(checkpoint).copy()
    rows[3, 5] = value
    with pytest.raises(EngineError):
        pack(rows)


@given(st.binary(max_size=2100))
def test_no_other_bytes_are_taken(checkpoint: Checkpoint, data: bytes) -> None:
    prefixes = Prefixes(checkpoint.config)
    halves = np.frombuffer(data, "<f2") if len(data) == prefixes.size else None
    if halves is not None and np.isfinite(halves).all():
        assert prefixes.of("v", data, "") is not None
        return
    with pytest.raises(BadRequest):
        prefixes.of("v", data, "")


def test_bytes_that_are_no_numbers_are_refused(checkpoint: Checkpoint) -> None:
    prefixes = Prefixes(checkpoint.config)
    data = bytearray(pack(rows_of(checkpoint)))
    data[100:102] = np.array([np.nan], "<f2").tobytes()
    with pytest.raises(BadRequest):
        prefixes.of("v", bytes(data), "")
    assert len(prefixes) == 0
