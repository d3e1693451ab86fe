"""``/v1/denied``: a listed voice cannot be cloned whatever it says, others can; only operators list."""

from __future__ import annotations

import aiohttp
import numpy as np
import pytest

from tests.peers import speakers
from tests.peers.clips import wav
from tests.peers.gateway import Running, Start
from tests.peers.rest import Refused, VoiceClient, voice_client
from tests.tone import ToneEngine


@pytest.fixture
async def gateway(start_gateway: Start) -> Running:
    return await start_gateway(engine=ToneEngine(can_clone=True), speaker_model=speakers.model_file())


def recording(clip: speakers.Clip) -> bytes:
    pcm, rate = clip
    return wav(pcm * 0.5, rate)


async def deny(client: VoiceClient, data: bytes, reason: str | None = "case-17") -> str:
    form = aiohttp.FormData(default_to_multipart=True)
    if reason is not None:
        form.add_field("reason", reason)
    form.add_field("file", data, filename="clip.wav")
    return str((await client.ask("POST", "/v1/denied", data=form))["id"])


async def test_a_listed_voice_is_refused_with_other_words(gateway: Running) -> None:
    """V7, through the whole gateway, with two synthetic speakers."""
    heart, joe = speakers.heart(), speakers.joe()
    async with voice_client(gateway.url, gateway.key) as client:
        await client.enrol(recording(heart[0]))
        name = await deny(client, recording(heart[0]))
        assert client.status == 201
        for clip in heart[1:3]:
            with pytest.raises(Refused) as refused:
                await client.enrol(recording(clip))
            assert (refused.value.status, refused.value.code) == (422, "reference_denied")
        await client.enrol(recording(joe[1]))
        (entry,) = (await client.ask("GET", "/v1/denied"))["denied"]
        assert (entry["id"], entry["reason"]) == (name, "case-17")
        assert entry.keys() == {"id", "reason", "at_ms"}
        assert await client.ask("DELETE", f"/v1/denied/{name}") == {"id": name}
        await client.enrol(recording(heart[2]))
        with pytest.raises(Refused) as gone:
            await client.ask("DELETE", f"/v1/denied/{name}")
        assert (gone.value.status, gone.value.code) == (404, "unknown_denied")
    events = [row.event async for row in gateway.services.desk.audit.rows()]
    assert events.count("voice.refused") == 2
    assert events.count("voice.denied") == events.count("voice.allowed") == 1


async def test_a_list_travels_sealed(gateway: Running) -> None:
    async with voice_client(gateway.url, gateway.key) as client:
        name = await deny(client, recording(speakers.joe()[0]))
        data = await client.ask("GET", "/v1/denied/export")
        await client.ask("DELETE", f"/v1/denied/{name}")
        assert await client.ask("POST", "/v1/denied/import", json=data) == {"added": 1}
        assert await client.ask("POST", "/v1/denied/import", json=data) == {"added": 0}
        with pytest.raises(Refused):
            await client.enrol(recording(speakers.joe()[1]))
        for bad in ({"export": "-"}, {"export": ""}, {"export": "AAAA"}, {}, {**data, "x": 1}):
            with pytest.raises(Refused) as refused:
                await client.ask("POST", "/v1/denied/import", json=bad)
            assert refused.value.status == 400


async def test_what_is_no_voice_is_named(gateway: Running) -> None:
    async with voice_client(gateway.url, gateway.key) as client:
        for data, reason, code in (
            (b"RIFF", "r", "reference_unsupported"),
            (wav(np.zeros(32_000, np.float32), 16_000), "r", "reference_silent"),
            (recording(speakers.joe()[0]), "Jane Doe", "bad_request"),
            (recording(speakers.joe()[0]), None, "bad_request"),
        ):
            with pytest.raises(Refused) as refused:
                await deny(client, data, reason)
            assert refused.value.code == code
        assert (await client.ask("GET", "/v1/denied"))["denied"] == []


async def test_only_operators_may(gateway: Running) -> None:
    keyring = gateway.services.keyring
    from sessions.principal import Scope

    others = frozenset(Scope) - {Scope.ADMIN}
    key = (await keyring.create("acme", scopes=others)).presented
    async with voice_client(gateway.url, key) as client:
        for method, path in (
            ("GET", "/v1/denied"),
            ("GET", "/v1/denied/export"),
            ("POST", "/v1/denied/import"),
            ("DELETE", "/v1/denied/dv_0"),
            ("POST", "/v1/denied"),
        ):
            with pytest.raises(Refused) as refused:
                await client.ask(method, path)
            assert refused.value.status == 403


async def test_without_a_model_nothing_can_be_listed(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=ToneEngine(can_clone=True))
    async with voice_client(gateway.url, gateway.key) as client:
        with pytest.raises(Refused) as refused:
            await deny(client, recording(speakers.joe()[0]))
        assert (refused.value.status, refused.value.code) == (501, "no_speaker_model")
        assert "VOXWIRE_SPEAKER_MODEL" in refused.value.message
