from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from gateway.sockets import Socket
from tests.peers.made import Made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """What the gateway sends from now on, over its sockets and in responses that are streamed."""
    found = Made()
    send, write = Socket.send, web.StreamResponse.write

    async def noted(self: Socket, data: str | bytes) -> None:
        await send(self, data)
        found.sockets.add(self)
        found.note(data)

    async def heard(self: web.StreamResponse, data: Any) -> None:
        await write(self, data)
        found.hear(self, bytes(data))

    monkeypatch.setattr(Socket, "send", noted)
    monkeypatch.setattr(web.StreamResponse, "write", heard)
    return found
