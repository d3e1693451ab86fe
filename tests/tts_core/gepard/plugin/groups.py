"""Processes that put engines through scenarios, and what they found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
STUB = Path(__file__).resolve().parents[1] / "triton_cpu_stub"
DEADLINE_S = 580
GROUPS = (
    ("base", "preempted", "stale", "pairs"),
    ("v2", "v2_preempted", "v2_async", "v2_async_pairs"),
)
ALONE = (("compiled",),)
"""Engines that share a process, one after the other; the two groups run side by side, a core each."""


class Scenarios:
    """Runs each scenario once, its whole group with it, and gives its facts.

    ``folder`` makes a fresh folder of a name.
    """

    def __init__(self, checkpoint: Path, folder: Callable[[str], Path]) -> None:
        self._checkpoint, self._folder = checkpoint, folder
        self._running: dict[str, _Group] = {}

    def __call__(self, name: str) -> dict[str, Any]:
        if name not in self._running:
            cores = sorted(os.sched_getaffinity(0))
            groups = ALONE if name in ALONE[0] else GROUPS
            for group, core in zip(groups, (cores[0], cores[-1]), strict=False):
                started = _Group(group, self._checkpoint, self._folder(group[0]), core)
                self._running.update(dict.fromkeys(group, started))
        return self._running[name].facts(name)

    def close(self) -> None:
        for group in self._running.values():
            group.close()


def model_environment(*, v2: bool) -> dict[str, str]:
    """What a process needs in which vLLM takes its second model runner, or its first."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = dict(os.environ)
    if v2:
        paths.append(str(STUB))
        environment |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


class _Group:
    """A process that puts engines through scenarios."""

    def __init__(self, names: tuple[str, ...], checkpoint: Path, folder: Path, core: int) -> None:
        self.folder, self.log = folder, folder / "log"
        environment = model_environment(v2=names[0] == "v2")
        command = [sys.executable, "-m", "tests.tts_core.gepard.plugin.scenarios"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, str(checkpoint), str(folder), *names],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.sched_setaffinity(self.process.pid, {core})  # and whom it will start
        self.give_up = time.monotonic() + DEADLINE_S

    def facts(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.json"
        while not path.exists() and self.process.poll() is None and time.monotonic() < self.give_up:
            time.sleep(0.2)
        if not path.exists():
            self.close()
            pytest.fail(
                f"no facts of {name}; status {self.process.returncode}\n{self.log.read_text()[-6000:]}"
            )
        lines = [line for line in self.log.read_text().splitlines() if "first different frame" in line]
        facts: dict[str, Any] = json.loads(path.read_text())
        print(*lines, name, facts, sep="\n")
        return facts

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # and whatever of vLLM is left
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
