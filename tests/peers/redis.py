"""A real redis-server of our own: on a free port, in a temporary directory, that can be paused and killed."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "redis.conf"
"""The one that is shipped: with its accounts, nothing on disk."""
ADMIN = ("--user", "admin", "on", "nopass", "~*", "&*", "+@all")


class RedisServer:
    """Debian's ``redis-server``; a missing binary fails the test, it is never skipped.

    It runs with the shipped configuration, on a port of loopback instead of a socket. ``url`` is the
    gateway's account, ``check_url`` the one that looks at the configuration. ``extra`` arguments win over
    the file; with ``config=None`` there is no file, and anybody may do anything. With ``tls`` it answers
    over TLS, too, where :meth:`tls` says.
    """

    def __init__(self, directory: Path, *extra: str, config: Path | None = CONFIG, tls: bool = False) -> None:
        binary = shutil.which("redis-server")
        assert binary, "redis-server is not installed (Debian package redis-server)"
        self.port = _free_port()
        self._tls_port = _free_port() if tls else 0
        at = f"127.0.0.1:{self.port}/0"
        self.bare_url = f"redis://{at}"
        self.url = f"redis://voxwire:any@{at}" if config else self.bare_url
        self.check_url = f"redis://voxwire-check:any@{at}"
        self._command = [
            *(binary, *([str(config), "--unixsocket", "", *ADMIN] if config else ["--save", ""])),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)),
            *("--loglevel", "warning", "--daemonize", "no"),
            *(["--tls-port", str(self._tls_port)] if tls else []),
            *extra,
        ]
        self._admin_url = f"redis://admin:any@{at}" if config else self.bare_url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        assert self._process is None
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError:
                assert self._process.poll() is None, "redis-server ended at once"
                assert time.monotonic() < until, "redis-server does not answer"
                time.sleep(0.01)

    def tls(self, url: str) -> str:
        """One of our addresses, over TLS."""
        return url.replace("redis://", "rediss://").replace(f":{self.port}/", f":{self._tls_port}/")

    def client(self) -> redis.Redis:
        """A plain blocking client, for looking behind the driver's back."""
        return redis.Redis.from_url(self._admin_url, socket_timeout=5)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: gone, with everything in it."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(timeout=10)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
