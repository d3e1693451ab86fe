from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tts_core.embedded.voices import RELEASED, assets, available, read_verified, revision
from tts_core.errors import EngineError


def test_the_table_is_that_of_the_installed_release() -> None:
    released = json.loads((assets() / "voices.json").read_text())
    assert {v.id: (v.file, v.sha256, v.language, v.gender, v.british) for v in RELEASED.values()} == {
        name: (v["file"], v["sha256"], v["language"], v["gender"], v["british"])
        for name, v in released.items()
    }


def test_the_default_voice_needs_nothing_else(tmp_path: Path) -> None:
    assert [v.id for v, _ in available("")] == ["heart"]
    assert [v.id for v, _ in available(str(tmp_path))] == ["heart"]


def test_further_voices_are_offered_where_their_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RELEASED["emma"].file).write_bytes(b"x")
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    found = available()
    assert [v.id for v, _ in found] == ["heart", "emma"]
    assert found[1][0].info.language == "en-GB"


def test_the_released_model_is_accepted_and_any_other_is_not(tmp_path: Path) -> None:
    voice, path = available("")[0]
    data = read_verified(voice.id, path, voice.sha256)
    assert hashlib.sha256(data).hexdigest() == voice.sha256
    other = tmp_path / "m.onnx"
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(EngineError, match="voice 'heart' is not the released one") as caught:
        read_verified(voice.id, other, voice.sha256)
    assert str(tmp_path) not in caught.value.message
    with pytest.raises(EngineError, match="cannot be read"):
        read_verified(voice.id, tmp_path / "none", voice.sha256)


def test_the_revision_changes_with_any_voice() -> None:
    heart, emma = RELEASED["heart"], RELEASED["emma"]
    assert revision((heart,)) != revision((heart, emma))
    assert heart.sha256[:12] in revision((heart,))
