"""Doors: Host, Origin and credentials, by raw requests as hostile clients and pages make them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.security import looks_like_token, split_host
from sessions.principal import Scope
from tests.peers.gateway import Running, Start
from tts_core.errors import SettingsError

KEY = "configured-key-of-test"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def ask(
    gateway: Running,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    host: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """One request by hand, so that every header is what the test says; status and JSON body."""
    head = {"Host": host if host is not None else f"127.0.0.1:{gateway.port}", **(headers or {})}
    if "Connection" not in head:
        head["Connection"] = "close"
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items() if value)]
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        status = int(answer.split(b" ", 2)[1])
        size = re.search(rb"(?i)content-length: (\d+)", answer)
        body = await asyncio.wait_for(reader.readexactly(int(size[1])), 10) if size else b""
    finally:
        writer.close()
    try:
        return status, json.loads(body)
    except ValueError:
        return status, {}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# -- a fresh install -------------------------------------------------------------------------------


async def test_local_mode_takes_any_key_from_this_machine_but_not_none(gateway: Running) -> None:
    assert gateway.services.guard.local_mode
    for headers in ({"X-API-Key": "whatever"}, bearer("whatever"), {"Authorization": "Token whatever"}):
        assert (await ask(gateway, "/v1/voices", headers))[0] == 200
    for name in ("api_key", "access_token", "token"):
        assert (await ask(gateway, f"/v1/voices?{name}=whatever"))[0] == 200
    status, body = await ask(gateway, "/v1/voices")
    assert (status, body["error"]["code"]) == (401, "unauthorised")
    assert body["error"]["request_id"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Via": "1.1 proxy"},
    ],
)
async def test_local_mode_does_not_reach_through_a_proxy(gateway: Running, headers: dict[str, str]) -> None:
    assert (await ask(gateway, "/v1/voices", {**bearer("whatever"), **headers}))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_others_are_refused_whatever_they_know(
    gateway: Running, headers: dict[str, str]
) -> None:
    for key in ("whatever", gateway.key):
        status, body = await ask(gateway, "/v1/stream", {**UPGRADE, **bearer(key), **headers})
        assert (status, body["error"]["code"]) == (403, "forbidden")
        assert (await ask(gateway, f"/v1/voices?api_key={key}", headers))[0] == 403


async def test_our_own_page_needs_more_than_any_key(gateway: Running) -> None:
    own = {"Origin": f"http://127.0.0.1:{gateway.port}", "Sec-Fetch-Site": "same-origin"}
    assert (await ask(gateway, "/v1/voices?api_key=whatever", own))[0] == 401
    assert (await ask(gateway, f"/v1/voices?api_key={gateway.key}", own))[0] == 200
    # exact scheme, host and port
    for origin in (
        f"https://127.0.0.1:{gateway.port}",
        f"http://localhost:{gateway.port}",
        f"http://127.0.0.1:{gateway.port}/",
    ):
        assert (await ask(gateway, f"/v1/voices?api_key={gateway.key}", {"Origin": origin}))[0] == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[::1",
        "127.0.0.1:x",
        "a@127.0.0.1",
    ],
)
async def test_a_rebound_or_broken_host_is_refused(gateway: Running, host: str) -> None:
    status, _ = await ask(gateway, "/v1/voices", bearer("whatever"), host=host)
    assert status in {400, 403}
    status, _ = await ask(gateway, "/v1/stream", {**UPGRADE, **bearer("whatever")}, host=host)
    assert status in {400, 403}


async def test_loopback_names_are_served(gateway: Running) -> None:
    for host in (f"localhost:{gateway.port}", "LOCALHOST", "[::1]:99", "127.0.0.2"):
        assert (await ask(gateway, "/v1/voices", bearer("whatever"), host=host))[0] == 200


async def test_cookies_authenticate_nothing(gateway: Running) -> None:
    assert (await ask(gateway, "/v1/voices", {"Cookie": f"api_key={gateway.key}; token={gateway.key}"}))[
        0
    ] == 401


async def test_the_generated_key_is_private_and_kept(start_gateway: Start) -> None:
    first = await start_gateway()
    place = first.services.settings.data_dir / "local.key"
    assert place.stat().st_mode & 0o777 == 0o600
    before = first.key
    assert (await start_gateway()).key == before


# -- with keys -------------------------------------------------------------------------------------


async def test_the_key_of_elevenlabs_clients_is_taken(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}")
    for headers, query in (
        ({"xi-api-key": KEY}, ""),
        ({}, f"?authorization=Bearer%20{KEY}"),
        ({}, f"?authorization={KEY}"),
    ):
        assert (await ask(gateway, "/v1/limits" + query, headers))[0] == 200
    for headers, query in (
        ({"xi-api-key": "wrong"}, ""),
        ({}, "?authorization=wrong"),
        ({}, "?xi-api-key=x"),
    ):
        assert (await ask(gateway, "/v1/limits" + query, headers))[0] == 401


async def test_with_a_configured_key_only_that_key_opens(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}")
    assert not gateway.services.guard.local_mode
    assert (await ask(gateway, "/v1/voices", bearer(KEY)))[0] == 200
    assert (await ask(gateway, "/v1/voices", {"X-API-Key": KEY}))[0] == 200
    for wrong in ("whatever", KEY[:-1], KEY + "x", KEY.upper(), "", "x" * 5000):
        status, _ = await ask(gateway, "/v1/stream", {**UPGRADE, **bearer(wrong)})
        assert status == 401, wrong


async def test_local_mode_ends_with_the_first_key_made(gateway: Running) -> None:
    assert (await ask(gateway, "/v1/voices", bearer("whatever")))[0] == 200
    issued = await gateway.services.keyring.create("acme", name="app")
    assert (await ask(gateway, "/v1/voices", bearer("whatever")))[0] == 401
    assert (await ask(gateway, "/v1/voices", bearer(issued.presented)))[0] == 200


async def test_a_scope_that_is_not_held_is_forbidden(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY},boss[admin]:{KEY}2", metrics="key")
    assert (await ask(gateway, "/metrics", bearer(KEY)))[0] == 403
    assert (await ask(gateway, "/metrics", bearer(KEY + "2")))[0] == 200
    assert (await ask(gateway, "/metrics"))[0] == 401
    assert (await ask(gateway, "/v1/stream", {**UPGRADE, **bearer(KEY + "2")}))[0] == 403


async def test_an_open_bind_without_a_key_does_not_start(start_gateway: Start) -> None:
    with pytest.raises(SettingsError, match="voxwire keys add"):
        await start_gateway(host="0.0.0.0")
    gateway = await start_gateway(host="0.0.0.0", api_keys=f"acme:{KEY}")
    assert (await ask(gateway, "/v1/voices", bearer("whatever")))[0] == 401
    # literal addresses cannot be rebound; names have to be listed
    assert (await ask(gateway, "/v1/voices", bearer(KEY), host="192.0.2.7:80"))[0] == 200
    assert (await ask(gateway, "/v1/voices", bearer(KEY), host="gw.example"))[0] == 403


async def test_a_kept_key_opens_an_open_bind(start_gateway: Start) -> None:
    first = await start_gateway()
    issued = await first.services.keyring.create("acme", name="app")
    second = await start_gateway(host="0.0.0.0")
    assert (await ask(second, "/v1/voices", bearer(issued.presented)))[0] == 200
    # the generated key of this machine still works, but only from it
    assert (await ask(second, "/v1/voices", bearer(second.key)))[0] == 200
    assert (await ask(second, "/v1/voices", {**bearer(second.key), "X-Forwarded-For": "1.2.3.4"}))[0] == 401


async def test_public_origin_and_lists(start_gateway: Start) -> None:
    gateway = await start_gateway(
        api_keys=f"acme:{KEY}",
        public_origin="https://voice.example.com",
        allowed_hosts=("gw.internal",),
        allowed_origins=("https://app.example.com",),
    )
    for host in ("voice.example.com", "gw.internal:8080", "voice.example.com."):
        assert (await ask(gateway, "/v1/voices", bearer(KEY), host=host))[0] == 200
    for origin, want in {
        "https://voice.example.com": 200,
        "https://app.example.com": 200,
        "http://app.example.com": 403,
        "https://app.example.com:444": 403,
        "https://xapp.example.com": 403,
    }.items():
        assert (await ask(gateway, "/v1/voices", {**bearer(KEY), "Origin": origin}))[0] == want


async def test_a_revoked_key_closes_its_open_sockets(start_gateway: Start) -> None:
    gateway = await start_gateway()
    keyring = gateway.services.keyring
    issued = await keyring.create("acme", name="app", scopes={Scope.SPEAK})
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = {"Host": "localhost", **UPGRADE, **bearer(issued.presented)}
    writer.write(
        ("GET /v1/stream HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode()
    )
    assert b" 101 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    await keyring.revoke(issued.key_id)
    frame = await asyncio.wait_for(reader.readexactly(4), 10)
    assert frame[0] == 0x88
    assert int.from_bytes(frame[2:4], "big") == 1008
    writer.close()
    assert (await ask(gateway, "/v1/voices", bearer(issued.presented)))[0] == 401


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "want"),
    [("a.example:80", "a.example"), ("A.Example.", "a.example"), ("[::1]:8080", "::1"), ("[::1]", "::1"),
     ("::1", ""), ("a:b", ""), ("[::1", ""), ("[::1]x", ""), ("", "")],
)  # fmt: skip
def test_split_host(header: str, want: str) -> None:
    assert split_host(header) == want


@given(st.text(max_size=40))
def test_split_host_takes_anything(header: str) -> None:
    assert ":" not in split_host(header) or header.strip().startswith("[")


def test_keys_are_not_tokens() -> None:
    assert looks_like_token("eyJhbGciOiJFZERTQSJ9.e30.c2ln")
    assert not looks_like_token("vx_0123456789ab_eyJ.a.b")
