"""Overload: how long a refusal takes when many clients ask at the same instant of a gateway that is full.

The gateway as a process with the real voice, filled with streams that are being spoken at the pace of their
listeners. Then bursts of clients, each on a socket of its own that was opened before, ask for one context
more at once; none gets it. From each client's ``open`` to its ``error`` with a retry hint. This process and
the gateway are kept to a core each, where there are two; the engine's workers go where there is room.

    python -m tests.bench overload [--rounds 10]
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from tests.bench.report import Report
from tests.peers.process import GatewayProcess
from tests.peers.raw import frame

FULL = 8
BURSTS = (1, 100, 300)
TEXT = "I can help you with that appointment, and then we can look at the rest of it together. " * 12
STEP_S = 30.0
GOAL = "<= 50"


class Client:
    """One socket of the native protocol, read without an event loop: its own cost must be small."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STEP_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            "GET /v1/stream?api_key=bench HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._seen = b""
        self._until(b"\r\n\r\n")
        self.send({"type": "hello", "version": 1})
        self._until(b'"type":"hello"')

    def _until(self, word: bytes) -> None:
        while word not in self._seen:
            more = self.socket.recv(65536)
            assert more, "the gateway closed the connection"
            self._seen += more
        self._seen = b""

    def send(self, message: dict[str, object]) -> None:
        """Send one message."""
        self.socket.sendall(frame(1, json.dumps(message).encode()))

    def open(self, context: str) -> float:
        """Ask for a context; the time."""
        now = time.perf_counter()
        self.send({"type": "open", "context": context, "text": TEXT, "end": True})
        return now

    def opened(self) -> bool:
        """Wait for the answer to ``open``: whether it was let in."""
        seen = b""
        while b'"opened"' not in seen and b'"error"' not in seen:
            seen += self.socket.recv(65536)
        return b'"opened"' in seen


CORES = sorted(os.sched_getaffinity(0))
"""Taken before any of them is: once this process has one, it and its children see no other."""


def pin(pid: int, core: int) -> None:
    """Keep every thread of a process to one core, where there is a second one for the others."""
    if len(CORES) > 1:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {CORES[core]})


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def full(gateway: GatewayProcess, port: int) -> Iterator[None]:
    """Speak FULL streams to one client that reads them, all the while."""
    client = Client(port)
    for n in range(FULL):
        client.open(f"busy-{n}")
        assert client.opened()
    reader = threading.Thread(target=drop, args=(client.socket,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        client.socket.shutdown(socket.SHUT_RDWR)
        reader.join()
        client.socket.close()


def drop(connection: socket.socket) -> None:
    """Read until the end."""
    connection.settimeout(None)
    while connection.recv(1 << 20):
        pass


def burst(clients: list[Client], number: int) -> list[float]:
    """All ask at once; how long each refusal took, in seconds."""
    with selectors.DefaultSelector() as answers:
        sent: dict[Client, float] = {}
        took: list[float] = []
        for client in clients:
            answers.register(client.socket, selectors.EVENT_READ, client)
        for client in clients:
            sent[client] = client.open(f"more-{number}")
        while len(took) < len(clients):
            ready = answers.select(STEP_S)
            assert ready, "no answer"
            now = time.perf_counter()
            for key, _ in ready:
                message = key.data.socket.recv(65536)
                assert b'"busy"' in message, message[:200]
                assert b'"retry_after"' in message, message[:200]
                took.append(now - sent[key.data])
                answers.unregister(key.fileobj)
        return took


def main(argv: list[str]) -> int:
    """Run the bench and report."""
    parser = argparse.ArgumentParser(prog="overload")
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args(argv)
    report = Report("overload")
    report.figure("machine's load before the run", os.getloadavg()[0])
    gc.disable()
    worst = {}
    with GatewayProcess(max_contexts=str(FULL), resume_s="0", drain_s="1", log_level="warning") as gateway:
        port = urlsplit(gateway.url).port
        assert port is not None
        pin(gateway.process.pid, 0)
        pin(os.getpid(), 1)
        clients = [Client(port) for _ in range(max(BURSTS))]
        for size in BURSTS:
            took: list[float] = []
            with full(gateway, port):
                time.sleep(1.0)  # until every one of them speaks
                before = cpu_s(gateway.process.pid)
                for number in range(args.rounds):
                    took += burst(clients[:size], number)
                    time.sleep(0.1)
                used = cpu_s(gateway.process.pid) - before
            worst[size] = max(took)
            for percent in (50, 99, 100):
                label = "max" if percent == 100 else f"p{percent}"
                report.figure(f"{size} at once: {label}", float(np.percentile(took, percent)) * 1000, "ms")
            if size > 1:
                report.figure(
                    f"{size} at once: gateway's processor time a refusal", used / len(took) * 1e6, "us"
                )
    for size in BURSTS:
        report.goal(f"{size} at once: slowest refusal, ms", worst[size] * 1000, GOAL)
    return report.finish()
