"""Fetching from a hub on this machine, and ``voxwire models`` in processes of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from gateway.models_cli import CODEC
from tests.tts_core.gepard.hub import COMMIT, NAME, Hub, running
from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import FILES, WEIGHTS, Checkpoint, sha256
from tts_core.gepard.fetch import WANTED, cached, fetch

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hub(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that we talk to, with caches of our own."""
    with running(directory) as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield made


def test_a_commit_is_fetched_once(hub: Hub, directory: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    fetched = fetch(NAME, on_progress=lambda *told: seen.append(told))
    assert fetched.commit == COMMIT
    assert fetched.hashes == {name: sha256(directory / name) for name in WANTED}
    assert fetched.directory.is_relative_to(tmp_path / "cache")
    assert sorted(path.name for path in fetched.directory.iterdir()) == sorted(WANTED)
    sizes = {name: (directory / name).stat().st_size for name in WANTED}
    assert {(name, size) for name, done, size in seen if done == size} == set(sizes.items())
    assert [done for name, done, _ in seen if name == WEIGHTS] == [0, 1 << 20, sizes[WEIGHTS]]
    asked = list(hub.asked)
    assert fetch(NAME, COMMIT).directory == fetched.directory and hub.asked == asked
    # Whoever names the commit needs no hub any more.
    hub.shutdown()
    assert cached(NAME, COMMIT, offline=True) == fetched.directory
    opened = Checkpoint.open(f"{NAME}@{COMMIT}", offline=True)
    assert opened.digest == Checkpoint.open(directory).digest
    assert Checkpoint.open(NAME, revision=COMMIT).directory == fetched.directory


def test_an_id_is_fetched_when_it_is_opened(hub: Hub, directory: Path) -> None:
    with pytest.raises(SettingsError, match="not in the local cache"):
        Checkpoint.open(NAME, revision=COMMIT, offline=True)
    assert not hub.asked
    assert Checkpoint.open(NAME, revision=COMMIT).digest == Checkpoint.open(directory).digest


def test_what_the_hub_s_own_library_has_is_taken(hub: Hub, directory: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "hub" / "models--someone--gepard" / "snapshots" / COMMIT
    shutil.copytree(directory, theirs)
    assert cached(NAME, COMMIT, offline=True) == theirs


def test_it_goes_on_where_it_broke_off(hub: Hub, directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hub.break_at = 400_000
    with pytest.raises(SettingsError, match="try again to go on"):
        fetch(NAME, into=out)
    assert not (out / WEIGHTS).exists()
    hub.break_at, hub.ranges = None, []
    fetch(NAME, into=out)
    assert hub.ranges == [(WEIGHTS, "bytes=400000-")]
    assert Checkpoint.open(out).digest == Checkpoint.open(directory).digest


def test_it_goes_on_by_itself_while_something_comes(hub: Hub, directory: Path, tmp_path: Path) -> None:
    hub.most = 600_000
    fetch(NAME, into=tmp_path / "out")
    assert [wanted for _, wanted in hub.ranges] == ["bytes=600000-", "bytes=1200000-"]
    assert Checkpoint.open(tmp_path / "out").digest == Checkpoint.open(directory).digest


def test_a_hub_that_knows_no_ranges(hub: Hub, directory: Path, tmp_path: Path) -> None:
    hub.whole = True
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{WEIGHTS}.part").write_bytes(b"x" * 1000)
    fetch(NAME, into=out)
    assert Checkpoint.open(out).digest == Checkpoint.open(directory).digest


@pytest.mark.parametrize("name", [WEIGHTS, "tokenizer.json"])
def test_a_file_that_is_not_what_the_hub_names_is_thrown_away(hub: Hub, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    whole = hub.files[name]
    hub.files[name] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(SettingsError, match="thrown away"):
        fetch(NAME, into=out)
    assert not any(path.name.startswith(name) for path in out.iterdir())
    hub.files[name] = whole
    fetch(NAME, into=out)
    assert (out / name).read_bytes() == whole
    # A file that went bad here is noticed, too.
    (out / name).write_bytes(b"x" * len(whole))
    fetch(NAME, into=out)
    assert (out / name).read_bytes() == whole


def test_the_token_is_for_the_hub_alone(hub: Hub, directory: Path, tmp_path: Path) -> None:
    with running(directory) as store:
        hub.store = store.url
        fetch(NAME, into=tmp_path / "out")
        assert hub.tokens == {"Bearer hf_secret"}
        assert store.tokens == {None} and store.asked == [WEIGHTS]


def test_a_redirect_to_a_file_is_not_followed(hub: Hub, tmp_path: Path) -> None:
    hub.store = f"file://{tmp_path}"
    with pytest.raises(SettingsError):
        fetch(NAME, into=tmp_path / "out")


def test_two_at_once(hub: Hub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / "gepard_config.json.part").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SettingsError, match="another process"):
            fetch(NAME, into=out)
    fetch(NAME, into=out)


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        (NAME, "nosuch", "no such revision"),
        ("someone/other", None, "no such checkpoint"),
        ("not an id", None, "no such checkpoint"),
        ("../x", None, "no such checkpoint"),
    ],
)
def test_what_is_not_there(hub: Hub, name: str, revision: str | None, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        fetch(name, revision)


def test_a_repository_of_another_kind(hub: Hub) -> None:
    del hub.files["gepard_config.json"]
    with pytest.raises(SettingsError, match=r"has no gepard_config\.json"):
        fetch(NAME)


def test_a_hub_that_is_not_there(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SettingsError, match="cannot be reached") as caught:
        fetch(NAME)
    assert "127.0.0.1" not in caught.value.message


def test_a_place_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        fetch(NAME, into=tmp_path / "file" / "out")


def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="nothing may be fetched"):
        fetch(NAME)
    assert not hub.asked


# -- the command ----------------------------------------------------------------------------------------


def models(hub: Hub, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gateway", "models", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.run(command, env=env, text=True, timeout=120, check=False, **pipes)


def test_the_command_fetches_and_checks(hub: Hub, directory: Path, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    done = models(hub, "fetch", NAME, stderr=theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, shown
    assert "model.safetensors        [############        ]  60 % of 1.7 MB" in shown
    assert "100 % of 1.7 MB" in shown
    for name in FILES:
        assert f"{sha256(directory / name)}  {name}" in done.stdout
    assert f"commit {COMMIT}" in done.stdout
    checked = models(hub, "check", f"{NAME}@{COMMIT}")
    assert checked.returncode == 0 and not checked.stderr
    for part in ("0.4 million numbers, float32", "voices of 8 rows", "supcon_head.fc1.weight", "is whole"):
        assert part in checked.stdout


def test_the_command_names_what_is_wrong(hub: Hub, directory: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-100])
    done = models(hub, "check", str(copy))
    assert done.returncode == 1 and not done.stdout
    assert "model.safetensors is damaged" in done.stderr and "Traceback" not in done.stderr


def test_the_command_makes_one(hub: Hub, tmp_path: Path) -> None:
    done = models(hub, "make-tiny", str(tmp_path / "made"), "--dtype", "bfloat16", "--seed", "3")
    assert done.returncode == 0 and "0.4 million" in done.stdout
    assert Checkpoint.open(tmp_path / "made").config.dtype == "bfloat16"
    assert (tmp_path / "made" / CODEC).stat().st_size > 1 << 20
