"""Isolation on vLLM: 32 voices at once, each equal to its solo run (as in test_engine on the plain loop)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.envs import ROOT
from tests.gepard_path.crowd import CROWD

DEADLINE_S = 280


@pytest.mark.slow
def test_each_of_many_voices_sounds_as_it_does_alone(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "facts.json"
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.gepard_path.crowd", str(model), str(out)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as child,
    ):
        try:
            status = child.wait(DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # whatever of vLLM is left
                os.killpg(child.pid, signal.SIGKILL)
    assert status == 0, (tmp_path / "log").read_text()[-5000:]
    facts = json.loads(out.read_text())
    print(facts)
    assert facts["equal"] == [True] * CROWD
    assert facts["different"] == CROWD
    assert all(frames == int(frames) > 0 for frames in facts["frames"])
    assert sum(facts["frames"]) > 10 * CROWD
    assert facts["free"] == CROWD
    assert facts["events"]["crashes"] == 0
