from __future__ import annotations

import subprocess
import sys

import pytest

import tts_core.piper
from tests.envs import ROOT
from tts_core.registry import BUILT_IN, load_engine


def test_a_worker_does_not_pay_for_the_engine() -> None:
    code = (
        "import sys, tts_core.piper as p; before = 'tts_core.piper.engine' in sys.modules; "
        "p.PiperEngine; print(before, 'tts_core.piper.engine' in sys.modules, 'piper' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "False"]


def test_nothing_else_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        tts_core.piper.Engine  # noqa: B018


def test_it_is_found_by_name() -> None:
    assert BUILT_IN["piper"] == "tts_core.piper:PiperEngine"
    with pytest.raises(Exception, match="VOXWIRE_PIPER_VOICES"):
        load_engine("piper")
