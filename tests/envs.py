"""Client environments for the tests: official clients and tools whose pins differ from ours.

``python = ensure("pipecat")`` gives the interpreter of a complete environment to start a client with in a
subprocess. A missing environment is built (``deploy/envs.py`` says how); one that cannot be built is an
error, hence a failed test, never a skipped one. ``python -m tests.envs pipecat asr`` builds ahead of time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy import envs


def ensure(name: str, *, deadline_s: float = envs.BUILD_DEADLINE_S) -> Path:
    """Interpreter of environment ``name``; raises deploy.envs.EnvError saying why it could not be built."""
    return envs.ensure(name, deadline_s=deadline_s)


if __name__ == "__main__":
    sys.exit(envs.main(["ensure", *sys.argv[1:]]))
