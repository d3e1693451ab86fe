"""``voxwire voices deny`` as an operator meets it, against a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import main
from tests.gateway.test_cli import home, voxwire
from tests.gateway.voice_api.test_denied import recording
from tests.peers import speakers
from tests.peers.gateway import Running, Start
from tests.tone import ToneEngine

__all__ = ["home"]


@pytest.fixture
async def gateway(start_gateway: Start) -> Running:
    return await start_gateway(engine=ToneEngine(can_clone=True), speaker_model=speakers.model_file())


async def run(gateway: Running, *args: str) -> tuple[int, str, str]:
    status, out, err = await voxwire("voices", "deny", *args, "--url", gateway.url, "--key", gateway.key)
    return status, out.decode(), err


async def test_a_voice_is_denied_listed_carried_over_and_allowed(gateway: Running, home: Path) -> None:
    (home / "them.wav").write_bytes(recording(speakers.joe()[0]))
    status, out, _ = await run(gateway, "add", "them.wav", "--reason", "case-17")
    name = out.strip()
    assert (status, name[:3], len(name)) == (0, "dv_", 35)
    status, out, _ = await run(gateway, "list")
    assert (status, out.split()[0], out.split()[2]) == (0, name, "case-17")
    assert (await run(gateway, "export", "list.json"))[0] == 0
    assert json.loads((home / "list.json").read_text()).keys() == {"export"}
    status, _, err = await run(gateway, "rm", name)
    assert (status, err) == (0, f"{name} is not denied any more\n")
    assert (await run(gateway, "list"))[1] == ""
    status, _, err = await run(gateway, "import", "list.json")
    assert (status, err.split()[0]) == (0, "1")
    assert (await run(gateway, "list"))[1].split()[0] == name


async def test_what_does_not_work_is_told_in_one_line(gateway: Running, home: Path) -> None:
    (home / "empty.wav").touch()
    (home / "list.json").write_text("{")
    (home / "them.wav").write_bytes(recording(speakers.joe()[0]))
    for args, words in (
        (("add", "none.wav", "--reason", "r"), "cannot be read"),
        (("add", "empty.wav", "--reason", "r"), "is empty"),
        (("add", "them.wav", "--reason", "Jane Doe"), "a reason is an id"),
        (("rm", "dv_1"), "no such entry"),
        (("rm", "../tone"), "no such entry"),
        (("import", "list.json"), "no export"),
        (("export", "none/list.json"), "cannot be written"),
    ):
        status, out, err = await run(gateway, *args)
        assert (status, out) == (1, ""), args
        assert words in err, (args, err)
        assert len(err.splitlines()) == 1


def test_without_a_gateway_there_is_no_list(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "deny", "list"]) == 1
    assert "no gateway answers at" in capsys.readouterr().err
