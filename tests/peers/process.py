"""The gateway as users start it: a process of its own, with the real embedded voice."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0
STOP_S = 20.0


class GatewayProcess:
    """``with GatewayProcess() as gateway: gateway.url``; settings as ``VOXWIRE_`` names without prefix."""

    ready_s = READY_S

    def __init__(self, **settings: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="voxwire-test-")
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith("VOXWIRE_") or k == "VOXWIRE_CACHE"
        }
        environ |= {
            "VOXWIRE_PORT": "0",
            "VOXWIRE_DATA_DIR": f"{self._folder.name}/data",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **{f"VOXWIRE_{name.upper()}": value for name, value in settings.items()},
        }
        self._environ = environ
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.log: list[str] = []
        self.url = ""
        self.process: subprocess.Popen[str]

    @property
    def ws(self) -> str:
        """The address for websockets."""
        return self.url.replace("http", "ws", 1)

    @property
    def data_dir(self) -> Path:
        """Where this gateway keeps its keys."""
        return Path(self._environ["VOXWIRE_DATA_DIR"])

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve"],
            cwd=self._folder.name,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.url = self.told(r"Voxwire ready at (\S+)")
        return self

    @cached_property
    def secure_url(self) -> str:
        """The address over TLS, which is told right after the first one and waited for."""
        return self.told(r"and at (https://\S+)")

    def told(self, pattern: str) -> str:
        """What the next line with ``pattern`` has in its group; the lines before it are passed over."""
        while True:
            line = self._lines.get(timeout=self.ready_s)
            if line is None:
                raise AssertionError("the gateway ended at its start:\n" + "".join(self.log[-30:]))
            if found := re.search(pattern, line):
                return found[1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._folder.cleanup()
