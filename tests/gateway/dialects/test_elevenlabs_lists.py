"""Voices, models and the user, as ElevenLabs clients ask for them, beside those who share the paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.dialects.elevenlabs_lists import MODELS
from tests.peers.elevenlabs import KEY
from tests.peers.gateway import Running, on_gateway

OURS = {"X-API-Key": "any"}


async def get(gateway: Running, path: str, headers: dict[str, str] = KEY) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(gateway.url + path) as response,
    ):
        return response.status, await response.json()


@on_gateway()
async def test_the_header_chooses_the_shape_of_voices(gateway: Running) -> None:
    status, theirs = await get(gateway, "/v1/voices")
    assert status == 200
    assert [voice["voice_id"] for voice in theirs["voices"]] == ["tone", "other"]
    # LiveKit reads these three by name.
    assert all({"voice_id", "name", "category"} <= set(voice) for voice in theirs["voices"])
    assert theirs["voices"][0]["labels"]["gender"] == "female"
    status, native = await get(gateway, "/v1/voices", OURS)
    assert status == 200
    assert [voice["id"] for voice in native["voices"]] == ["tone", "other"]
    assert "default" in native


@on_gateway()
async def test_the_header_chooses_the_shape_of_errors(gateway: Running) -> None:
    status, theirs = await get(gateway, "/v1/voices/nobody")
    assert (status, theirs["detail"]["status"]) == (404, "unknown_voice")
    status, native = await get(gateway, "/v1/voices/nobody", OURS)
    assert status >= 400
    assert "code" in native["error"]


@on_gateway()
async def test_one_voice(gateway: Running) -> None:
    status, voice = await get(gateway, "/v1/voices/other")
    assert (status, voice["voice_id"], voice["category"]) == (200, "other", "premade")


@on_gateway()
async def test_voices_in_pages(gateway: Running) -> None:
    _, first = await get(gateway, "/v2/voices?page_size=1")
    assert (first["has_more"], first["total_count"], first["next_page_token"]) == (True, 2, "tone")
    _, second = await get(gateway, "/v2/voices?page_size=1&next_page_token=tone")
    assert [voice["voice_id"] for voice in second["voices"]] == ["other"]
    assert (second["has_more"], second["next_page_token"]) == (False, None)
    _, found = await get(gateway, "/v2/voices?search=OTHER")
    assert [voice["voice_id"] for voice in found["voices"]] == ["other"]
    for size in ("0", "101", "x"):
        status, refused = await get(gateway, f"/v2/voices?page_size={size}")
        assert (status, refused["detail"]["status"]) == (400, "bad_request")


@on_gateway()
async def test_models_never_send_clients_to_another_endpoint(gateway: Running) -> None:
    status, models = await get(gateway, "/v1/models")
    assert status == 200
    names = [model["model_id"] for model in models]
    assert names == ["tone", *MODELS]
    assert not any(name.startswith("eleven_v3") for name in names)
    assert all(model["can_do_text_to_speech"] for model in models)


@on_gateway()
async def test_the_user_is_the_tenant_and_nobody_in_person(gateway: Running) -> None:
    status, user = await get(gateway, "/v1/user")
    assert (status, user["user_id"]) == (200, "default")
    status, subscription = await get(gateway, "/v1/user/subscription")
    assert status == 200
    assert subscription == user["subscription"]
    assert subscription["character_count"] < subscription["character_limit"]


@pytest.mark.parametrize(
    "path", ["/v1/voices", "/v1/voices/tone", "/v2/voices", "/v1/models", "/v1/user", "/v1/user/subscription"]
)
def test_nothing_is_listed_without_a_key(tmp_path: Path, path: str) -> None:
    @on_gateway(api_keys="acme:configured-key-of-test")
    async def main(gateway: Running) -> None:
        status, body = await get(gateway, path, {"xi-api-key": "wrong"})
        assert (status, body["detail"]["status"]) == (401, "invalid_api_key")
        status, _ = await get(gateway, path, {"xi-api-key": "configured-key-of-test"})
        assert status == 200

    main(tmp_path)


@on_gateway()
async def test_tokens_are_made_for_the_socket_only(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        async with http.post(gateway.url + "/v1/single-use-token/tts_websocket") as response:
            assert response.status == 200
            assert response.headers["Cache-Control"] == "no-store"
            assert (await response.json())["token"].startswith("ey")
        async with http.post(gateway.url + "/v1/single-use-token/realtime_scribe") as response:
            assert response.status == 400
            assert (await response.json())["detail"]["status"] == "bad_request"


@on_gateway(elevenlabs_prefix="")
async def test_without_a_prefix_cartesia_keeps_its_list(gateway: Running) -> None:
    _, theirs = await get(gateway, "/voices")
    assert [voice["voice_id"] for voice in theirs["voices"]] == ["tone", "other"]
    _, cartesia = await get(gateway, "/voices", OURS)
    assert [voice["id"] for voice in cartesia["data"]] == ["tone", "other"]
    status, refused = await get(gateway, "/voices/nobody", OURS)
    assert (status, refused["error_code"]) == (404, "unknown_voice")
