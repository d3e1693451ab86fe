"""What ``voxwire models`` says without a model's packages; what it does is tested with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.models_cli import DEFAULT

ROOT = Path(__file__).parents[2]

_WITHOUT = """
import sys
for name in ("torch", "safetensors", "tokenizers", "huggingface_hub", "httpx"):
    sys.modules[name] = None
from gateway.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for args, part in (
        (["--help"], "models"),
        (["models", "--help"], "make-tiny"),
        (["models", "fetch", "-h"], DEFAULT),
    ):
        with pytest.raises(SystemExit) as ended:
            main(args)
        assert ended.value.code == 0
        assert part in capsys.readouterr().out


@pytest.mark.parametrize("args", [("fetch",), ("check", "x"), ("make-tiny", "made")])
def test_without_the_packages(args: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, "models", *args],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "'gepard'" in done.stderr and "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["check"],
        ["make-tiny"],
        ["make-tiny", "x", "--size", "huge"],
        ["make-tiny", "x", "--seed", "-1"],
        ["sing"],
    ],
)
def test_wrong_calls(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["models", *args])
    assert ended.value.code == 2
    assert "voxwire models" in capsys.readouterr().err
