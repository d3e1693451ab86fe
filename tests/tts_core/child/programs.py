"""Workers for the tests of links: ``Program(..., "tests.tts_core.child.programs:NAME", ...)``."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

from tests.tts_core.child.cases import LANGUAGE, Echo, Load, Message, Ready
from tts_core.child.failure import Failed
from tts_core.child.pipe import open_pipe
from tts_core.child.serve import Channel, handshake, serve
from tts_core.errors import BadRequest, EngineTimeout, SettingsError

ERRORS = {
    "settings": SettingsError("no such model", field="VOXWIRE_MODEL"),
    "request": BadRequest("too long", field="text"),
    "timeout": EngineTimeout("too slow"),
    "odd": RuntimeError("a secret"),
}
SLEEPER = "import signal; signal.pause()"


def echo(fd: int) -> None:
    """Send back what comes, with its payload."""
    serve(fd, _echo)


def _echo(sock: socket.socket) -> None:
    channel = Channel(sock, LANGUAGE)

    def load(order: Load) -> tuple[Message, Callable[[], None]]:
        if order.error:
            raise ERRORS[order.error]
        return Ready(os.getpid()), serving

    def serving() -> None:
        while True:
            message, payload = channel.receive()
            if isinstance(message, Echo) and message.words == "environment":
                payload = memoryview("\n".join(f"{k}={v}" for k, v in os.environ.items()).encode())
            channel.send(message, payload)

    handshake(channel, Load, load, failure="it could not be loaded")


def loop(fd: int) -> None:
    """As ``echo``, on an event loop once it is ready."""
    serve(fd, _loop)


def _loop(sock: socket.socket) -> None:
    channel = Channel(sock, LANGUAGE)

    async def echoing() -> None:
        gone = asyncio.Event()

        def back(message: Message, payload: memoryview) -> None:
            pipe.send(message, payload)

        pipe = await open_pipe(sock, LANGUAGE, back, gone.set)
        await gone.wait()

    handshake(
        channel, Load, lambda _: (Ready(os.getpid()), lambda: asyncio.run(echoing())), failure="not loaded"
    )


def family(fd: int) -> None:
    """Start a process, tell its number in Ready, and do not care for the socket any more."""
    serve(fd, _family, family=True)


def _family(sock: socket.socket) -> None:
    _with_child(sock, signal.pause)


def heir(fd: int) -> None:
    """As ``family``, done with the first byte that comes once it is ready."""
    serve(fd, _heir, family=True)


def _heir(sock: socket.socket) -> None:
    _with_child(sock, lambda: bool(sock.recv(1)))


def deserter(fd: int) -> None:
    """Start a process as ``family`` does, and die."""
    serve(fd, _deserter)


def _deserter(sock: socket.socket) -> None:
    _with_child(sock, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _with_child(sock: socket.socket, serving: Callable[[], object]) -> None:
    def load(_: Load) -> tuple[Message, Callable[[], None]]:
        def work() -> None:
            serving()

        return Ready(subprocess.Popen([sys.executable, "-c", SLEEPER]).pid), work

    handshake(Channel(sock, LANGUAGE), Load, load, failure="not loaded")


def dies(fd: int) -> None:
    raise SystemExit(3)


def silent(fd: int) -> None:
    signal.pause()


def foreign(fd: int) -> None:
    """Speak another language, and go on."""
    os.write(fd, b"HTTP/1.1 200 OK and so on")
    signal.pause()


def hasty(fd: int) -> None:
    """Begin with something else than Ready or Failed."""
    channel = Channel(socket.socket(fileno=fd), LANGUAGE)
    channel.receive()
    channel.send(Echo(1))
    signal.pause()


def refuses(fd: int) -> None:
    """Fail with what is no error of a start."""
    channel = Channel(socket.socket(fileno=fd), LANGUAGE)
    channel.receive()
    channel.send(Failed(0, "busy", "come again", "retry"))


def deaf(fd: int) -> None:
    """Do not care for the socket once it is ready, nor for anything else."""
    serve(fd, _deaf)


def _deaf(sock: socket.socket) -> None:
    channel = Channel(sock, LANGUAGE)
    handshake(channel, Load, lambda _: (Ready(os.getpid()), signal.pause), failure="not loaded")


def path(fd: int) -> None:
    """Say which Python this is and where it looks, a line each, and end."""
    with socket.socket(fileno=fd) as sock:
        sock.sendall("\n".join([sys.executable, *sys.path]).encode())
