from __future__ import annotations

import base64
import json
from typing import Any

import aiohttp
import jwt
import pytest

from tests.gateway.test_security import UPGRADE, ask, bearer
from tests.peers.gateway import Running, Start

KEY = "configured-key-of-test"


async def mint(
    gateway: Running, headers: dict[str, str], body: dict[str, Any] | bytes | None = None
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else (json.dumps(body).encode() if body is not None else b"")
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/token", data=data, headers=headers) as response,
    ):
        return response.status, await response.json()


async def connects(gateway: Running, token: str, **headers: str) -> int:
    status, _ = await ask(gateway, f"/v1/stream?token={token}", {**UPGRADE, **headers})
    return status


async def test_our_own_page_gets_a_token_that_works_once_from_its_origin(gateway: Running) -> None:
    status, body = await mint(gateway, {"Origin": gateway.url})
    assert status == 200
    assert 0 < body["expires_in"] <= 60
    assert await connects(gateway, body["token"], Origin="http://evil.example") == 403
    assert await connects(gateway, body["token"], Origin=gateway.url) == 101
    assert await connects(gateway, body["token"], Origin=gateway.url) == 401
    _, body = await mint(gateway, {"Origin": gateway.url})
    assert await connects(gateway, body["token"]) == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
async def test_no_other_page_gets_one(gateway: Running, origin: str) -> None:
    status, body = await mint(gateway, {"Origin": origin} if origin else {})
    assert status in {401, 403}
    assert "token" not in body


async def test_with_keys_configured_the_page_needs_one(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}")
    assert (await mint(gateway, {"Origin": gateway.url}))[0] == 401
    status, body = await mint(gateway, {"Origin": gateway.url, **bearer(KEY)})
    assert status == 200
    assert await connects(gateway, body["token"], Origin=gateway.url) == 101


async def test_a_token_can_only_be_narrower_than_its_key(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}")
    assert (await mint(gateway, bearer(KEY), {"scopes": ["admin"]}))[0] == 403
    _, body = await mint(gateway, bearer(KEY))
    status, body = await mint(gateway, bearer(body["token"]))
    assert (status, body["error"]["code"]) == (403, "forbidden")


async def test_forged_and_altered_tokens_open_nothing(gateway: Running) -> None:
    _, body = await mint(gateway, bearer("any"))
    token = body["token"]
    head, claims, signature = token.split(".")
    wider = json.loads(base64.urlsafe_b64decode(claims + "=="))
    wider["scp"] = ["admin"]
    altered = base64.urlsafe_b64encode(json.dumps(wider).encode()).decode().rstrip("=")
    for bad in (
        f"{head}.{altered}.{signature}",
        f"{head}.{claims}.",
        jwt.encode(wider, "", algorithm="none"),
        jwt.encode(
            wider, "0" * 32, algorithm="HS256", headers=jwt.get_unverified_header(token) | {"alg": "HS256"}
        ),
    ):
        assert await connects(gateway, bad) == 401
    assert await connects(gateway, token) == 101


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"ttl": 0}', b'{"ttl": 61}', b'{"scopes": ["all"]}', b'{"max_characters": 0}', b"\xff",
     b'{"origin": "ftp://x"}', b'{"unknown": 1}', b'{"ttl": "1"}', b"[" * 4000],
)  # fmt: skip
async def test_bad_requests_are_told_so(gateway: Running, body: bytes) -> None:
    status, answer = await mint(gateway, bearer("any"), body)
    assert (status, answer["error"]["code"]) == (400, "bad_request")


async def test_voices_and_limits(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=f"acme:{KEY}", default_voice="other")
    status, body = await ask(gateway, "/v1/voices", bearer(KEY))
    assert (status, body["default"], [voice["id"] for voice in body["voices"]]) == (
        200,
        "other",
        ["tone", "other"],
    )
    status, body = await ask(gateway, "/v1/limits", bearer(KEY))
    assert status == 200
    assert (body["tenant"], body["scopes"], body["generating"]) == ("acme", ["speak"], 0)
    assert body["limits"]["message_bytes"] == 65536
    assert (await ask(gateway, "/v1/limits"))[0] == 401
