from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tts_core.gepard.tiny import make_tiny

ROOT = Path(__file__).resolve().parents[4]
STUB = Path(__file__).resolve().parents[1] / "triton_cpu_stub"
DEADLINE_S = 570


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("gepard") / "tiny")


@pytest.fixture(scope="session")
def scenario(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Put an engine through a scenario, once; gives its facts."""
    known: dict[str, dict[str, Any]] = {}

    def run(name: str) -> dict[str, Any]:
        if name not in known:
            known[name] = _run(name, checkpoint, tmp_path_factory.mktemp(name))
        return known[name]

    return run


def _run(name: str, checkpoint: Path, folder: Path) -> dict[str, Any]:
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = dict(os.environ)
    if name.startswith("v2"):
        paths.append(str(STUB))
        environment |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    out, log = folder / "facts.json", folder / "log"
    command = [
        sys.executable,
        "-m",
        "tests.tts_core.gepard.plugin.scenarios",
        name,
        str(checkpoint),
        str(out),
    ]
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
        ) as child,
    ):
        try:
            status = child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # whatever of vLLM is left
                os.killpg(child.pid, signal.SIGKILL)
    text = log.read_text()
    if status != 0 or not out.exists():
        pytest.fail(f"scenario {name} ended with {status}:\n{text[-6000:]}")
    print(*(line for line in text.splitlines() if "first different frame" in line), sep="\n")
    facts: dict[str, Any] = json.loads(out.read_text())
    print(name, facts)
    return facts
