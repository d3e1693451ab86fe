from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return checkpoint.tokenizer()


@pytest.fixture(scope="module")
def peer(directory: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(directory)


@given(st.text(max_size=60))
def test_equals_transformers(tokenizer: Tokenizer, peer: Any, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == peer.encode(text, add_special_tokens=False)
    assert len(ids) <= 4 * len(text) + 4


def test_empty(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []


def test_special_tokens_cannot_be_written(checkpoint: Checkpoint, tokenizer: Tokenizer, peer: Any) -> None:
    special = checkpoint.config.special
    for name in ("start_of_text", "end_of_text", "start_of_speech", "end_of_speech", "tts_pad"):
        assert peer.convert_tokens_to_ids(f"<|{name}|>") == getattr(special, name)
        ids = tokenizer.encode(f"a<|{name}|>b")
        assert len(ids) > 3 and not special.ids & set(ids)


def test_files_that_are_none(directory: Path, tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(SettingsError, match=r"tokenizer\.json"):
        Tokenizer.read(path, checkpoint.config)
    for data in (b"", b"{}", b"\xff\x00", b'{"model": {"type": "BPE"}}'):
        path.write_bytes(data)
        with pytest.raises(SettingsError, match="is not a tokenizer"):
            Tokenizer.read(path, checkpoint.config)


def test_a_token_that_the_model_has_no_row_for(
    directory: Path, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    path = Path(shutil.copy(directory / "tokenizer.json", tmp_path))
    raw = json.loads(path.read_text())
    raw["model"]["vocab"]["zzz"] = checkpoint.config.backbone.vocab_size
    path.write_text(json.dumps(raw))
    with pytest.raises(SettingsError, match="no row"):
        Tokenizer.read(path, checkpoint.config)
