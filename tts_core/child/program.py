"""What to start as a worker, and in which environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

_COMMAND = "import sys; from {module} import {function}; {function}(int(sys.argv[1]))"
_FOREIGN = "import sys; sys.path.append(sys.argv[2]); " + _COMMAND[len("import sys; ") :]
_ROOT = str(Path(__file__).parents[2])
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Program:
    """A worker to start. ``dataclasses.replace`` changes one of its values.

    Attributes:
        name: of the worker in messages and the log, as in "a worker of the built-in voice".
        entry: ``module:function``; the function gets the number of its socket's file descriptor, and does not
            return before the worker is done.
        start_s: seconds from the start to Ready before it is given up.
        threads: of the libraries for arithmetic (OpenMP, OpenBLAS, MKL); None leaves it to them.
        env: further environment variables; they win over ours.
        python: another Python (3.11 or newer) to run it with. Its own packages come first; what is ours it
            finds after them. Empty for the one that runs us.
    """

    name: str
    entry: str
    start_s: float
    threads: int | None = 1
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    python: str = ""

    def environment(self) -> dict[str, str]:
        """Environment of the worker: ours without the gateway's settings, which may hold secrets."""
        made = {k: v for k, v in os.environ.items() if not k.startswith("VOXWIRE_")}
        if self.threads is not None:
            made.update(dict.fromkeys(_THREADS, str(self.threads)))
        if self.python:
            for name in ("PYTHONPATH", "PYTHONHOME"):
                made.pop(name, None)
        else:
            made["PYTHONPATH"] = os.pathsep.join(p for p in (_ROOT, made.get("PYTHONPATH", "")) if p)
        made.update(self.env)
        return made

    def spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        """Start a worker on its end of a socket pair, which is closed here. Blocks until the program runs.

        Raises:
            OSError: it cannot be started.
        """
        module, _, function = self.entry.partition(":")
        command = (_FOREIGN if self.python else _COMMAND).format(module=module, function=function)
        with theirs:
            # A session of its own: the terminal's Ctrl-C reaches the gateway alone, which ends its workers;
            # and a group of its own, so that what the worker starts can be ended with it.
            return subprocess.Popen(  # noqa: S603 - our own code, by an interpreter of the operator's choice
                [self.python or sys.executable, "-P", "-c", command, str(theirs.fileno()), _ROOT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=self.environment(),
            )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a spawned worker and what it started, now. One that has been waited for is left alone.

    What a worker left behind is ended too when it is dead itself.
    """
    if process.returncode is None:  # nobody has waited: the number of the group cannot be another's
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
