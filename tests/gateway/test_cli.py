"""The command line as a user meets it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tomllib
import wave
from pathlib import Path

import pytest

from gateway.cli import FORMAT_NAMES, SCOPE_NAMES, main
from gateway.say import FORMATS
from sessions.principal import Scope
from tests.peers.gateway import Running, Start


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings whose default port nobody listens on."""
    for name in [name for name in os.environ if name.startswith("VOXWIRE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("VOXWIRE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("VOXWIRE_PORT", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def voxwire(
    *args: str, data: bytes = b"", path: str | None = None, **environ: str
) -> tuple[int, bytes, str]:
    """Run the command in a process of its own: status, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *args,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **{f"VOXWIRE_{name.upper()}": value for name, value in environ.items()},
             "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": path or os.environ["PATH"]},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(data), 120)
    assert process.returncode is not None
    return process.returncode, out, err.decode()


def test_names_are_those_of_the_parts() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES
    assert tuple(Scope) == SCOPE_NAMES


def test_help_is_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for part in ("serve", "say", "voices", "keys", "token", "examples:", "voxwire.toml"):
        assert part in text
    for command in (["say", "--help"], ["serve", "--help"], ["keys", "add", "--help"]):
        with pytest.raises(SystemExit):
            main(command)
    assert "mulaw-8000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["say", "hi"], "--out FILE or --play"),
        (["say", "hi", "--out", "a.wav", "--play"], "exclude"),
        (["say", " ", "--out", "a.wav"], "the text is empty"),
        (["voices", "--url", "localhost:8080"], "begins with http"),
        (["token"], "no gateway answers at"),
        (["keys", "revoke", "none"], "no such key"),
        (["--config", "none.toml", "voices"], "none.toml"),
    ],
)
def test_mistakes_are_told_in_one_line(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 1
    out, err = capsys.readouterr()
    assert words in err
    assert err.startswith("voxwire: ")
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "COMMAND"),
        (["sing"], "'sing'"),
        (["say", "hi", "--format", "mp3"], "mulaw-8000"),
        (["say", "hi", "--speed", "9"], "'9' is not a number from 0.5 to 2"),
        (["say", "hi", "--speed", "fast"], "'fast' is not a number from 0.5 to 2"),
        (["keys", "rotate", "x", "--grace", "half"], "'half' is not a whole number"),
        (["keys", "add", "x", "--contexts=-1"], "'-1' is not a whole number"),
    ],
)
def test_wrong_calls_exit_with_2(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "--help" in said


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"voxwire {project['version']}\n"


def test_keys_from_the_first_to_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*args: str) -> str:
        assert main(["keys", *args]) == 0
        return capsys.readouterr().out

    presented = run(
        "add", "my app", "--tenant", "acme", "--scope", "speak", "--scope", "call", "--contexts", "3"
    )
    key_id = presented.split("_")[1]
    assert presented.startswith("vx_")
    listed = run("list")
    heading, line = listed.splitlines()
    assert heading.split() == ["ID", "TENANT", "STATE", "LAST", "USED", "NAME", "SCOPES"]
    assert line.split() == [key_id, "acme", "live", "never", "my", "app", "call+speak"]
    assert heading.index("SCOPES") == line.index("call+speak")
    assert presented.strip() not in listed
    assert run("rotate", key_id, "--grace", "0").strip() != presented.strip()
    run("revoke", key_id)
    assert "revoked" in run("list")


async def test_a_key_made_by_the_command_opens_a_running_gateway(start_gateway: Start, home: Path) -> None:
    gateway = await start_gateway()
    status, out, _ = await voxwire("keys", "add", "app")
    assert status == 0
    key = out.decode().strip()
    await gateway.services.keyring.refresh()
    assert not gateway.services.guard.local_mode
    status, _, err = await voxwire("voices", "--url", gateway.url, "--key", "wrong")
    assert (status, "missing, wrong or revoked" in err) == (1, True)
    status, out, _ = await voxwire("voices", "--url", gateway.url, "--key", key)
    assert status == 0
    assert [line.split()[0] for line in out.decode().splitlines()] == ["tone", "other"]


async def test_say_to_a_gateway_by_url(gateway: Running, home: Path) -> None:
    status, _, err = await voxwire(
        "say", "Your order ships.", "--out", "a.wav", "--url", gateway.url, "--format", "pcm-16000"
    )
    assert status == 0, err
    assert "s of speech in a.wav; first sound after" in err
    with wave.open(str(home / "a.wav")) as read:
        assert read.getframerate() == 16000
        assert read.getnframes() > 8000


async def test_say_takes_the_gateway_on_this_machine_and_its_key(gateway: Running) -> None:
    port = str(gateway.port)
    status, out, err = await voxwire(
        "say", "-", "--out", "-", "--format", "mulaw-8000", data=b"Hello.", port=port
    )
    assert status == 0, err
    assert len(out) > 1000
    status, out, err = await voxwire("token", port=port)
    assert status == 0, err
    assert out.count(b".") == 2


async def test_say_into_a_place_that_cannot_be_written(gateway: Running) -> None:
    status, _, err = await voxwire("say", "hi", "--out", "no/such/folder/a.wav", "--url", gateway.url)
    assert (status, "cannot be written" in err) == (1, True)


async def test_a_failed_say_harms_no_file(gateway: Running, home: Path) -> None:
    (home / "old.wav").write_bytes(b"precious")
    for out in ("old.wav", "new.wav"):
        status, _, err = await voxwire("say", "hi", "--out", out, "--voice", "nobody", "--url", gateway.url)
        assert (status, "'voxwire voices' lists them" in err) == (1, True)
        status, _, err = await voxwire("say", "-", "--out", out, "--url", gateway.url)
        assert (status, "nothing to say" in err) == (1, True)
    assert (home / "old.wav").read_bytes() == b"precious"
    assert not (home / "new.wav").exists()
    status, _, err = await voxwire("say", "hi", "--out", "old.wav", "--url", gateway.url)
    assert status == 0, err
    assert (home / "old.wav").read_bytes().startswith(b"RIFF")


async def test_a_player_that_ends_too_early_has_not_played(gateway: Running, home: Path) -> None:
    (home / "aplay").write_text("#!/bin/sh\nexec cat > heard\n")  # as ffplay does without a sound device
    (home / "aplay").chmod(0o755)
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    status, _, err = await voxwire("say", "A long text. " * 5, "--play", "--url", gateway.url, path=path)
    assert (status, "is there a sound device?" in err) == (1, True)
    assert (home / "heard").stat().st_size > 0


@pytest.mark.slow
async def test_say_without_a_gateway_starts_a_voice_of_its_own(home: Path) -> None:
    status, _, err = await voxwire("say", "Hello there.", "--out", "a.wav", workers="1")
    assert status == 0, err
    with wave.open(str(home / "a.wav")) as read:
        assert read.getframerate() == 24000
        assert 0.3 < read.getnframes() / 24000 < 5
    status, out, _ = await voxwire("voices")
    assert status == 0
    assert out
