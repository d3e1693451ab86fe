"""``voxwire voices`` as a user meets it, against a running gateway."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.voice_api.consents import digest
from gateway.voices_cli import STATEMENT
from tests.gateway.test_cli import home, voxwire
from tests.peers.clips import clip
from tests.peers.ears import configured, patient, read_by
from tests.peers.gateway import Running, Start
from tests.peers.native import native_client
from tests.peers.rest import voice_client
from tests.peers.speakers import TEXTS
from tests.tone import ToneEngine

__all__ = ["home"]


@pytest.fixture
async def gateway(start_gateway: Start) -> Running:
    return await start_gateway(engine=ToneEngine(second="other", can_clone=True))


@pytest.fixture
def recording(home: Path) -> Path:
    path = home / "me and you.wav"
    path.write_bytes(clip())
    return path


async def run(gateway: Running, *args: str) -> tuple[int, str, str]:
    status, out, err = await voxwire("voices", *args, "--url", gateway.url, "--key", gateway.key)
    return status, out.decode(), err


async def test_a_recording_becomes_a_voice_and_is_deleted_with_a_receipt(
    gateway: Running, recording: Path
) -> None:
    status, out, err = await run(
        gateway, "add", str(recording), "--name", "Me", "--language", "de-AT", "--self"
    )
    assert (status, out[:3], len(out)) == (0, "vc_", 36)
    assert "until it is deleted" in err
    voice = out.strip()
    async with voice_client(gateway.url, gateway.key) as client:
        shown = (await client.listed())[voice]
        assert (shown["name"], shown["language"], shown["kind"]) == ("Me", "de-AT", "permanent")
        record = await client.ask("GET", f"/v1/consents/{shown['consent']}")
        assert (record["how"], record["evidence"]) == ("written", digest(STATEMENT))
        assert record["subject"].startswith("cli-")
    for listing in ((), ("list",)):
        status, out, _ = await run(gateway, *listing)
        assert [line.split()[0] for line in out.splitlines()] == ["tone", "other", voice]
    status, out, err = await run(gateway, "rm", voice)
    assert status == 0
    assert json.loads(out)["voice"] == voice
    assert "1 of 1 gateways" in err
    assert (await run(gateway, "rm", voice))[0] == 1


async def test_a_contract_is_recorded_by_its_digest(gateway: Running, recording: Path, home: Path) -> None:
    paper = home / "contract.pdf"
    paper.write_bytes(b"%PDF-1.7 a contract")
    status, out, _ = await run(gateway, "add", str(recording), "--licensed", str(paper), "--subject", "p-9")
    assert status == 0
    async with voice_client(gateway.url, gateway.key) as client:
        shown = (await client.listed())[out.strip()]
        assert shown["name"] == "me and you"
        record = await client.ask("GET", f"/v1/consents/{shown['consent']}")
        assert (record["how"], record["subject"]) == ("licensed", "p-9")
        assert record["evidence"] == hashlib.sha256(paper.read_bytes()).hexdigest()
        again = await run(gateway, "add", str(recording), "--consent", shown["consent"])
        assert again[0] == 0
        assert (await client.listed())[again[1].strip()]["consent"] == shown["consent"]


@pytest.mark.slow
async def test_consent_is_read_aloud_and_a_voice_made_under_it(start_gateway: Start, home: Path) -> None:
    engine = ToneEngine(can_clone=True)
    gateway = await start_gateway(engine=engine, **configured())
    patient(gateway.services)
    status, out, err = await run(gateway, "consent", "--company", "Blue Lake Bank")
    challenge, text = out.splitlines()
    assert status == 0
    assert "I give Blue Lake Bank permission" in text
    assert f"voices consent {challenge} FILE" in err
    (home / "answer.wav").write_bytes(read_by("heart", text))
    (home / "me.wav").write_bytes(read_by("heart", TEXTS[1]))
    status, out, err = await run(gateway, "consent", challenge, "answer.wav", "--subject", "p-9")
    assert status == 0, err
    async with voice_client(gateway.url, gateway.key) as client:
        record = await client.ask("GET", f"/v1/consents/{out.strip()}")
        assert (record["how"], record["kind"], record["subject"]) == ("spoken", "permanent", "p-9")
    assert (await run(gateway, "add", "me.wav", "--consent", out.strip()))[0] == 0
    assert engine.enrolled == 1
    status, out, err = await run(gateway, "consent", challenge, "answer.wav")
    assert (status, out) == (1, "")
    assert "was answered" in err


async def test_a_voice_for_a_session(gateway: Running, recording: Path) -> None:
    async with native_client(gateway) as client:
        session = client.hello["session"]
        status, out, err = await run(gateway, "add", str(recording), "--self", "--session", session)
        assert status == 0
        assert "until its session ends" in err
        assert gateway.services.holds.scope("default", out.strip()) == session


async def test_what_does_not_work_is_told_in_one_line(gateway: Running, recording: Path, home: Path) -> None:
    noisy = home / "noisy.wav"
    noisy.write_bytes(clip(noise_db=-12))
    (home / "empty.wav").touch()
    for args, words in (
        (("add", str(noisy), "--self"), "noise in the recording"),
        (("add", "none.wav", "--self"), "cannot be read"),
        (("add", "empty.wav", "--self"), "is empty"),
        (("add", str(recording), "--consent", "cn_1"), "consent cannot be used"),
        (("add", str(recording), "--licensed", "none.pdf"), "cannot be read"),
        (("consent",), "lacks speech recognition"),
        (("consent", "ch_1"), "name the recording"),
        (("consent", "ch_1", "none.wav"), "cannot be read"),
        (("rm", "vc_1"), "no such voice"),
        (("rm", "../tone"), "no such voice"),
        (("rm", "tone"), "built-in"),
    ):
        status, out, err = await run(gateway, *args)
        assert (status, out) == (1, ""), args
        assert words in err, args
        assert len(err.splitlines()) == 1
    assert gateway.engine.enrolled == 0


async def test_a_clip_that_could_be_better_is_warned_of(gateway: Running, home: Path) -> None:
    (home / "short.wav").write_bytes(clip(seconds=2.5))
    status, _, err = await run(gateway, "add", "short.wav", "--self")
    assert status == 0
    assert err.splitlines()[0].startswith("warning: the recording has 2")


@pytest.mark.parametrize("args", [["add", "a.wav"], ["add", "a.wav", "--self", "--consent", "cn_1"], ["rm"]])
def test_a_voice_is_made_under_exactly_one_consent(
    args: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["voices", *args])
    assert ended.value.code == 2
    assert "voxwire voices" in capsys.readouterr().err


def test_without_a_gateway_nothing_is_made(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway of the command's own would take the voice along when it ends."""
    for args in (["add", str(recording), "--self"], ["rm", "vc_1"]):
        assert main(["voices", *args]) == 1
        assert "no gateway answers at" in capsys.readouterr().err


def test_the_statement_is_shown_before_it_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["voices", "add", "--help"])
    assert STATEMENT in " ".join(capsys.readouterr().out.split())
