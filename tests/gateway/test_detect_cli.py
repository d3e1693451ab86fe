from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from gateway.cli import main
from gateway.detect_cli import LEAD, NO_PROOF, UNSURE, slots, words
from gateway.trust.marks import SLOT_S, Marking
from sessions.secret import DeploymentSecret
from telephony.dsp.mark_detector import NOTHING, Detection
from tests.peers.channels import CHANNELS
from tests.peers.clips import wav
from tests.peers.embedded import RATE, speech

SECRET = "the secret of the deployment of these tests"


@pytest.fixture(autouse=True)
def _deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOXWIRE_SECRET", SECRET)
    monkeypatch.setenv("VOXWIRE_DATA_DIR", str(tmp_path / "data"))


def test_a_marked_recording_is_told_with_what_that_is_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Marking(DeploymentSecret(SECRET.encode()))
    stream = made.of("acme")(RATE)
    pcm = np.concatenate([stream.process(speech(6)[0]), stream.flush()])
    now = datetime.now(UTC)
    (tmp_path / "call.wav").write_bytes(wav(*CHANNELS["mu-law"](pcm, RATE)))
    assert main(["detect", "call.wav", "--tenant", "acme"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("yes: ")
    assert "not a proof" in out
    slot = datetime.fromtimestamp(now.timestamp() // SLOT_S * SLOT_S, UTC)
    assert any(f"{at:%Y-%m-%d %H:%M}" in out for at in (slot, slot + timedelta(seconds=SLOT_S)))
    assert main(["detect", "call.wav"]) == 0
    assert "--tenant" in capsys.readouterr().out


def test_an_unmarked_recording_and_another_secret_are_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voice.wav").write_bytes(wav(speech(6)[1], RATE))
    assert main(["detect", "voice.wav"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no: ")
    assert "does not mean" in out and "VOXWIRE_MARK=on" in out


def test_what_cannot_be_looked_at_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["detect", "missing.wav"]) == 1
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "text.wav").write_text("no sound at all")
    assert main(["detect", "text.wav"]) == 1
    assert "voxwire: " in capsys.readouterr().err
    monkeypatch.delenv("VOXWIRE_SECRET")
    assert main(["detect", "text.wav"]) == 1
    assert "no secret of a gateway here" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    with pytest.raises(SystemExit) as ended:
        main(["detect", "x.wav", "--day", "yesterday"])
    assert ended.value.code == 2


def test_the_answer_begins_with_yes_no_or_unsure() -> None:
    yes, unsure, no = words(Detection(12.3, payload=7, at_s=64.0)), words(Detection(7.5)), words(NOTHING)
    assert yes[0].startswith("yes: ") and "1:04" in yes[0] and "payload 7" in yes[1] and yes[-1] == LEAD
    assert unsure[0].startswith("unsure: ") and unsure[1:] == [UNSURE, NO_PROOF]
    assert no[0].startswith("no: ") and no[1:] == [NO_PROOF]
    assert not any("prove" in line or "certain" in line for line in [*yes, *unsure, *no])


def test_slots_of_a_day() -> None:
    made = Marking(DeploymentSecret(SECRET.encode()))
    day = date(2026, 11, 30)
    at = datetime(2026, 11, 30, 14, 25, tzinfo=UTC).timestamp()
    payload = made.payload("acme", int(at // SLOT_S))
    lines = slots(Detection(20.0, payload=payload), made, "acme", day)
    assert "  2026-11-30 14:25" in lines[1:]
    assert len(lines) < 6
    taken = {made.payload("acme", int(at // SLOT_S) + n) for n in range(-400, 400)}
    unused = next(n for n in range(1024) if n not in taken)
    (line,) = slots(Detection(20.0, payload=unused), made, "acme", day)
    assert line.startswith("No speech of acme")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["detect", "--help"])
    assert "half an hour" in capsys.readouterr().out
