"""Whole texts over HTTP: every event in order, and nothing goes on when the block is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.encoding import open_encoder
from gateway.services import SERVICES
from gateway.settings import Settings
from gateway.speaking import Voice
from gateway.spoken import base_options, encoded, spoken
from sessions.context import ContextOptions
from sessions.events import Audio, AudioFormat, Done, Words
from sessions.principal import Principal
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed, TextTooLong

SOMEBODY = Principal("default", "key")


def options(gateway: Running) -> ContextOptions:
    base = base_options(gateway.services, SOMEBODY)
    return ContextOptions(voice="tone", format=AudioFormat(), text=base.text)


@on_gateway()
async def test_events_come_in_order_and_end_with_the_terminal_one(gateway: Running) -> None:
    assert gateway.app[SERVICES] is gateway.services
    request = make_mocked_request("POST", "/", app=gateway.app)
    async with spoken(
        request,
        SOMEBODY,
        dialect="native",
        text="One two three.",
        options=options(gateway),
        voice=Voice("tone"),
    ) as events:
        got = [event async for event in events]
    assert isinstance(got[-1], Done)
    chunks = [event for event in got if isinstance(event, Audio)]
    assert sum(chunk.samples for chunk in chunks) == got[-1].total_samples >= 14_400  # three words of 0.2 s
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
    assert gateway.idle


@on_gateway()
async def test_leaving_stops_the_engine(gateway: Running) -> None:
    request = make_mocked_request("POST", "/", app=gateway.app)
    async with spoken(
        request,
        SOMEBODY,
        dialect="native",
        text="word " * 2000 + ".",
        options=options(gateway),
        voice=Voice("tone"),
    ) as events:
        async for event in events:
            if isinstance(event, Audio):
                break
        assert gateway.services.in_flight.count == 1
    assert gateway.idle
    assert sum(len(r.text.split()) for r in gateway.engine.requests) < 2000


@on_gateway(max_context_chars=60_000)
async def test_one_setting_says_how_long_a_text_may_be(gateway: Running) -> None:
    assert ContextOptions().max_characters == Settings().max_context_chars
    request = make_mocked_request("POST", "/", app=gateway.app)
    asked = replace(base_options(gateway.services, SOMEBODY), voice="tone")
    whole = "word " * 12_000
    async with spoken(
        request, SOMEBODY, dialect="native", text=whole, options=asked, voice=Voice("tone")
    ) as events:
        assert isinstance(await anext(events), Words)
    with pytest.raises(TextTooLong, match="at most 60000 characters") as refused:
        async with spoken(
            request,
            SOMEBODY,
            dialect="native",
            text=whole + ".",
            options=asked,
            voice=Voice("tone"),
            field="input",
        ):
            pass
    assert refused.value.field == "input"
    assert gateway.idle


@on_gateway(lambda: ToneEngine(slots=2), max_contexts=4)
async def test_a_burst_beyond_the_free_streams_is_refused_with_a_time_to_come_back(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as http:

        async def ask() -> tuple[int, int]:
            body = {"voice": "tone", "input": "word " * 100, "response_format": "pcm"}
            async with http.post(gateway.url + "/v1/audio/speech", json=body) as response:
                await response.read()
                return response.status, int(response.headers.get("Retry-After", 0))

        got = await asyncio.gather(*(ask() for _ in range(12)))
    assert sorted(status for status, _ in got) == [200] * 4 + [429] * 8
    assert all((after >= 1) is (status == 429) for status, after in got)
    assert gateway.idle


@on_gateway()
async def test_audio_comes_in_its_container_and_a_failure_is_raised(gateway: Running) -> None:
    request = make_mocked_request("POST", "/", app=gateway.app)
    fmt = options(gateway).format
    for fail in (False, True):
        gateway.engine.fail = EngineCrashed("the voice failed") if fail else None
        gateway.engine.fail_after_chunks = 2
        pieces: list[bytes] = []
        told = ""
        async with spoken(
            request,
            SOMEBODY,
            dialect="native",
            text="One two three.",
            options=options(gateway),
            voice=Voice("tone"),
        ) as events:
            try:
                async for piece in encoded(events, open_encoder("wav", fmt)):
                    pieces.append(piece)
            except EngineCrashed as error:
                told = error.code
        assert all(pieces)
        assert b"".join(pieces).startswith(b"RIFF")
        assert told == ("engine_crashed" if fail else "")
    assert gateway.idle
