"""One gateway process: listeners, signals, the line that says it is ready.

The engine's workers are started first and load while this process imports the web stack; the port listens
before the engine is warm, so that ``/readyz`` can say so. SIGTERM or SIGINT drains and ends with status 0; a
second one ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway import collector, logs
from gateway.settings import Settings, nearest_variable
from tts_core.errors import SettingsError

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)

BACKLOG = 1024
SLOW_S = 5.0
"""A start that takes longer is spoken of: a model may take a minute."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def url_of(scheme: str, host: str, port: int) -> str:
    """An address a person can open: wildcard binds are shown as this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{scheme}://{shown}:{port}"


def tls_context(settings: Settings) -> ssl.SSLContext:
    """TLS 1.2 and up, HTTP/1.1 only. Raises SettingsError if certificate and key do not load."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(str(settings.tls_cert), str(settings.tls_key), password=lambda: "")
    except (ssl.SSLError, OSError, ValueError):
        raise SettingsError(
            "tls_cert and tls_key do not load; accepted: a PEM certificate chain and its unencrypted key"
        ) from None
    return context


class Server:
    """A gateway that listens. ``run`` does everything; the steps are apart for tests and ``voxwire say``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.urls: list[str] = []
        self._runner: web.AppRunner | None = None
        self._app: web.Application | None = None
        self._warm: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        """Listen, then wait until the engine is warm.

        Raises SettingsError (also for a port that is taken), EngineError. On any error everything is undone.
        """
        from gateway.engine import check_voices, make_engine, warm_deadline

        engine = make_engine(self.settings)
        check_voices(self.settings, engine)
        self._warm = asyncio.create_task(engine.start(), name="engine start")
        try:
            await asyncio.sleep(0)  # lets the workers be launched before this process imports for a while
            from gateway.app import create_app, runner

            self._app = create_app(self.settings, engine=engine, warm=self._warm)
            self._runner = runner(self._app)
            await self._runner.setup()
            await self._listen()
            async with asyncio.timeout(warm_deadline(self.settings)):
                await asyncio.wait({self._warm}, timeout=SLOW_S)
                if not self._warm.done():
                    _log.info(
                        "the engine is still loading; /readyz says when it is ready",
                        extra={"engine": self.settings.engine},
                    )
                await self._warm
            collector.settle()
        except BaseException:
            await self.close()
            await engine.close()
            raise

    async def _listen(self) -> None:
        from aiohttp import web

        from gateway.services import SERVICES

        assert self._runner is not None
        settings = self.settings
        context = tls_context(settings) if settings.tls_port is not None else None
        places: list[tuple[str, int, ssl.SSLContext | None]] = [("http", settings.port, None)]
        if settings.tls_port is not None:
            places.append(("https", settings.tls_port, context))
        for scheme, port, tls in places:
            site = web.TCPSite(self._runner, settings.host, port, ssl_context=tls, backlog=BACKLOG)
            try:
                await site.start()
            except OSError as error:
                which = "port" if tls is None else "tls_port"
                raise SettingsError(
                    f"{which} {port} on {settings.host} cannot be opened ({os.strerror(error.errno or 0)}); "
                    f"set VOXWIRE_{which.upper()} to a free port"
                ) from None
            self.urls.append(url_of(scheme, settings.host, self._runner.addresses[-1][1]))
        assert self._app is not None
        if (wyoming := self._app[SERVICES].wyoming) is not None:
            self.urls.append(wyoming.url)

    def stop(self) -> None:
        """Begin the drain; what the first signal does."""
        self._stop.set()

    async def run(self, announce: Callable[[str], None]) -> int:
        """Serve until told to stop; returns the exit status. ``announce`` gets the lines for people."""
        await self.start()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            announce(f"Voxwire ready at {self.urls[0]}")
            for url in self.urls[1:]:
                announce(f"and at {url}")
            await self._stop.wait()
            assert self._app is not None
            from gateway.app import drain
            from gateway.services import SERVICES

            await drain(self._app[SERVICES])
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
            await self.close()
        return 0

    def _on_signal(self, number: int) -> None:
        _log.info("signal", extra={"signal": signal.Signals(number).name})
        if self._stop.is_set():
            # The second one: the operator does not want to wait. Nothing here may block or be caught.
            os._exit(128 + number)
        self._stop.set()

    async def close(self) -> None:
        """Let go of listeners, sockets and engine. Idempotent."""
        if self._warm is not None:
            # Its failure is that of the start, which is told already, or comes of what is being closed.
            self._warm.cancel()
            await asyncio.gather(self._warm, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def serve(settings: Settings) -> int:
    """Run a gateway in this process until it is told to stop; the exit status."""
    logs.setup(settings.log_level, settings.log_format, log_text=settings.log_text)
    for name in settings.unknown_env:
        _log.warning(
            "unknown variable ignored", extra={"setting": name, "did_you_mean": nearest_variable(name)}
        )

    def announce(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    return asyncio.run(Server(settings).run(announce))
