from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websockets
from aiohttp import web

from gateway import logs
from gateway.app import create_app, drain, request_id, runner
from gateway.services import SERVICES
from gateway.settings import Settings
from tests.gateway.test_security import UPGRADE, ask, bearer
from tests.peers.gateway import Running, Start, ToneEngine
from tts_core.errors import Busy, VoxwireError

CANARY = "canary-7d21"
KEY = "configured-key-of-test"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as an operator has it at the most talkative level."""
    root = logging.getLogger()
    before, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    stream = io.StringIO()
    logs.setup("debug", "json", stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    logging.raiseExceptions = raising
    logging.captureWarnings(False)


async def raw(gateway: Running, data: bytes) -> bytes:
    """What the gateway answers to these bytes, until it closes or has said enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(4096), 10)
    finally:
        writer.close()


# -- errors ----------------------------------------------------------------------------------------


async def test_router_errors_have_our_shape(gateway: Running) -> None:
    for path, method, status, code in (
        ("/nothing", "GET", 404, "not_found"),
        ("/healthz", "POST", 405, "method_not_allowed"),
    ):
        got, body = await ask(gateway, path, method=method)
        assert (got, body["error"]["code"]) == (status, code)
        assert set(body["error"]) == {"code", "message", "field", "retry_after", "request_id"}


class Extra:
    """Routes that fail in every way a handler can, and one dialect with its own words."""

    async def busy(self, request: web.Request) -> web.Response:
        raise Busy("full", retry_after=1.4)

    async def crash(self, request: web.Request) -> web.Response:
        raise ZeroDivisionError(f"/usr/lib/{CANARY}")

    async def late(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise VoxwireError("late")

    async def read(self, request: web.Request) -> web.Response:
        return web.json_response({"bytes": len(await request.read())})

    def add(self, app: web.Application) -> None:
        for name in ("busy", "crash", "late"):
            app.router.add_get(f"/x/{name}", getattr(self, name))
        app.router.add_get("/y/busy", self.busy)
        app.router.add_post("/x/read", self.read)
        app[SERVICES].error_shapes["/y"] = lambda request, error: web.json_response(
            {"title": error.code, "id": request_id(request)}, status=error.status
        )


@pytest.fixture
async def extra(tmp_path: Path) -> Any:
    app = create_app(Settings(data_dir=tmp_path, port=0), engine=ToneEngine())
    Extra().add(app)
    made = runner(app)
    await made.setup()
    await web.TCPSite(made, "127.0.0.1", 0).start()
    port = made.addresses[0][1]
    yield Running(f"http://127.0.0.1:{port}", port, app, app[SERVICES], ToneEngine())
    await made.cleanup()


async def test_a_refusal_says_when_to_come_back(extra: Running) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{extra.url}/x/busy") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (await response.json())["error"]["retry_after"] == 1.4
    assert 'voxwire_refusals_total{reason="busy"} 1.0' in extra.services.metrics.text().decode()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_part_is_never_taken_for_the_whole(extra: Running, version: str) -> None:
    """A body of HTTP/1.0 ends with its connection (RFC 9112, 6.3): one that is broken off ends by a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", extra.port)
    writer.write(f"GET /x/late HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
    got = b""
    try:
        while piece := await asyncio.wait_for(reader.read(4096), 10):
            got += piece
        assert version == "1.1", "ended as if it were whole"
        assert b"half" in got
        assert b"\r\n0\r\n" not in got
    except ConnectionResetError:
        assert version == "1.0"
    finally:
        writer.close()


async def test_who_hangs_up_before_an_answer_is_no_error(gateway: Running, log: io.StringIO) -> None:
    head = (
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n"
    )
    for _ in range(20):
        client = socket.create_connection(("127.0.0.1", gateway.port))
        client.sendall(head + b"Authorization: Bearer any\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await asyncio.sleep(0)
    assert (await ask(gateway, "/v1/voices", bearer("any")))[0] == 200  # behind all of them
    told = [json.loads(line) for line in log.getvalue().splitlines()]
    assert not [line for line in told if line["level"] == "error" or line.get("status") == 500]


async def test_a_dialect_words_its_own_errors(extra: Running) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{extra.url}/y/busy") as response:
        body = await response.json()
        assert body["title"] == "busy"
        assert body["id"] == response.headers["X-Request-Id"]
        assert response.headers["Retry-After"] == "1"


async def test_what_a_library_says_stays_inside(extra: Running, log: io.StringIO) -> None:
    status, body = await ask(extra, "/x/crash")
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert CANARY not in json.dumps(body)
    line = next(json.loads(x) for x in log.getvalue().splitlines() if "request failed" in x)
    assert line["error"] == "ZeroDivisionError"
    assert line["request"] == body["error"]["request_id"]
    assert CANARY not in log.getvalue()


async def test_a_response_that_fails_half_way_is_broken_off(extra: Running) -> None:
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientError):
            async with http.get(f"{extra.url}/x/late") as response:
                await response.read()


# -- limits before parsing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET /healthz?" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(b"X%d: a\r\n" % n for n in range(500))
        + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nBad Header: " + CANARY.encode() + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + CANARY.encode(),
    ],
    ids=["long line", "long field", "many fields", "bad field", "not http"],
)
async def test_what_is_too_much_or_no_http_is_400_and_not_logged(
    gateway: Running, log: io.StringIO, data: bytes
) -> None:
    answer = await raw(gateway, data)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 431"))
    assert CANARY.encode() not in answer
    assert b"aiohttp" not in answer
    assert b"Server: voxwire" in answer
    assert CANARY not in log.getvalue()


async def test_a_body_over_the_limit_is_413(extra: Running) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{extra.url}/x/read", data=b"x" * ((1 << 20) - 1)) as response:
            assert response.status == 200
        async with http.post(f"{extra.url}/x/read", data=b"x" * ((1 << 20) + 1)) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "text_too_long"


async def test_a_compressed_body_is_refused_and_never_opened(extra: Running) -> None:
    """A form of 300 kB would be 300 MB of lines, also for who only reads it to drop it."""
    bomb = zlib.compress(b"\n" * 30_000_000)
    async with aiohttp.ClientSession() as http:
        for path in ("/v1/voices", "/v1/consents", "/nothing"):
            for coding in ("gzip", "deflate", "GZIP", "br"):
                headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
                async with http.post(extra.url + path, data=bomb, headers=headers) as answer:
                    assert answer.status == 400
                    assert (await answer.json())["error"]["field"] == "Content-Encoding"
    protocol = runner(extra.app)._kwargs
    assert protocol["auto_decompress"] is False


async def test_a_preflight_is_answered_for_listed_origins_only(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}", allowed_origins=("https://app.example.com",))
    async with aiohttp.ClientSession() as http:
        for origin, want in {"https://app.example.com": 204, "https://evil.example": 403}.items():
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            async with http.options(f"{gateway.url}/v1/token", headers=headers) as response:
                assert response.status == want
                allowed = response.headers.get("Access-Control-Allow-Origin")
                assert allowed == (origin if want == 204 else None)
                assert "Access-Control-Allow-Credentials" not in response.headers


async def test_every_answer_has_the_safe_headers(gateway: Running) -> None:
    for path in ("/healthz", "/nothing", "/v1/voices"):
        async with aiohttp.ClientSession() as http, http.get(gateway.url + path) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Server"] == "voxwire"
            assert re.fullmatch(r"[0-9a-f]{16}", response.headers["X-Request-Id"])


# -- nothing leaks ---------------------------------------------------------------------------------


async def test_canaries_through_every_input_reach_no_log_and_no_metric(
    start_gateway: Start, log: io.StringIO
) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}", metrics="open")
    c = CANARY
    for path in (
        f"/{c}",
        f"/v1/voices?api_key={c}",
        f"/v1/{c}/x?token={c}",
        f"/v1/stream?access_token={c}",
        f"/%0a{c}",
    ):
        for headers in (
            {},
            {"X-API-Key": c},
            bearer(c),
            {"Authorization": c},
            {"Cookie": c},
            {"Origin": f"https://{c}.example"},
            {"User-Agent": c, "Referer": f"http://{c}"},
            {**UPGRADE, "Sec-WebSocket-Protocol": c},
            {"X-API-Key": f"ey{c}.{c}.{c}"},
        ):
            await ask(gateway, path, headers)
    await ask(gateway, "/v1/voices", host=f"{c}.example")
    await ask(gateway, "/v1/voices", method=c.upper())
    async with aiohttp.ClientSession() as http:
        for body in (f'{{"voice": "{c}", "origin": "{c}"}}', c, f'{{"{c}": 1}}'):
            async with http.post(f"{gateway.url}/v1/token", data=body, headers=bearer(KEY)) as response:
                assert c not in (await response.text() if response.status != 200 else "")
    url = f"ws://127.0.0.1:{gateway.port}/v1/stream?api_key={KEY}"
    async with websockets.connect(url) as client:
        await client.send(json.dumps({"type": "hello", "version": 1, "client": c}))
        await client.recv()
        await client.send(json.dumps({"type": "open", "context": "c1", "text": f"{c} spoken", "end": True}))
        await client.send(json.dumps({"type": "open", "context": "c2", "voice": c}))
        await client.send(json.dumps({"type": c}))
        await client.send(c)
        async with asyncio.timeout(20):
            while (
                json.loads(message if isinstance(message := await client.recv(), str) else "{}").get("type")
                != "done"
            ):
                pass
    text = log.getvalue()
    assert "context ended" in text
    for leak in (c, c.upper(), KEY):
        assert leak not in text
        assert leak not in gateway.services.metrics.text().decode()


async def test_the_access_log_names_routes_not_paths(gateway: Running, log: io.StringIO) -> None:
    await ask(gateway, "/v1/voices?api_key=abc")
    await ask(gateway, "/v1/nothing/at/all")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    seen = [(line["route"], line["status"]) for line in lines if line["logger"] == "gateway.access"]
    assert seen == [("/v1/voices", 200), ("-", 404)]


async def test_the_access_log_says_why_a_request_was_refused(gateway: Running, log: io.StringIO) -> None:
    for headers in ({"Origin": "https://other.example"}, {"Host": "other.example"}, {}):
        await ask(gateway, "/v1/voices", headers)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    told = [(line["code"], line.get("reason")) for line in lines if line["logger"] == "gateway.access"]
    assert told == [("forbidden", "Origin"), ("forbidden", "Host"), ("unauthorised", None)]
    assert "other.example" not in log.getvalue()


# -- drain -----------------------------------------------------------------------------------------


async def test_drain_lets_what_runs_finish_refuses_new_and_closes_with_1012(gateway: Running) -> None:
    url = f"ws://127.0.0.1:{gateway.port}/v1/stream?api_key=any"
    async with websockets.connect(url) as client:
        await client.send(json.dumps({"type": "hello", "version": 1}))
        await client.send(json.dumps({"type": "open", "context": "c1"}))
        await client.send(json.dumps({"type": "text", "context": "c1", "text": "One two three. "}))
        async with asyncio.timeout(10):
            while not isinstance(await client.recv(), bytes):
                pass
        draining = asyncio.create_task(drain(gateway.services))
        await gateway.services.draining.wait()
        assert (await ask(gateway, "/readyz"))[0] == 503
        status, body = await ask(gateway, "/v1/stream", {**UPGRADE, **bearer("any")})
        assert (status, body["error"]["code"]) == (503, "draining")
        assert not draining.done()
        await client.send(json.dumps({"type": "open", "context": "c2", "text": "no"}))
        await client.send(json.dumps({"type": "end", "context": "c1"}))
        kinds = []
        with pytest.raises(websockets.ConnectionClosed):
            async with asyncio.timeout(20):
                while True:
                    message = await client.recv()
                    if isinstance(message, str):
                        told = json.loads(message)
                        kinds.append((told["type"], told.get("context"), told.get("code")))
        assert ("done", "c1", None) in kinds
        assert ("error", "c2", "draining") in kinds
        assert client.close_code == 1012
    assert await draining is True
    assert gateway.services.in_flight.count == 0


async def test_drain_cuts_at_its_deadline(start_gateway: Start) -> None:
    gateway = await start_gateway(drain_s=0.05)
    with gateway.services.in_flight.one():
        began = time.monotonic()
        assert await drain(gateway.services) is False
        assert time.monotonic() - began < 5


async def test_nothing_is_left_when_the_gateway_stops(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    app = create_app(Settings(data_dir=tmp_path, port=0), engine=ToneEngine())
    made = runner(app)
    await made.setup()
    await web.TCPSite(made, "127.0.0.1", 0).start()
    port = made.addresses[0][1]
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/stream?api_key=any") as client:
        await client.send(json.dumps({"type": "hello", "version": 1}))
        await client.send(json.dumps({"type": "open", "context": "c1", "text": "Hello there. "}))
        async with asyncio.timeout(10):
            while not isinstance(await client.recv(), bytes):
                pass
        await made.cleanup()
    services = app[SERVICES]
    assert (services.tasks, len(services.sockets), services.in_flight.count) == (0, 0, 0)
    await asyncio.sleep(0)
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert not left
