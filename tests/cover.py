"""Coverage of each source module by its own test module alone: ``python -m tests.cover [PREFIX...]``.

A line that only another module's tests reach counts as uncovered, so that each module can be changed with
the tests beside it. Every test module runs in a process of its own (which also shows hidden dependencies on
order), processes that it starts are measured too, and each module is held against a floor. With prefixes,
only modules under them: ``python -m tests.cover telephony/dsp sessions/store.py``.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import coverage

from tests.envs import ROOT, interpreter

PACKAGES = ("gateway", "sessions", "telephony", "tts_core")
FLOOR = 80.0
EXCEPTIONS: dict[str, tuple[float, str]] = {
    "sessions/memory_store.py": (75.0, "the suite that runs on both drivers is the store's (test_store.py)"),
    "tts_core/nanocodec/nemo.py": (0.0, "it runs in the environment nemo, where its test has it run"),
}
"""Lower floors: module -> (percent, why)."""
DEADLINE_S = 900.0


@dataclass(frozen=True)
class Result:
    """One module's figure: percent of its statements run by its own tests, and what else there is to say."""

    module: str
    percent: float
    floor: float
    missing: str
    failure: str

    @property
    def ok(self) -> bool:
        """Whether its tests passed and reach its floor."""
        return not self.failure and self.percent >= self.floor


def has_code(tree: ast.Module) -> bool:
    """Whether a module has more than a docstring, imports and plain assignments."""
    plain = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    return any(not isinstance(node, plain) for node in tree.body)


def modules() -> list[Path]:
    """Every source module that owes a test module: all but ``__init__`` files without code of their own."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py" or has_code(ast.parse(path.read_text(encoding="utf-8"))):
                found.append(path)
    return found


def own_tests(module: Path) -> tuple[Path, list[Path]]:
    """The mirrored test module of ``module``; and which exist of it and its parts (``test_NAME_PART.py``).

    ``tts_core/text/segmenter.py`` has ``tests/tts_core/text/test_segmenter.py``; an ``__init__`` has
    ``test_init.py`` in the folder of its package, a ``__main__`` has ``test_main.py``.
    """
    folder = ROOT / "tests" / module.parent.relative_to(ROOT)
    wanted = folder / f"test_{module.stem.strip('_')}.py"
    siblings = {path.stem for path in module.parent.glob("*.py")}
    parts = [
        path
        for path in sorted(folder.glob(f"{wanted.stem}_*.py"))
        if path.stem.removeprefix("test_") not in siblings
    ]
    return wanted, [path for path in (wanted, *parts) if path.is_file()]


def measure(module: Path) -> Result:
    """Run the own tests of ``module`` and read what they covered of it."""
    name = str(module.relative_to(ROOT))
    floor = EXCEPTIONS.get(name, (FLOOR, ""))[0]
    wanted, tests = own_tests(module)
    if not tests:
        return Result(name, 0.0, floor, "", f"no {wanted.relative_to(ROOT)}")
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "coverage"
        command = [str(interpreter(wanted)), "-m", "coverage", "run", f"--data-file={data}"]
        command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, tests)]
        try:
            run = subprocess.run(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Result(name, 0.0, floor, "", f"its tests ran for more than {DEADLINE_S:.0f} s")
        failure = "" if run.returncode == 0 else run.stdout.decode(errors="replace").strip()[-1500:]
        measured = coverage.Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
        measured.combine([scratch])
        _, statements, _, missing, lines = measured.analysis2(str(module))
        percent = 100.0 * (1 - len(missing) / len(statements)) if statements else 100.0
        return Result(name, percent, floor, lines, failure)


def main(arguments: Sequence[str]) -> int:
    """Print a line for each module; 0 when each one's tests pass and reach its floor."""
    began = time.monotonic()
    chosen = [path for path in modules() if str(path.relative_to(ROOT)).startswith(tuple(arguments) or "")]
    bad = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for result in pool.map(measure, chosen):
            bad += not result.ok
            sign = " " if result.ok else "!"
            print(f"{sign} {result.percent:5.1f} %  {result.module:44} {result.missing[:60]}", flush=True)
            if result.failure:
                print("  " + result.failure.replace("\n", "\n  "))
    for name, (floor, why) in EXCEPTIONS.items():
        print(f"floor of {name} is {floor:.0f} %: {why}")
    took = time.monotonic() - began
    print(
        f"{len(chosen) - bad} of {len(chosen)} modules reach their floor by their own tests, in {took:.0f} s"
    )
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
