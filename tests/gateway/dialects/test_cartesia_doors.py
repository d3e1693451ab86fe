"""The Cartesia dialect: who may come in, and how far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.peers.cartesia import RAW, VOICE, cartesia_client
from tests.peers.gateway import Running, on_gateway

SECRET = "configured-key-of-test"


# Who may come in


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"X-API-Key": SECRET}, "", 101),
        ({"Authorization": f"Bearer {SECRET}"}, "", 101),
        ({}, f"?api_key={SECRET}&cartesia_version=2025-04-16", 101),
        ({"X-API-Key": SECRET, "Cartesia-Version": "2026-08-14"}, "", 101),
        ({"X-API-Key": "wrong"}, "", 401),
        ({"Authorization": "Bearer wrong"}, "", 401),
        ({}, "?api_key=wrong", 401),
        ({}, "", 401),
    ],
)
def test_three_auth_styles_and_401_before_the_upgrade_r12(
    tmp_path: Path, headers: dict[str, str], query: str, status: int
) -> None:
    @on_gateway(api_keys=f"acme:{SECRET}")
    async def main(gateway: Running) -> None:
        if status == 101:
            async with cartesia_client(gateway, headers=headers, query=query) as client:
                await client.say("a", "One.", more=False)
                await client.ended("a")
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with cartesia_client(gateway, headers=headers, query=query):
                    pass
            assert refused.value.status == status
        async with (
            aiohttp.ClientSession() as http,
            http.get(gateway.url + "/voices" + query, headers=headers) as listed,
        ):
            assert listed.status == (200 if status == 101 else 401)
            if status == 401:
                body = await listed.json()
                assert body["error"] == body["message"]
                assert (body["status_code"], body["error_code"]) == (401, "unauthorised")

    main(tmp_path)


@on_gateway(max_sockets=1)
async def test_a_full_house_is_429_before_the_upgrade_r12(gateway: Running) -> None:
    async with cartesia_client(gateway):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with cartesia_client(gateway):
                pass
        assert refused.value.status == 429


async def _token(gateway: Running, **asked: Any) -> dict[str, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(gateway.url + "/v1/token", json=asked, headers={"X-API-Key": SECRET}) as response,
    ):
        return {"Authorization": f"Bearer {(await response.json())['token']}"}


@on_gateway(api_keys=f"acme:{SECRET}")
async def test_a_token_is_held_to_its_voice_and_characters(gateway: Running) -> None:
    headers = await _token(gateway, voice="other", max_characters=12)
    async with cartesia_client(gateway, headers=headers) as client:
        await client.say("a", "One two.", more=False)
        error = await client.until("error", "a")
        assert (error["status_code"], error["error_code"]) == (403, "forbidden")
        await client.say("b", "One two.", more=False, voice="other")
        (turn,) = await client.ended("b")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        await client.say("c", "One two.", more=False, voice="other")
        (turn,) = await client.ended("c")
        assert (turn.end or {})["error_code"] == "limit_exceeded"
    headers = await _token(gateway, voice="other")
    body = {"transcript": "One.", "voice": VOICE, "output_format": RAW}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(gateway.url + "/tts/bytes", json=body) as response,
    ):
        assert response.status == 403
