from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.tts_core.gepard.cases import joined, published, request
from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import FILES, Checkpoint
from tts_core.gepard.config import GepardConfig
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.tiny import describe, make_tiny


def test_a_seed_makes_one_file(directory: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert Checkpoint.open(make_tiny(tmp_path / "again")).digest == checkpoint.digest
    assert Checkpoint.open(make_tiny(tmp_path / "other", seed=1)).digest != checkpoint.digest
    assert {path.name for path in directory.iterdir()} == {*FILES, "tokenizer_config.json"}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_stop_head_fires_now_and_then(tmp_path: Path, seed: int) -> None:
    checkpoint = Checkpoint.open(make_tiny(tmp_path, seed=seed))
    model = ReferenceModel.load(checkpoint)
    runs = [
        joined(
            model.frames(request(checkpoint, f"Number {n}, please.", temperature=0.5, seed=n, max_frames=30))
        )
        for n in range(10)
    ]
    assert Counter(finish for _, _, finish in runs).keys() == {"stop", "length"}


def test_what_was_made_elsewhere_is_not_replaced(tmp_path: Path) -> None:
    make_tiny(tmp_path)
    make_tiny(tmp_path, seed=1)
    for described in (json.dumps(published()), "[]", "{"):
        (tmp_path / "gepard_config.json").write_text(described)
        with pytest.raises(SettingsError, match="not made by this"):
            make_tiny(tmp_path)


def test_full_has_the_published_sizes() -> None:
    raw = describe("full", "bfloat16")
    assert GepardConfig.parse(json.dumps(raw).encode()) == GepardConfig.parse(
        json.dumps(published()).encode()
    )


@pytest.mark.parametrize("more", [{"size": "huge"}, {"dtype": "int8"}])
def test_what_is_not_made(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        make_tiny(tmp_path, **more)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        make_tiny(tmp_path / "file" / "tiny")
