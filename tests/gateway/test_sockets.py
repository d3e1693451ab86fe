"""Sockets under bad peers, over real TCP with a real WebSocket client (``websockets``) and raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websockets
from aiohttp import WSMessage, WSMsgType, web
from hypothesis import given
from hypothesis import strategies as st

from gateway import sockets
from gateway.app import create_app, runner
from gateway.security import authenticate
from gateway.services import SERVICES, Services, services_of
from gateway.settings import Settings
from gateway.sockets import Bucket, Socket, accept
from tests.peers.gateway import ToneEngine
from tts_core.errors import LegClosed


class Echo:
    """A gateway with one more route, which answers every message with itself and notes how it ended."""

    def __init__(self) -> None:
        self.services: Services
        self.port = 0
        self.open: list[Socket] = []
        self.ends: asyncio.Queue[str] = asyncio.Queue()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        principal = await authenticate(request)
        while (
            "late" in request.query and request.transport is not None and not request.transport.is_closing()
        ):
            await asyncio.sleep(0.001)
        async with accept(services_of(request), request, "native", principal) as socket:
            self.open.append(socket)
            try:
                async for message in socket.messages():
                    if message == "fail":
                        raise ValueError("secret-of-the-library")
                    if message == "flood":
                        while True:
                            await socket.send(bytes(1 << 20))
                    await socket.send(message)
                self.ends.put_nowait("end")
            except LegClosed as error:
                self.ends.put_nowait(error.message)
        return socket.ws

    def connect(self, **options: Any) -> Any:
        url = f"ws://127.0.0.1:{self.port}/echo?api_key=any"
        return websockets.connect(url, ping_interval=None, open_timeout=10, **options)


@contextlib.asynccontextmanager
async def running(folder: Path, **values: Any) -> AsyncIterator[Echo]:
    echo = Echo()
    app = create_app(Settings(data_dir=folder, port=0, **values), engine=ToneEngine())
    app.router.add_get("/echo", echo.handle)
    made = runner(app)
    await made.setup()
    try:
        await web.TCPSite(made, "127.0.0.1", 0).start()
        echo.services, echo.port = app[SERVICES], made.addresses[0][1]
        yield echo
    finally:
        await made.cleanup()


async def nothing_held(echo: Echo) -> None:
    async with asyncio.timeout(10):
        while echo.services.sockets:
            await asyncio.sleep(0.001)


async def test_messages_both_ways_without_compression_and_pings_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as echo, echo.connect(compression="deflate") as client:
        assert client.protocol.extensions == []
        await client.send("text")
        await client.send(b"\x00\x01")
        assert [await client.recv(), await client.recv()] == ["text", b"\x00\x01"]
        await asyncio.wait_for(await client.ping(), 5)
        assert len(echo.services.sockets) == 1
    await nothing_held(echo)


async def close_code(client: Any) -> int:
    async with asyncio.timeout(10):
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await client.recv()
    return int(client.close_code or 0)


async def test_a_message_over_the_limit_closes_1009_and_only_this_socket(tmp_path: Path) -> None:
    async with running(tmp_path, max_message_bytes=2000) as echo, echo.connect() as other:
        async with echo.connect() as client:
            await client.send("x" * 1999)
            assert await client.recv() == "x" * 1999
            await client.send("x" * 2001)
            assert await close_code(client) == 1009
        await other.send("still here")
        assert await other.recv() == "still here"


async def test_text_that_is_not_utf8_closes_1007(tmp_path: Path) -> None:
    async with running(tmp_path) as echo, echo.connect() as client:
        await client.send(b"\xff\xfe", text=True)
        assert await close_code(client) == 1007


async def test_a_flood_of_messages_is_read_slowly_and_none_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path, messages_per_s=100) as echo, echo.connect() as client:
        started = time.monotonic()
        for i in range(230):  # 200 of them are a burst
            await client.send(str(i))
        assert [await client.recv() for _ in range(230)] == [str(i) for i in range(230)]
        assert 0.29 <= time.monotonic() - started < 5


async def test_messages_that_are_there_already_let_others_have_their_turn(tmp_path: Path) -> None:
    class Full:
        """Has always one more message."""

        async def receive(self, timeout: float) -> WSMessage:
            return WSMessage(WSMsgType.TEXT, "x", None)

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running(tmp_path) as echo:
        echo.services.clock = lambda: 0.0
        socket = Socket(echo.services, None, Full(), "native", None)  # type: ignore[arg-type]
        task = asyncio.create_task(other())
        messages = socket.messages()
        for _ in range(100):
            await anext(messages)
        assert turns == 100
        task.cancel()


async def test_more_sockets_than_allowed_are_refused_before_the_upgrade(tmp_path: Path) -> None:
    async with running(tmp_path, max_sockets=1) as echo, echo.connect():
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with echo.connect():
                pass
        assert caught.value.response.status_code == 429
        assert caught.value.response.headers["Retry-After"] == "1"


async def test_a_request_that_is_no_upgrade_is_told_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path) as echo, aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{echo.port}/echo?api_key=any") as response:
            assert response.status == 400
            assert "wss://" in (await response.json())["error"]["message"]
        head = await asyncio.open_connection("127.0.0.1", echo.port)
        head[1].write(UPGRADE.replace(b"GET", b"HEAD"))
        assert (await asyncio.wait_for(head[0].readline(), 10)).startswith(b"HTTP/1.1 400 ")
        head[1].close()
        assert not echo.services.sockets


async def test_a_failing_handler_tells_nothing_and_frees_its_place(tmp_path: Path) -> None:
    async with running(tmp_path) as echo:
        async with echo.connect() as client:
            await client.send("fail")
            await close_code(client)
            assert "secret" not in (client.close_reason or "")
        await nothing_held(echo)


async def test_a_peer_that_does_not_read_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SEND_DEADLINE_S", 0.2)
    async with running(tmp_path) as echo:
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port, limit=1024)
        writer.write(UPGRADE)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        writer.write(frame(b"flood"))
        assert await asyncio.wait_for(echo.ends.get(), 20) == "the client does not read"
        await nothing_held(echo)
        writer.close()


async def test_a_client_that_goes_before_the_upgrade_is_no_failure(tmp_path: Path) -> None:
    async with running(tmp_path) as echo:
        _, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        writer.write(UPGRADE.replace(b"/echo?", b"/echo?late&"))
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(10):
            while 'route="/echo"' not in (counted := echo.services.metrics.text().decode()):
                await asyncio.sleep(0.001)
        assert 'status="5' not in counted
        assert "voxwire_refusals_total{" not in counted
        await nothing_held(echo)


UPGRADE = (
    b"GET /echo?api_key=any HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(payload: bytes, *, opcode: int = 1) -> bytes:
    """A masked client frame (RFC 6455, 5.2), mask zero."""
    return struct.pack(">BBI", 0x80 | opcode, 0x80 | len(payload), 0) + payload


@pytest.mark.parametrize(
    "rude",
    [
        b"",
        frame(b"hi")[:3],
        frame(b"hi", opcode=3),
        b"\x81\x02hi",
        b"\xff" * 40,
        frame(b"", opcode=8),
        frame(b"hi"),
    ],
    ids=["nothing", "half a frame", "reserved opcode", "unmasked", "noise", "close", "message"],
)
async def test_abrupt_ends_leave_nothing(tmp_path: Path, rude: bytes) -> None:
    async with running(tmp_path) as echo:
        for reset in (False, True):
            reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
            writer.write(UPGRADE)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            writer.write(rude)
            if reset:
                writer.transport.abort()
            else:
                writer.close()
        await nothing_held(echo)
        assert echo.services.metrics.sessions.labels("native")._value.get() == 0


@given(st.integers(1, 50), st.lists(st.floats(0, 2), max_size=60))
def test_the_bucket_never_gives_more_than_rate_and_burst(rate: int, waits: list[float]) -> None:
    now = [0.0]
    bucket = Bucket(rate, lambda: now[0])
    for taken, wait in enumerate(waits, 1):
        now[0] += wait
        now[0] += bucket.take()  # a peer that wants more at once, and waits as told
        assert taken <= 2 * rate + rate * now[0] + 1e-6


def test_the_bucket_tells_how_long_to_wait() -> None:
    bucket = Bucket(10, lambda: 0.0)
    assert [bucket.take() for _ in range(20)] == [0.0] * 20
    assert [round(bucket.take(), 9) for _ in range(3)] == [0.1, 0.2, 0.3]


def test_the_bucket_grants_the_rate_for_ever() -> None:
    now = [0.0]
    bucket = Bucket(10, lambda: now[0])
    for _ in range(1000):
        now[0] += 0.1001
        assert bucket.take() == 0.0
