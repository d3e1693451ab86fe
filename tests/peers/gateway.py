"""A gateway inside the test: the real application on a real port, with an engine that speaks a tone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from gateway.app import create_app, runner
from gateway.services import SERVICES, Services
from gateway.settings import Settings
from tests import virtual
from tests.tone import ToneEngine
from tts_core.text.normaliser import Normaliser

__all__ = ["Running", "Start", "ToneEngine", "on_gateway", "open_gateway"]


@dataclass(slots=True)
class Running:
    """A gateway that listens: its address and its inside."""

    url: str
    port: int
    app: web.Application
    services: Services
    engine: ToneEngine

    @property
    def key(self) -> str:
        """The generated key of this machine."""
        return (self.services.settings.data_dir / "local.key").read_text().strip()

    @property
    def idle(self) -> bool:
        """Nothing is spoken, held or counted."""
        services = self.services
        return (
            services.limits.active == services.in_flight.count == self.engine.running == 0
            and services.scheduler.idle
            and not services.playing
        )


Start = Callable[..., Awaitable[Running]]


async def open_gateway(
    stack: contextlib.AsyncExitStack,
    folder: Path,
    *,
    engine: ToneEngine | None = None,
    clock: Callable[[], float] = time.monotonic,
    **values: Any,
) -> Running:
    """Start a gateway with these settings on a free port; it is stopped with ``stack``.

    Its normaliser has no helper process: what that reads is no concern of the gateway.
    """
    settings = replace(Settings(data_dir=folder, port=0), **values)
    engine = engine or ToneEngine(second="other")
    app = create_app(settings, engine=engine, clock=clock)
    app[SERVICES].normaliser = Normaliser(library=False)
    made = runner(app)
    stack.push_async_callback(made.cleanup)
    await made.setup()
    await web.TCPSite(made, settings.host, settings.port).start()
    port = made.addresses[0][1]
    return Running(f"http://127.0.0.1:{port}", port, app, app[SERVICES], engine)


GatewayTest = Callable[[Running], Coroutine[Any, Any, None]]


def on_gateway(
    make: Callable[[], ToneEngine | None] = lambda: None, **values: Any
) -> Callable[[GatewayTest], Callable[[Path], None]]:
    """A test of one gateway in virtual time, which leaves nothing open and no task behind."""

    def decorate(test: GatewayTest) -> Callable[[Path], None]:
        def on_loop(tmp_path: Path) -> None:
            async def main() -> None:
                async with contextlib.AsyncExitStack() as stack:
                    gateway = await open_gateway(
                        stack, tmp_path / "data", engine=make(), clock=virtual.clock, **values
                    )
                    await test(gateway)

            virtual.run(main)

        on_loop.__name__, on_loop.__doc__ = test.__name__, test.__doc__
        return on_loop

    return decorate
