from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tts_core.gepard.plugin.groups import ROOT, model_environment

DEADLINE_S = 240


def _inline(directory: Path, folder: Path, *, v2: bool) -> dict[str, Any]:
    out = folder / "facts.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.tts_core.gepard.plugin.inline", str(directory), str(out)],
        cwd=ROOT,
        env=model_environment(v2=v2),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    facts: dict[str, Any] = json.loads(out.read_text())
    return facts


@pytest.fixture(scope="session")
def inline(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts from an engine in one process, on the V1 model runner."""
    return _inline(directory, tmp_path_factory.mktemp("inline"), v2=False)


@pytest.fixture(scope="session")
def inline_v2(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same on Model Runner V2."""
    return _inline(directory, tmp_path_factory.mktemp("inline-v2"), v2=True)
