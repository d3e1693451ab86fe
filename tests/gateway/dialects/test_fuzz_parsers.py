"""All that reads what clients send, fuzzed by coverage for a bounded while (see the peer that it starts)."""

from __future__ import annotations

import ast
import json
import mmap
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.envs import ROOT, ensure
from tests.peers import fuzz_parsers

RUNS, SECONDS = 20_000, 2
LEAST = 100
"""Inputs that a target must have seen even on a busy machine."""
WIRE = ("gateway/dialects", "gateway/native", "gateway/wyoming")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the bounded run found, by target."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path_factory.mktemp("fuzz"))}
    ran = subprocess.run(
        [str(ensure("fuzz")), "-m", "tests.peers.fuzz_parsers", str(RUNS), str(SECONDS)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.stdout, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_no_input_breaks_a_parser(report: dict[str, Any]) -> None:
    broken = {name: found["said"] for name, found in report.items() if found["status"]}
    assert not broken, "\n\n".join(f"{name}:\n{said}" for name, said in broken.items())
    assert set(report) >= set(fuzz_parsers.SEEDS)
    few = {name: found["runs"] for name, found in report.items() if found["runs"] < LEAST}
    assert not few


def test_every_wire_module_is_among_the_targets() -> None:
    """One that can parse something, that is, and has no target yet."""
    known = set(fuzz_parsers.MODULES.values())
    for folder in WIRE:
        for path in (ROOT / folder).glob("*.py"):
            names = {
                node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
            }
            if names & {"parse", "unpack", "decode", "body_of", "params_of"}:
                assert ".".join(path.relative_to(ROOT).with_suffix("").parts) in known


def test_an_input_that_breaks_a_target_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The wrapper of each target, in a process of its own, with a fuzzer that tries two inputs."""

    class Fuzzer:
        def Setup(self, arguments: list[str], one: Any) -> None:
            self.one = one

        def Fuzz(self) -> None:
            self.one(b"fine")
            self.one(b"boom")

    def target(data: bytes) -> None:
        if data == b"boom":
            raise IndexError("a bug")
        raise ValueError("as told")

    count = mmap.mmap(-1, 8)
    pid = os.fork()
    if pid == 0:
        tempfile.tempdir = str(tmp_path)
        fuzz_parsers._fuzz(Fuzzer(), "x", target, ValueError, [], count)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70
    told = capfd.readouterr().err
    assert "x: b'boom'" in told
    assert "IndexError: a bug" in told
    assert int.from_bytes(count[:8], "little") == 2
