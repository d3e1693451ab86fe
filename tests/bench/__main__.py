"""Run benches: ``python -m tests.bench [NAME | all [--readme]] [ARGS...]``.

Without a name it lists the benches. ``all`` runs each in a fresh process, so that none inherits another's
threads, caches or settings; ``--readme`` then rewrites the marked block of README.md from their last lines.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.bench.report import markdown, rewrite

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
NOT_BENCHES = {"__init__", "__main__", "report"}
TIMEOUT_S = 1800.0


def benches() -> dict[str, str]:
    """Map each bench's name to the first line of its docstring."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NOT_BENCHES and not path.stem.startswith(("_", "test_")):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            found[path.stem] = text.partition("\n")[0]
    return found


def machine() -> str:
    """Name the processor and the interpreter, as figures mean nothing without them."""
    cpu = platform.processor() or platform.machine()
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    for line in info.splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} cores of {cpu}, Python {platform.python_version()}"


def run(name: str, args: list[str]) -> tuple[int, dict[str, Any] | None]:
    """Run one bench in a process of its own; return its exit status and its parsed last line, if any."""
    command = [sys.executable, "-m", "tests.bench", name, *args]
    with subprocess.Popen(command, cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        last = ""
        watchdog = threading.Timer(TIMEOUT_S, child.kill)
        watchdog.start()
        try:
            for line in child.stdout:
                print(line, end="", flush=True)
                last = line if line.strip() else last
            status = child.wait()
        finally:
            watchdog.cancel()
    try:
        result = json.loads(last)
    except ValueError:
        return status or 1, None
    return status, result if isinstance(result, dict) and result.get("bench") == name else None


def run_all(args: list[str]) -> int:
    """Run every bench; rewrite the README only if each of them gave its figures."""
    readme = "--readme" in args
    results: list[dict[str, Any]] = []
    missed: list[str] = []
    broken: list[str] = []
    for name in benches():
        print(f"== {name}", flush=True)
        status, result = run(name, [arg for arg in args if arg != "--readme"])
        if result is None:
            broken.append(name)
        else:
            results.append(result)
            if status:
                missed.append(name)
    if missed:
        print(f"goals missed: {', '.join(missed)}", file=sys.stderr)
    if broken:
        print(f"no figures from: {', '.join(broken)}; the README is left as it was", file=sys.stderr)
    elif readme:
        before = README.read_text() if README.exists() else ""
        README.write_text(rewrite(before, markdown(results, machine())))
    return 1 if missed or broken else 0


def main(argv: list[str]) -> int:
    """Dispatch one command line, without the program's name."""
    known = benches()
    if not argv or argv[0] in {"-h", "--help"}:
        print("usage: python -m tests.bench NAME | all [--readme]\n")
        for name, line in known.items():
            print(f"  {name:12} {line}")
        return 0
    name, *args = argv
    if name == "all":
        return run_all(args)
    if name not in known:
        print(f"no bench {name!r}; there are: {', '.join(known)}, all", file=sys.stderr)
        return 2
    return int(importlib.import_module(f"tests.bench.{name}").main(args))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
