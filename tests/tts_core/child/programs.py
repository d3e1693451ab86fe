"""Workers for the tests of links: ``Program(..., "tests.tts_core.child.programs:NAME", ...)``."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
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
    def load(_: Load) -> tuple[Message, Callable[[], None]]:
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        return Ready(child.pid), threading.Event().wait  # type: ignore[return-value]

    handshake(Channel(sock, LANGUAGE), Load, load, failure="not loaded")


def deserter(fd: int) -> None:
    """Start a process as ``family`` does, and die."""
    serve(fd, _deserter)


def _deserter(sock: socket.socket) -> None:
    def load(_: Load) -> tuple[Message, Callable[[], None]]:
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        return Ready(child.pid), lambda: os.kill(os.getpid(), signal.SIGKILL)

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
    Channel(socket.socket(fileno=fd), LANGUAGE).send(Echo(1))
    signal.pause()


def refuses(fd: int) -> None:
    """Fail with what is no error of a start."""
    Channel(socket.socket(fileno=fd), LANGUAGE).send(Failed(0, "busy", "come again", "retry"))
