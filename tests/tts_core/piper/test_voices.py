"""What lies in a folder of voices."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers.piper_engine import RATE, VOICE, bundled
from tts_core.errors import SettingsError
from tts_core.piper import PiperEngine
from tts_core.piper.voices import common_rate, find, languages, revision, tag


def add(folder: Path, name: str, **config: Any) -> None:
    (folder / f"{name}.onnx").write_bytes(os.fsencode(name))
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


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"audio": {"sample_rate": 96000}}, r"48000 - at `\$.audio.sample_rate`"),
        ({"inference": {"length_scale": 0}}, r"0.1 - at `\$.inference.length_scale`"),
        ({"inference": {"noise_w": "much"}}, r"got `str` - at `\$.inference.noise_w`"),
        ({"num_speakers": 10**9}, r"10000 - at `\$.num_speakers`"),
        ({"num_speakers": 2, "speaker_id_map": {"a": -1}}, r"0 - at `\$.speaker_id_map"),
        ({"num_speakers": 2, "speaker_id_map": {"a": 0, "b": 2}}, "speaker_id_map has numbers beyond"),
        ({"espeak": None}, r"`object`, got `null` - at `\$.espeak`"),
    ],
)
def test_and_what_is_wrong_with_it_by_its_field(tmp_path: Path, config: dict[str, Any], field: str) -> None:
    add(tmp_path, "bad", **config)
    with pytest.raises(SettingsError, match=rf"bad\.onnx\.json does not describe a voice: .*{field}"):
        find(tmp_path)


def test_a_single_speaker_may_have_any_number(tmp_path: Path) -> None:
    add(tmp_path, "one", speaker_id_map={"x": 7})
    assert [voice.speakers for voice in find(tmp_path)] == [()]


@pytest.mark.parametrize("name", ["", "a\nb", os.fsdecode(b"b\xff-joe")])
def test_a_name_that_cannot_be_shown_is_told(tmp_path: Path, name: str) -> None:
    add(tmp_path, "good")
    add(tmp_path, name)
    with pytest.raises(SettingsError, match="cannot be the name of a voice") as told:
        find(tmp_path)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nothing", "link to itself", "nothing"])
def test_a_model_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    add(tmp_path, "odd")
    model = tmp_path / "odd.onnx"
    model.unlink()
    match kind:
        case "pipe":
            os.mkfifo(model)
        case "folder":
            model.mkdir()
        case "link to nothing":
            model.symlink_to(tmp_path / "none")
        case "link to itself":
            model.symlink_to(model)
    words = "has no voice" if kind == "nothing" else r"odd\.onnx cannot be read: there is no such file"
    with pytest.raises(SettingsError, match=words):
        find(tmp_path)


def test_no_two_voices_have_one_name(tmp_path: Path) -> None:
    add(tmp_path, "a", num_speakers=2)
    add(tmp_path, "a#1")
    with pytest.raises(SettingsError, match="two voices 'a#1'"):
        find(tmp_path)


@pytest.mark.parametrize(
    ("rates", "common"), [((16000, 22050), 22050), ((11025,), 16000), ((8000, 47999), 48000), ((8000,), 8000)]
)
def test_all_are_brought_to_a_rate_that_is_usual(tmp_path: Path, rates: tuple[int, ...], common: int) -> None:
    for rate in rates:
        add(tmp_path, f"v{rate}", audio={"sample_rate": rate})
    assert common_rate(find(tmp_path)) == common
    assert PiperEngine(tmp_path, workers=1).info.native_rate == common


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
