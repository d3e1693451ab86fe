from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, WebSocket

from gateway.app import create_app, runner
from gateway.services import SERVICES, Services
from gateway.settings import Settings
from tests.peers.chromium import TAP, open_browser
from tests.tone import ToneEngine
from tts_core.engine import Engine

Serve = Callable[..., Awaitable["Served"]]
Visit = Callable[..., Awaitable["Visitor"]]


@dataclass(slots=True)
class Served:
    """A gateway that listens."""

    url: str
    services: Services


@dataclass(eq=False)
class Visitor:
    """A page in the browser, and what went over its sockets."""

    page: Page
    sent: list[dict[str, Any]] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    binary: int = 0
    binary_after_end: int = 0
    faults: list[str] = field(default_factory=list)

    def got(self, kind: str) -> list[dict[str, Any]]:
        """Messages of this type from the gateway so far."""
        return [message for message in self.received if message["type"] == kind]

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Messages of this type from the page so far."""
        return [message for message in self.sent if message["type"] == kind]

    async def see(self) -> dict[str, Any]:
        """The page's own figures."""
        seen: dict[str, Any] = await self.page.evaluate("voxwire.diagnostics()")
        return seen

    async def until(self, condition: str, timeout_ms: float = 20_000) -> None:
        """Wait until a JavaScript expression holds; ``now`` in it are the page's figures.

        Not by Playwright's own function, which needs an eval that the page's policy forbids.
        """
        await self.page.evaluate(
            """() => new Promise((done, fail) => {
              const began = performance.now();
              const look = () => {
                const now = voxwire.diagnostics();
                if (CONDITION) done();
                else if (performance.now() - began > LIMIT) fail(new Error(JSON.stringify(now)));
                else setTimeout(look, 10);
              };
              look();
            })""".replace("CONDITION", condition).replace("LIMIT", str(timeout_ms))
        )

    def listen(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda data: self.sent.append(json.loads(data)))
        socket.on("framereceived", self._take)

    def _take(self, data: str | bytes) -> None:
        if isinstance(data, str):
            self.received.append(json.loads(data))
        else:
            self.binary += 1
            self.binary_after_end += bool(self.got("cancelled"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


async def _start(stack: contextlib.AsyncExitStack, engine: Engine | None, settings: Settings) -> Served:
    app = create_app(settings, engine=engine or ToneEngine(word_s=0.25))
    made = runner(app)
    stack.push_async_callback(made.cleanup)
    await made.setup()
    await web.TCPSite(made, settings.host, settings.port).start()
    return Served(f"http://127.0.0.1:{made.addresses[0][1]}/", app[SERVICES])


@pytest_asyncio.fixture(loop_scope="module")
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """A function that starts a gateway; by default with an engine that is as exact as it is dull."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(engine: Engine | None = None, **values: Any) -> Served:
            return await _start(
                stack, engine, replace(Settings(data_dir=tmp_path / "data", port=0), **values)
            )

        yield start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """One page for tests that only need our files under our policy."""
    async with contextlib.AsyncExitStack() as stack:
        served = await _start(stack, None, Settings(data_dir=tmp_path_factory.mktemp("data"), port=0))
        opened = await browser.new_page()
        stack.push_async_callback(opened.close)
        await opened.goto(served.url)
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """A function that opens a gateway's page as a new visitor; any script error fails the test."""
    visitors: list[Visitor] = []

    async def go(url: str, *, ready: bool = True, **options: Any) -> Visitor:
        context = await browser.new_context(**options)
        page = await context.new_page()
        visitor = Visitor(page)
        visitors.append(visitor)
        page.on("websocket", visitor.listen)
        page.on("pageerror", lambda error: visitor.faults.append(str(error)))
        page.on(
            "console",
            lambda line: visitor.faults.append(line.text) if "Content Security Policy" in line.text else None,
        )
        await page.add_init_script(TAP)
        await page.goto(url)
        if ready:
            await visitor.until("now.connection === 'ready'")
        return visitor

    yield go
    for visitor in visitors:
        await visitor.page.context.close()
    assert [fault for visitor in visitors for fault in visitor.faults] == []
