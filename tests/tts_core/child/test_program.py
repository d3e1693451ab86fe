"""What is started, and with which environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import envs
from tests.tts_core.child.cases import ended, exists, spawned
from tts_core.child.program import Program, kill

ECHO = Program("the worker", "tests.tts_core.child.programs:echo", 30.0)


def test_the_gateways_settings_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXWIRE_PEPPER", "very secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    env = ECHO.environment()
    assert "very secret" not in env.values()
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "1"
    assert replace(ECHO, threads=3).environment()["MKL_NUM_THREADS"] == "3"
    assert replace(ECHO, threads=None).environment()["OMP_NUM_THREADS"] == "7"


def test_the_owner_adds_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    env = replace(ECHO, env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "5"}).environment()
    assert (env["HF_HUB_OFFLINE"], env["OMP_NUM_THREADS"]) == ("1", "5")
    root, other = env["PYTHONPATH"].split(os.pathsep)
    assert (Path(root) / "tts_core" / "child").is_dir()
    assert other == "elsewhere"


def test_a_worker_runs_in_a_session_of_its_own_and_can_be_ended() -> None:
    with spawned("echo") as (process, _, ready):
        assert ready.pid == process.pid
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        kill(process)
        assert process.wait(30) == -signal.SIGKILL
        kill(process)
    assert not exists(process.pid)


def test_what_a_dead_worker_left_behind_is_ended() -> None:
    with spawned("deserter") as (process, peer, ready):
        watch = os.pidfd_open(ready.pid)
        assert peer.sock.recv(1) == b""
        kill(process)
        assert ended(watch)
        process.wait(30)


def test_a_program_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(OSError):
        ECHO.spawn(theirs)
    assert theirs.fileno() == -1


def test_a_group_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])  # leads no group
    kill(process)
    process.wait(30)


def test_another_python_has_its_own_packages_first_and_ours_after_them() -> None:
    """An environment of its own: it must not see ours before its own, nor what is ours alone."""
    other = envs.ensure("piper-engine")
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(30)
        process = replace(ECHO, entry="tests.tts_core.child.programs:path", python=str(other)).spawn(theirs)
        told = ours.makefile().read().split("\n")
        process.wait(30)
    site = str(next(other.parents[1].glob("lib/python3*/site-packages")))
    root = str(Path(envs.__file__).parents[1])
    assert told[0] == str(other)
    assert told.index(site, 1) < told.index(root, 1)
    assert "PYTHONPATH" not in replace(ECHO, python="any").environment()
