"""The program alone, as the gateway starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.trust.recogniser import WORKER
from tests.peers.ears import python, read_by, whisper


def run(interpreter: Path | str, model: Path, memory: int, said: str) -> tuple[int, list[dict[str, object]]]:
    done = subprocess.run(
        [interpreter, "-I", "-B", WORKER, model, str(memory)], input=said.encode(), capture_output=True,
        pass_fds=(memory,), timeout=120, check=False, env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_it_hears_until_its_input_ends_and_tells_kinds_of_errors_alone(tmp_path: Path) -> None:
    memory = os.memfd_create("answer")
    try:
        os.write(memory, read_by("heart", "Thank you for calling."))
        ask = json.dumps({"language": "en"}) + "\n"
        status, answers = run(python(), whisper("tiny.en"), memory, ask + ask)
        assert status == 0
        assert answers[0] == {"ready": True}
        assert len(answers) == 3
        assert all("thank you for calling" in str(answer["text"]).lower() for answer in answers[1:])
        os.ftruncate(memory, 0)
        status, answers = run(python(), whisper("tiny.en"), memory, ask)
        assert status == 1
        assert list(answers[-1]) == ["failed"]
        assert run(python(), tmp_path / "none", memory, "")[1][-1].keys() == {"failed"}
        assert run(sys.executable, tmp_path, memory, "") == (1, [{"failed": "ModuleNotFoundError"}])
    finally:
        os.close(memory)
