from __future__ import annotations

import subprocess
import sys

import pytest

import tts_core.embedded
from tests.peers.process import ROOT


def test_the_engine_is_loaded_only_when_asked_for() -> None:
    """A worker imports the package and must not pay for the parent's half."""
    code = (
        "import sys, tts_core.embedded as e; before = 'tts_core.embedded.engine' in sys.modules; "
        "e.EmbeddedEngine; print(before, 'tts_core.embedded.engine' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False True\n"


def test_nothing_else_is_there() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = tts_core.embedded.Nothing
