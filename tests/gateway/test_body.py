"""Bodies that never come, over real TCP."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator

import pytest

from gateway import body
from tests.gateway.test_app import log
from tests.peers.gateway import Running

__all__ = ["log"]

HEAD = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: any\r\n%s\r\n"
PATHS = (b"/v1/token", b"/tts/bytes", b"/tts/sse")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(body, "BODY_S", 0.05)
    yield


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("start", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    gateway: Running, impatient: None, path: bytes, start: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(HEAD % (path, start))
    answer = await asyncio.wait_for(reader.read(), 10)  # to the end: the connection is closed
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not come in time" in answer


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_goes_in_the_middle_is_no_error_of_ours(
    gateway: Running, log: io.StringIO, path: bytes
) -> None:
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(HEAD % (path, b"Content-Length: 100\r\n") + b"{")
        await writer.drain()
        while not any("RequestHandler._handle_request" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        writer.transport.abort()
    async with asyncio.timeout(10):
        while any("RequestHandler._handle_request" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
    levels = [json.loads(line)["level"] for line in log.getvalue().splitlines()]
    assert "error" not in levels


async def test_a_body_over_the_routes_own_limit_is_413(gateway: Running) -> None:
    for start in (b"Content-Length: 5000\r\n", b"Transfer-Encoding: chunked\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        chunk = b"" if b"Length" in start else b"1388\r\n"
        end = b"" if b"Length" in start else b"\r\n0\r\n\r\n"
        writer.write(HEAD % (b"/v1/token", start + b"Connection: close\r\n") + chunk + b" " * 5000 + end)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 413 ")
