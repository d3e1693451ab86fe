"""Environments for the tests: official clients and tools whose pins differ from ours, and the model's stack.

``python = ensure("pipecat")`` gives the interpreter of a complete environment to start a client with in a
subprocess. A missing environment is built (``deploy/envs.py`` says how); one that cannot be built is an
error, hence a failed test, never a skipped one. ``python -m tests.envs pipecat asr`` builds ahead of time.

The tests of what imports torch or vLLM are left out of the ordinary run and run in ``.venv-gepard``
(``make test`` does both).
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy import envs

ROOT = Path(__file__).resolve().parent.parent
MODEL_ENV = envs.TARGETS["gepard"]
"""The folder of the environment with the model's stack."""
MODEL_TESTS = ("tests/tts_core/gepard", "tests/tts_core/nanocodec", "tests/gepard_path")
"""The folders of tests that run in it."""


def ensure(name: str, *, deadline_s: float = envs.BUILD_DEADLINE_S) -> Path:
    """Interpreter of environment ``name``; raises deploy.envs.EnvError saying why it could not be built."""
    return envs.ensure(name, deadline_s=deadline_s)


def interpreter(test: Path) -> Path:
    """The interpreter that runs the test module ``test``: that of ``MODEL_ENV``, or our own."""
    if any(test.is_relative_to(ROOT / folder) for folder in MODEL_TESTS):
        return ROOT / MODEL_ENV / "bin" / "python"
    return Path(sys.executable)


if __name__ == "__main__":
    sys.exit(envs.main(["ensure", *sys.argv[1:]]))
