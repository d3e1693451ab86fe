"""The shared environments, by real builds of a tiny lock in a throw-away checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy import envs
from tests.envs import MODEL_ENV, MODEL_TESTS, ensure, interpreter

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 350
PROJECT = """
[project]
name = "demo"
version = "1.2"
description = "A project to link"
requires-python = ">=3.11"
dependencies = ["iniconfig"]

[project.scripts]
demo = "demo:main"

[project.entry-points."demo.things"]
thing = "demo:main"
"""
CODE = "import iniconfig\n\ndef main():\n    print('heard', iniconfig.__name__)\n    return 3\n"


def pin(name: str) -> str:
    """The entry of one package in the test lock, hashes included."""
    lock = (ROOT / "deploy" / "requirements" / "test.txt").read_text()
    entry = re.search(rf"^{name}==.*?(?=^\S|\Z)", lock, re.M | re.S)
    assert entry
    return entry[0]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, in a folder with a blank in its name, that is set up by our script."""
    root = tmp_path / "a checkout"
    (root / "deploy" / "requirements").mkdir(parents=True)
    shutil.copy(envs.__file__, root / "deploy")
    (root / "deploy" / "requirements" / "base.txt").write_text(pin("iniconfig"))
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "demo.py").write_text(CODE)
    monkeypatch.setenv("VOXWIRE_CACHE", str(tmp_path / "cache"))
    return root


def start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "deploy/envs.py", *arguments]
    return subprocess.Popen(command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def call(root: Path, *arguments: str, expect: int = 0) -> tuple[str, str]:
    with start(root, *arguments) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == expect, err
    return out.strip(), err


def test_concurrent_builders_share_one_build(checkout: Path, tmp_path: Path) -> None:
    builders = [start(checkout, "ensure", "base") for _ in range(3)]
    answers = [builder.communicate(timeout=240) for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0, 0], answers
    (python,) = {out.strip() for out, _ in answers}
    assert sum("Built the base environment" in err for _, err in answers) == 1
    assert [path.name for path in (tmp_path / "cache" / "envs").iterdir() if path.is_dir()] == [
        Path(python).parent.parent.name
    ]
    assert Path(python).parent.joinpath("pip").read_text().startswith(f"#!{Path(python).parent}")
    subprocess.run([python, "-c", "import iniconfig"], check=True)
    assert call(checkout, "ensure", "base") == (python, "")


def test_linking_installs_the_project_editable(checkout: Path) -> None:
    foreign = checkout / ".venv"
    foreign.mkdir()
    (foreign / "precious").write_text("kept")
    _, err = call(checkout, "link", "base")
    assert (checkout / ".venv-before" / "precious").read_text() == "kept"
    assert ".venv-before" in err

    demo = subprocess.run([foreign / "bin" / "demo"], capture_output=True, text=True, cwd="/", check=False)
    assert (demo.stdout, demo.returncode) == ("heard iniconfig\n", 3)
    report = subprocess.run(
        [
            *(foreign / "bin" / "python", "-c"),
            "import importlib.metadata as m, json; print(json.dumps([m.version('demo'), m.requires('demo'),"
            "[e.value for e in m.entry_points(group='demo.things')]]))",
        ],
        capture_output=True,
        check=True,
        cwd="/",
    )
    assert json.loads(report.stdout) == ["1.2", ["iniconfig"], ["demo:main"]]
    assert sorted(path.name for path in checkout.glob(".venv*")) == [".venv", ".venv-before"]


@pytest.mark.slow
def test_linking_again_changes_nothing_until_its_inputs_do(checkout: Path) -> None:
    call(checkout, "link", "base")
    before = (checkout / ".venv").stat().st_ino
    call(checkout, "link", "base")
    assert (checkout / ".venv").stat().st_ino == before
    (checkout / "pyproject.toml").write_text(PROJECT.replace("1.2", "1.3"))
    call(checkout, "link", "base")
    assert (checkout / ".venv").stat().st_ino != before
    assert list(checkout.glob(".venv/lib/*/site-packages/demo-1.3.dist-info"))
    assert [path.name for path in checkout.glob(".venv*")] == [".venv"]


@pytest.mark.slow
def test_run_after_test_keeps_the_larger_environment(checkout: Path) -> None:
    (checkout / "deploy" / "requirements" / "test.txt").write_text(pin("iniconfig"))
    call(checkout, "link", "test")
    call(checkout, "link", "base")
    assert (checkout / ".venv" / "voxwire-env").read_text().startswith("test\n")


def test_the_model_has_an_environment_beside_the_other(checkout: Path) -> None:
    (checkout / "deploy" / "requirements" / "gepard.txt").write_text(pin("pluggy") + pin("iniconfig"))
    call(checkout, "link", "base")
    call(checkout, "link", "gepard")
    # The processes that vLLM starts are this interpreter again, in a folder of their own.
    start_child = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    find = "import pluggy, importlib.metadata as m; print(*m.entry_points(group='demo.things').names)"
    command = [str(checkout / ".venv-gepard" / "bin" / "python"), "-c", start_child, find]
    child = subprocess.run(command, capture_output=True, text=True, cwd="/", check=True)
    assert child.stdout == "thing\n"
    assert {path.name for path in checkout.glob(".venv*")} == {".venv", ".venv-gepard"}
    marks = [(checkout / folder / "voxwire-env").read_text() for folder in (".venv", ".venv-gepard")]
    assert [mark.splitlines()[0] for mark in marks] == ["base", "gepard"]


def test_a_build_removes_what_nobody_uses(checkout: Path) -> None:
    lock = checkout / "deploy" / "requirements" / "base.txt"
    built = {}
    for name, pins in {"linked": "iniconfig", "unused": "pluggy", "recent": "packaging"}.items():
        lock.write_text(pin(pins))
        python, _ = call(checkout, "ensure", "base")
        built[name] = Path(python).parent.parent
        if name == "linked":
            call(checkout, "link", "base")
        else:
            (built[name] / "voxwire-links").write_text("/nowhere/.venv\n")
    other = built["linked"].parent / ("other-" + "0" * 16)
    other.mkdir()
    month_ago = time.time() - envs.UNUSED_S - 60
    for home in (built["linked"], built["unused"], other):
        os.utime(home, (month_ago, month_ago))
    lock.write_text(pin("idna"))
    _, err = call(checkout, "ensure", "base")
    assert f"Removed the unused environment {built['unused'].name}.\n" in err
    assert not built["unused"].exists()
    assert built["linked"].exists()
    assert built["recent"].exists()
    assert other.exists()


def test_use_keeps_an_environment_young(checkout: Path) -> None:
    python, _ = call(checkout, "ensure", "base")
    home = Path(python).parent.parent
    os.utime(home, (0, 0))
    call(checkout, "ensure", "base")
    assert time.time() - home.stat().st_mtime < envs.UNUSED_S


@pytest.mark.slow
def test_a_wrong_hash_fails_and_leaves_nothing(checkout: Path, tmp_path: Path) -> None:
    lock = checkout / "deploy" / "requirements" / "base.txt"
    lock.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, lock.read_text()))
    out, err = call(checkout, "ensure", "base", expect=1)
    assert out == ""
    assert "the base environment could not be built" in err
    assert "DO NOT MATCH" in err
    assert not [path for path in (tmp_path / "cache" / "envs").iterdir() if path.is_dir()]


def test_a_build_past_its_deadline_fails(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "REQUIREMENTS", checkout / "deploy" / "requirements")
    with pytest.raises(envs.EnvError, match="not built in time"):
        ensure("base", deadline_s=0.0)


@pytest.mark.slow
def test_a_leftover_of_a_killed_builder_is_cleared(checkout: Path, tmp_path: Path) -> None:
    python, _ = call(checkout, "ensure", "base")
    home = Path(python).parent.parent
    (home / "bin" / "python").unlink()
    leftover = home.parent / f".{home.name}-killed"
    leftover.mkdir()
    assert call(checkout, "ensure", "base")[0] == python
    assert os.access(python, os.X_OK)
    assert not leftover.exists()


def test_only_pins_and_interpreter_name_an_environment(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envs, "REQUIREMENTS", checkout / "deploy" / "requirements")
    lock = checkout / "deploy" / "requirements" / "base.txt"
    before = envs.env_path("base")
    lock.write_text("# a note\n" + lock.read_text() + "    # via us\n")
    assert envs.env_path("base") == before
    lock.write_text(lock.read_text() + pin("pluggy"))
    assert envs.env_path("base") != before


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(envs.EnvError, match=r"no environment is called 'nonsense'; there are: .*pipecat"):
        ensure("nonsense")


def test_what_cannot_be_run_in_is_told_with_what_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert envs.main(["link", "mp3"]) == 1
    assert "'mp3' to run in; there are: base, compressed, test, gepard" in capsys.readouterr().err


def test_a_wrong_call_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert envs.main(["fly"]) == 2
    assert "deploy/envs.py ensure NAME" in capsys.readouterr().err


@pytest.mark.slow
def test_the_base_install_is_small_and_free_of_vendors_and_models() -> None:
    """All told, pip and compiled modules too; no vendor's package, no model stack, no GPL speech."""
    assert envs.size("base") < LIMIT_MB * 1e6
    listing = (
        "import importlib.metadata as m; print(*{d.metadata['Name'].lower() for d in m.distributions()})"
    )
    report = subprocess.run([ensure("base"), "-c", listing], capture_output=True, text=True, check=True)
    installed = set(report.stdout.split())
    assert {"hibari-tts", "aiohttp", "onnxruntime"} <= installed
    assert not installed & {
        *("cartesia", "deepgram-sdk", "elevenlabs", "livekit", "openai", "pipecat-ai", "plivo", "signalwire"),
        *("telnyx", "twilio", "vonage", "torch", "vllm", "transformers", "ray", "piper-tts", "phonemizer"),
    }


def test_the_makefile_runs_the_tests_that_are_left_out_elsewhere() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"\nMODEL_TESTS := {' '.join(MODEL_TESTS)}\n" in makefile
    assert f"\t{MODEL_ENV}/bin/python -m pytest".replace("\t", "  ") in makefile


def collect(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, run.stdout + run.stderr


def test_tests_of_the_model_are_left_out_where_there_is_no_torch() -> None:
    status, listing = collect("tests/tts_core")
    assert status == 0, listing
    assert "tests/tts_core/test_registry.py" in listing
    assert not any(folder in listing for folder in MODEL_TESTS)


def test_tests_of_the_model_fail_where_their_environment_lacks_torch() -> None:
    status, listing = collect("tests/gepard_path")
    assert status != pytest.ExitCode.OK, listing
    assert "No module named 'torch'" in listing


def test_coverage_runs_each_test_in_its_environment() -> None:
    assert interpreter(ROOT / "tests/tts_core/gepard/plugin/test_init.py") == ROOT / MODEL_ENV / "bin/python"
    assert interpreter(ROOT / "tests/tts_core/test_registry.py") == Path(sys.executable)


@pytest.mark.parametrize("lock", envs.names())
def test_locks_are_complete_and_name_no_host(lock: str) -> None:
    text = (envs.REQUIREMENTS / f"{lock}.txt").read_text()
    assert "://" not in text
    pins = re.findall(r"^[a-z0-9][^\s;]*==[^\s;]+(.*(?:\n +--hash=.*)*)", text, re.M)
    assert pins
    assert all("--hash=sha256:" in rest for rest in pins)
