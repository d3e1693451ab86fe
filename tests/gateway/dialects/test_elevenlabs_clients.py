"""Unmodified clients of the ElevenLabs protocol: pipecat, LiveKit and the official Python SDK.

Against a gateway in this process, whose messages are noted, audio is compared byte for byte; the SDK speaks
to a gateway as users start it, over TLS, with a throw-away authority.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Iterator
from typing import Any

import av
import pytest

from tests.peers.clients import SENTENCES, audible, drive, left, listen, over_tls
from tests.peers.gateway import Start
from tests.peers.made import Made

RATE = 22050
ALIASES = {"heart": "tone"}

pytestmark = pytest.mark.slow


async def test_pipecat_keeps_an_idle_socket_alive_r8(start_gateway: Start, made: Made) -> None:
    gateway = await start_gateway(voice_aliases=ALIASES)
    result = await listen(gateway, "pipecat", "pipecat_tts.py", "elevenlabs", "idle")
    assert made.errors == []
    assert result["context"] == ["Second answer."]
    assert result["audio"] == next(iter(made.audio.values()))


async def test_pipecat_speaks_over_http_with_times(start_gateway: Start) -> None:
    gateway = await start_gateway(voice_aliases=ALIASES)
    result = await listen(gateway, "pipecat", "pipecat_tts.py", "elevenlabs-http", "sentence")
    assert " ".join(word for word, _ in result["words"]) == SENTENCES
    times = [pts for _, pts in result["words"]]
    assert times == sorted(times)
    assert result["context"] == [SENTENCES]
    assert len(result["audio"]) / 2 / RATE > 17 * 0.2
    await left(gateway)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("mode", ["turn", "schedule"])
async def test_livekit_speaks_a_turn(start_gateway: Start, made: Made, mode: str, absolute: bool) -> None:
    gateway = await start_gateway(voice_aliases=ALIASES, elevenlabs_absolute_alignment=absolute)
    result = await listen(gateway, "livekit", "livekit_tts.py", "elevenlabs", mode)
    (audio,) = made.audio.values()
    assert result["audio"][: len(audio)] == audio
    assert not any(result["audio"][len(audio) :])  # it fills its last frame with silence
    assert made.errors == []
    assert "".join(word for word, _, _ in result["words"]).split() == SENTENCES.split()
    if absolute:
        for before, after in itertools.pairwise(result["words"]):
            assert before[1] <= before[2] <= after[1] + 0.001
        seconds = len(audio) / 2 / RATE
        assert seconds - 0.6 < result["words"][-1][2] <= seconds + 0.001
    await left(gateway)


async def test_livekit_interrupts_and_speaks_again(start_gateway: Start, made: Made) -> None:
    gateway = await start_gateway(voice_aliases=ALIASES)
    result = await listen(gateway, "livekit", "livekit_tts.py", "elevenlabs", "interrupt")
    assert "".join(word for word, _, _ in result["words"]).strip() == "Second answer."
    first, second = made.audio.values()
    assert result["audio"][: len(second)] == second
    assert len(first) / 2 / RATE < 0.7 + 3.0 + 0.5
    assert len(made.ends) == 2
    await left(gateway)


async def test_livekit_speaks_a_text_over_http(start_gateway: Start) -> None:
    gateway = await start_gateway(voice_aliases=ALIASES)
    result = await listen(gateway, "livekit", "livekit_tts.py", "elevenlabs", "whole")
    assert len(result["audio"]) / 2 / RATE > 17 * 0.2
    assert result["voices"] == ["tone", "other"]


# The SDK


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What all calls of the SDK gave, over TLS, from a gateway with the real voice."""
    with over_tls(tmp_path_factory.mktemp("pki")) as (gateway, root):
        yield drive(gateway, "sdk", "elevenlabs_sdk.py", "heart", root=root)


@pytest.mark.parametrize("call", ["convert", "stream", "realtime"])
def test_the_sdk_speaks_over_tls_fact_3(sdk: dict[str, Any], call: str) -> None:
    assert 4.0 < audible(sdk[call]) < 9.0


@pytest.mark.parametrize("call", ["mp3", "realtime_mp3"])
def test_the_sdks_default_format_is_a_whole_mp3(sdk: dict[str, Any], call: str) -> None:
    with av.open(io.BytesIO(base64.b64decode(sdk[call])), "r") as file:
        stream = file.streams.audio[0]
        assert (stream.codec_context.name, stream.rate) in {("mp3", 44100), ("mp3float", 44100)}
        samples = sum(frame.samples for frame in file.decode(stream))
    assert 4.0 < samples / 44100 < 9.0


def test_the_sdk_gets_a_time_for_every_character(sdk: dict[str, Any]) -> None:
    whole = sdk["timed"]
    seconds = audible(whole["audio"])
    pieces = sdk["timed_stream"]
    streamed = b"".join(base64.b64decode(piece["audio"]) for piece in pieces)
    joined = {
        name: list(itertools.chain(*(p["alignment"][name] for p in pieces if p["alignment"])))
        for name in ("chars", "starts", "ends")
    }
    for found in (whole["alignment"], joined):
        assert "".join(found["chars"]) == SENTENCES
        assert len(found["chars"]) == len(found["starts"]) == len(found["ends"])
        assert found["starts"] == sorted(found["starts"])
        assert all(
            end <= start + 0.002 for end, start in zip(found["ends"], found["starts"][1:], strict=False)
        )
        assert seconds - 1.0 < found["starts"][-1] <= found["ends"][-1] <= seconds + 0.01
    assert len(streamed) / 2 / RATE == pytest.approx(seconds, abs=0.5)


def test_the_sdk_finds_voices_models_and_the_user(sdk: dict[str, Any]) -> None:
    assert "heart" in sdk["voices"]
    assert sdk["search"] == sdk["voices"]
    assert sdk["voice"]
    assert "eleven_flash_v2_5" in sdk["models"]
    assert not any(model.startswith("eleven_v3") for model in sdk["models"])
    assert sdk["user"] == "active"
    assert sdk["subscription"] > 0
    assert sdk["token"].startswith("ey")
    status, body = sdk["error"]
    assert (status, body["detail"]["status"]) == (404, "unknown_voice")
