from __future__ import annotations

import subprocess
import sys

from tests.peers.process import ROOT


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith("usage: voxwire")
    assert "serve" in done.stdout
    assert "say" in done.stdout


def test_a_wrong_command_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "sing"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "sing" in done.stderr
