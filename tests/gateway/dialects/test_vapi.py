"""Vapi's custom voice: exact rates, its secret, its misspelt key, and interruption by a dropped request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.vapi import parse, voice_of
from sessions.events import RATES
from tests import virtual
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import BadRequest, EngineCrashed

KEY = {"x-vapi-secret": "any"}
PATH = "/webhooks/vapi"


def body(key: str = "message", **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "assistantId": "a1"}
    return {
        key: {"type": "voice-request", "text": "One two three.", "sampleRate": 24000, "call": call} | fields
    }


async def post(
    gateway: Running, asked: Any, headers: dict[str, str] | None = None, query: str = ""
) -> tuple[int, str, bytes]:
    data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    async with (
        aiohttp.ClientSession(headers=KEY if headers is None else headers) as http,
        http.post(gateway.url + PATH + query, data=data) as response,
    ):
        return response.status, response.content_type, await response.read()


@pytest.mark.parametrize("rate", RATES)
def test_samples_without_a_header_at_exactly_the_rate_r30(tmp_path: Path, rate: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, kind, data = await post(gateway, body(sampleRate=rate))
        assert (status, kind) == (200, "application/octet-stream")
        assert len(data) % 2 == 0
        assert 0.6 <= len(data) / 2 / rate <= 0.8
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_both_spellings_and_every_place_of_the_voice(gateway: Running) -> None:
    for asked, voice in (
        (body(), "tone"),
        (body("messsage"), "tone"),
        (body(voiceId="other"), "other"),
        (body(assistant={"voice": {"provider": "custom-voice", "voiceId": "other"}}), "other"),
        (body(assistant={"voice": None}), "tone"),
        (body(assistant=7), "tone"),
    ):
        status, _, _ = await post(gateway, asked)
        assert (status, gateway.engine.requests[-1].voice) == (200, voice)
    await post(gateway, body(), query="?voice=other")
    assert gateway.engine.requests[-1].voice == "other"


@on_gateway()
async def test_the_secret_is_a_key(gateway: Running) -> None:
    for headers, status in (({}, 401), (KEY, 200), ({"Authorization": "Bearer any"}, 200)):
        assert (await post(gateway, body(), headers))[0] == status


@pytest.mark.parametrize(
    ("asked", "status", "word"),
    [
        (b"", 400, "JSON"),
        (b"[]", 400, "object"),
        ({}, 400, "message"),
        (body(type="status-update"), 400, "message.type"),
        (body(text=""), 400, "message.text"),
        (body(text=4), 400, "message.text"),
        (body(sampleRate=None), 400, "message.sampleRate"),
        (body(sampleRate=11025), 400, "message.sampleRate"),
        (body(sampleRate="24000"), 400, "message.sampleRate"),
        (body(voiceId="nobody"), 404, "voice"),
        (body(text="x" * 250_000), 413, ""),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, asked: Any, status: int, word: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        got, kind, data = await post(gateway, asked)
        assert (got, kind) == (status, "application/json")
        assert word in json.loads(data)["error"]
        assert gateway.idle

    main(tmp_path)


KEYS = st.sampled_from(["message", "text", "type", "sampleRate", "assistant", "voice"])
TREES = st.recursive(st.none() | st.integers() | st.text(), lambda below: st.dictionaries(KEYS, below))


@given(st.binary() | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_are_a_request_or_a_refusal(raw: bytes) -> None:
    try:
        asked = parse(raw)
        assert asked.text
        assert isinstance(voice_of(asked, ""), str)
    except BadRequest as error:
        assert error.message


@on_gateway()
async def test_a_dropped_request_stops_the_engine(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + PATH, json=body(text="Word. " * 4000)) as response,
    ):
        await response.content.readexactly(10_000)
        response.close()
    await asyncio.sleep(1)
    assert gateway.idle


@on_gateway()
async def test_a_piece_comes_as_fast_as_it_is_read(gateway: Running) -> None:
    began = virtual.clock()
    await post(gateway, body(text="Word. " * 200))
    assert virtual.clock() - began < 5


def failing() -> ToneEngine:
    engine = ToneEngine()
    engine.fail = EngineCrashed("the voice failed")
    return engine


@on_gateway(failing)
async def test_an_engine_that_fails_is_an_error_and_no_audio(gateway: Running) -> None:
    status, _, data = await post(gateway, body())
    assert (status, json.loads(data)["code"]) == (502, "engine_crashed")
