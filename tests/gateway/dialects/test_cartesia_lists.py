"""The rest of the Cartesia protocol: voices, tokens for browsers, and what is refused by name."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from gateway.dialects.cartesia_lists import NOT_OFFERED
from tests.peers.cartesia import KEY, RAW, VOICE, cartesia_client
from tests.peers.gateway import Running, on_gateway


async def ask(
    gateway: Running, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers=KEY if headers is None else headers) as http,
        http.request(method, gateway.url + path, json=body) as response,
    ):
        return response.status, await response.json()


@on_gateway()
async def test_voices_are_paged(gateway: Running) -> None:
    status, page = await ask(gateway, "GET", "/voices")
    assert status == 200
    assert [voice["id"] for voice in page["data"]] == ["tone", "other"]
    assert page["has_more"] is False
    assert page["next_page"] is None
    first = page["data"][0]
    assert (first["name"], first["language"], first["gender"]) == ("Tone", "en", "feminine")
    _, page = await ask(gateway, "GET", "/voices?limit=1")
    assert [voice["id"] for voice in page["data"]] == ["tone"]
    assert page["has_more"] is True
    _, page = await ask(gateway, "GET", f"/voices?limit=1&starting_after={page['next_page']}")
    assert [voice["id"] for voice in page["data"]] == ["other"]
    assert page["has_more"] is False
    for query in ("?limit=0", "?limit=101", "?limit=many"):
        status, error = await ask(gateway, "GET", "/voices" + query)
        assert status == 400
        assert "limit" in error["error"]
    assert (await ask(gateway, "GET", "/voices/tone"))[1] == first
    status, error = await ask(gateway, "GET", "/voices/nobody")
    assert (status, error["error_code"]) == (404, "unknown_voice")


@on_gateway()
async def test_what_is_not_offered_says_so_in_both_shapes(gateway: Running) -> None:
    for path, words in NOT_OFFERED.items():
        for method, tail in (("POST", ""), ("POST", "/bytes"), ("GET", "/x/y")):
            status, error = await ask(gateway, method, path + tail)
            assert (status, error["status_code"], error["error_code"]) == (501, 501, "not_offered")
            assert error["error"] == error["message"] == words
    status, _ = await ask(gateway, "POST", "/infill/bytes", headers={})
    assert status == 401


@on_gateway()
async def test_an_access_token_opens_one_connection_and_speaks(gateway: Running) -> None:
    status, made = await ask(
        gateway,
        "POST",
        "/access-token",
        {"grants": {"tts": True}, "expires_in": 3600},
        {"X-API-Key": gateway.key},
    )
    assert status == 200
    token = made["token"]
    async with cartesia_client(gateway, headers={}, query=f"?access_token={token}") as client:
        await client.send(
            {
                "context_id": "a",
                "model_id": "m",
                "transcript": "One.",
                "voice": VOICE,
                "output_format": RAW,
                "continue": False,
            }
        )
        await client.ended("a")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:  # it is taken once
        async with cartesia_client(gateway, headers={}, query=f"?access_token={token}"):
            pass
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "body", [{"grants": {"stt": True}}, {"grants": {"tts": False}}, {"grants": 4}, {"expires_in": -1}, []]
)
def test_a_token_for_something_else_is_refused(tmp_path: Any, body: Any) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, error = await ask(gateway, "POST", "/access-token", body)
        assert status == 400
        assert error["error_code"] == "bad_request"

    main(tmp_path)
