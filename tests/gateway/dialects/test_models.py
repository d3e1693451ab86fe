"""``/v1/models`` in the shape of who asks."""

from __future__ import annotations

import aiohttp

from gateway.dialects.models import OPENAI_MODELS
from tests.peers.gateway import Running, on_gateway


@on_gateway()
async def test_openai_clients_get_openais_list(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as http,
        http.get(gateway.url + "/v1/models") as response,
    ):
        listed = await response.json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["tone", *OPENAI_MODELS]
    assert all(model["object"] == "model" for model in listed["data"])


@on_gateway()
async def test_elevenlabs_clients_get_theirs(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers={"xi-api-key": "any"}) as http,
        http.get(gateway.url + "/v1/models") as response,
    ):
        listed = await response.json()
    assert isinstance(listed, list)
    assert listed[0]["model_id"] == "tone"


@on_gateway(api_keys="acme:configured-key-of-test")
async def test_nobody_else_gets_any(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http, http.get(gateway.url + "/v1/models") as response:
        assert response.status == 401
