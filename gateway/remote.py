"""The gateway that a command talks to. Imports little, so that help is instant."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.settings import Settings
from tts_core.errors import VoxwireError

PROBE_S = 1.0
ASK_S = 10.0
MOST_BYTES = 10_000_000
"""Of a file that is sent."""


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that a command line names. Raises SettingsError."""
    return Settings.load(config=args.config)


def remote_options(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Add ``--url`` and ``--key``; ``again`` for an action of a command that has them, too."""
    default = argparse.SUPPRESS if again else None
    parser.add_argument(
        "--url",
        default=default,
        help="a gateway's address (default: VOXWIRE_URL, else the one on this machine at VOXWIRE_PORT, "
        "else a private one)",
    )
    parser.add_argument("--key", default=default, help="its API key (default: VOXWIRE_KEY)")


async def running(args: argparse.Namespace) -> bool:
    """Whether there is a gateway to talk to: one that was named, or one on this machine."""
    if args.url or os.environ.get("VOXWIRE_URL"):
        return True
    return await answers(default_url(settings_of(args)))


async def need_running(args: argparse.Namespace) -> None:
    """Raise VoxwireError where there is none: what the command does would end with one of our own."""
    if not await running(args):
        raise VoxwireError(
            f"no gateway answers at {default_url(settings_of(args))}; start one with 'voxwire serve', or "
            "name another with --url, VOXWIRE_URL or VOXWIRE_PORT"
        )


class RemoteGateway:
    """The gateway that a command talks to: the one that was named, the one on this machine, or our own."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._settings = settings_of(args)
        self.url: str = args.url or os.environ.get("VOXWIRE_URL", "")
        self.key: str = args.key or os.environ.get("VOXWIRE_KEY", "")
        self._server: object = None

    async def __aenter__(self) -> RemoteGateway:
        if not self.url:
            default = default_url(self._settings)
            if await answers(default):
                self.url = default
            else:
                note(f"no gateway answers at {default}: starting one for this command alone ...", stay=True)
                await self._start()
        if not self.key:
            local = self._settings.data_dir / "local.key"
            self.key = local.read_text().strip() if local.is_file() else "local"
        return self

    async def _start(self) -> None:
        from gateway import logs
        from gateway.server import Server

        logs.setup("error", "text")
        # Ours alone: nobody else's keys, store or ports; gone when the command ends.
        private = replace(
            self._settings, host="127.0.0.1", port=0, tls_port=None, tls_cert=None, tls_key=None, api_keys="",
            redis_url="", public_origin="", allowed_hosts=(), allowed_origins=(), twilio=(), default_voice="",
            wyoming="",
        )  # fmt: skip
        server = Server(private)
        await server.start()
        self._server, self.url = server, server.urls[0]

    async def __aexit__(self, *_: object) -> None:
        from gateway.server import Server

        if isinstance(self._server, Server):
            await self._server.close()


def default_url(settings: Settings) -> str:
    """Where a gateway of these settings listens."""
    return f"http://127.0.0.1:{settings.port or 8080}"


async def answers(url: str) -> bool:
    """Whether a Voxwire gateway, not some other program, is at ``url``; VoxwireError if it is not ready."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_S)) as http,
            http.get(f"{url}/readyz") as response,
        ):
            ours = response.headers.get("Server") == "voxwire"
            status = response.status
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
    if ours and status == 503:
        raise VoxwireError(
            f"the gateway at {url} takes no work now: {url}/readyz says why, as that it still loads"
        )
    return ours and status == 200


def note(text: str, *, stay: bool = False) -> None:
    """A progress line on standard error; it is overwritten by the next one unless it stays."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if stay else ""))
    elif stay:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


def runs(
    command: Callable[[argparse.Namespace], Coroutine[Any, Any, None]],
) -> Callable[[argparse.Namespace], int]:
    """A command as the command line calls it."""

    def run(args: argparse.Namespace) -> int:
        asyncio.run(command(args))
        return 0

    return run


def read_file(path: Path) -> bytes:
    """A file to be sent. Raises VoxwireError, in our words, for one that is empty or has over MOST_BYTES."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise VoxwireError(f"{path} is larger than {MOST_BYTES // 1_000_000} MB")
        data = path.read_bytes()
    except OSError as error:
        raise VoxwireError(f"{path} cannot be read: {error.strerror}") from None
    if not data:
        raise VoxwireError(f"{path} is empty")
    return data


async def ask(gateway: RemoteGateway, method: str, path: str, body: dict[str, object] | None = None) -> Any:
    """One request to the gateway, its JSON answer. Raises VoxwireError in plain words."""
    return await send(gateway, method, path, json=body)


async def send(gateway: RemoteGateway, method: str, path: str, *, within: float = ASK_S, **how: Any) -> Any:
    """One request with what ``aiohttp`` takes for one, its JSON answer. Raises VoxwireError, in our words."""
    import aiohttp

    from gateway.say import unreachable

    headers = {"Authorization": f"Bearer {gateway.key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=within), headers=headers) as http,
            http.request(method, gateway.url.rstrip("/") + path, **how) as response,
        ):
            answer = await response.json()
            status = response.status
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise VoxwireError(unreachable(gateway.url, error)) from None
    if status < 300:
        return answer
    try:
        message = str(answer["error"]["message"])
    except (TypeError, KeyError):
        message = f"the gateway answered {status}"
    raise VoxwireError(message)
