"""What lies in a folder of voices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers.piper_engine import RATE, VOICE, bundled
from tts_core.errors import SettingsError
from tts_core.piper.voices import find, languages, revision, tag


def add(folder: Path, name: str, **config: Any) -> None:
    (folder / f"{name}.onnx").write_bytes(name.encode())
    whole = {"audio": {"sample_rate": 22050}, "espeak": {"voice": "en-us"}, "num_speakers": 1, **config}
    (folder / f"{name}.onnx.json").write_text(json.dumps(whole))


def test_the_bundled_voice() -> None:
    (joe,) = find(bundled())
    assert (joe.name, joe.rate, joe.language, joe.title, joe.speakers) == (VOICE, RATE, "en-US", "Joe", ())
    (info,) = joe.infos
    assert (info.id, info.name, info.language) == (VOICE, "Joe", "en-US")


def test_voices_of_many_languages_and_speakers(tmp_path: Path) -> None:
    add(tmp_path, "de_DE-thorsten-low", audio={"sample_rate": 16000}, dataset="thorsten_emotional")
    add(tmp_path, "en_GB-vctk-medium", num_speakers=2, speaker_id_map={"p2": 1, "p1": 0}, unknown=[1])
    add(tmp_path, "mine", espeak={"voice": "fr"}, num_speakers=2)
    add(tmp_path, "named", language={"code": "pt_BR", "family": "pt"})
    (tmp_path / "alone.onnx").write_bytes(b"no description")
    (tmp_path / "note.json").write_text("{}")
    voices = find(tmp_path)
    assert [(v.name, v.rate, v.language) for v in voices] == [
        ("de_DE-thorsten-low", 16000, "de-DE"),
        ("en_GB-vctk-medium", 22050, "en-GB"),
        ("mine", 22050, "fr"),
        ("named", 22050, "pt-BR"),
    ]
    assert [(i.id, i.name) for v in voices for i in v.infos] == [
        ("de_DE-thorsten-low", "Thorsten Emotional"),
        ("en_GB-vctk-medium", "Vctk"),
        ("en_GB-vctk-medium#p1", "Vctk, p1"),
        ("en_GB-vctk-medium#p2", "Vctk, p2"),
        ("mine", "Mine"),
        ("mine#0", "Mine, 0"),
        ("mine#1", "Mine, 1"),
        ("named", "Named"),
    ]
    assert languages(voices) == ("de", "en", "fr", "pt")


def test_the_revision_changes_with_the_files(tmp_path: Path) -> None:
    add(tmp_path, "a")
    seen = {revision(find(tmp_path))}
    (tmp_path / "a.onnx").write_bytes(b"other")
    seen.add(revision(find(tmp_path)))
    add(tmp_path, "b")
    seen.add(revision(find(tmp_path)))
    add(tmp_path, "a", length_scale=2)
    seen.add(revision(find(tmp_path)))
    assert len(seen) == 4
    assert revision(find(tmp_path)) in seen


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[]",
        "{}",
        '{"audio": {"sample_rate": 1}}',
        '{"audio": {"sample_rate": "x"}}',
        "[" * 10_000,
        "\udcff",
    ],
)
def test_a_bad_description_is_told_by_its_name(tmp_path: Path, config: str) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"x")
    (tmp_path / "bad.onnx.json").write_bytes(config.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingsError, match=r"bad\.onnx\.json does not describe"):
        find(tmp_path)


def test_a_folder_without_voices_is_told(tmp_path: Path) -> None:
    for folder, words in (
        (None, "needs a folder"),
        (tmp_path / "none", "needs a folder"),
        (tmp_path, "no voice"),
    ):
        with pytest.raises(SettingsError, match=words):
            find(folder)


@pytest.mark.parametrize(
    ("names", "language"),
    [
        (("en_US", "x"), "en-US"),
        (("", "en_US-joe-medium"), "en-US"),
        (("", "es-419"), "es-419"),
        (("", "joe", "en-gb-x-rp"), "en-GB"),
        (("", "odd_name_x", "de"), "de"),
        (("", "", ""), "und"),
    ],
)
def test_a_language_is_read_from_what_there_is(names: tuple[str, ...], language: str) -> None:
    assert tag(*names) == language


@given(st.lists(st.text(max_size=12), max_size=3))
def test_a_tag_is_always_one(names: list[str]) -> None:
    assert tag(*names).replace("-", "").isalnum()
