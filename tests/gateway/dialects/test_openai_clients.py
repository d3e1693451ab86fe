"""Unmodified clients of the OpenAI speech protocol against a gateway with the real voice."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import av
import numpy as np
import pytest

from tests.peers.clients import audible, drive
from tests.peers.process import GatewayProcess

RATE = 24000


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess() as running:
        yield running


@pytest.mark.slow
def test_the_sdk_speaks_chunked_and_by_events_and_in_files(gateway: GatewayProcess) -> None:
    result = drive(gateway, "sdk", "openai_sdk.py")
    seconds = audible(result["chunked"], rate=RATE)
    assert 4.0 < seconds < 8.0
    assert result["sse"]["audio"] == result["chunked"]
    assert result["sse"]["kinds"][-1] == "speech.audio.done"
    assert set(result["sse"]["kinds"][:-1]) == {"speech.audio.delta"}
    wav = base64.b64decode(result["wav"])
    assert wav[:4] == b"RIFF"
    assert 4.0 < audible(base64.b64encode(wav[44:]).decode(), rate=RATE) < 8.0
    with av.open(io.BytesIO(base64.b64decode(result["mp3"])), "r") as file:
        sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)])
    assert 4.0 < len(sound) / RATE < 8.5
    assert result["cut"] > 0
    assert result["error"] == {"status": 404, "param": "voice", "kind": "NotFoundError"}
    assert result["models"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["turn", "mp3"])
def test_livekit_speaks_by_events(gateway: GatewayProcess, mode: str) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", "openai", mode)
    assert 4.0 < audible(result["audio"], rate=RATE) < 8.5


@pytest.mark.slow
def test_livekit_interrupts_and_speaks_again(gateway: GatewayProcess) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", "openai", "interrupt")
    assert result["heard_s"] > 0
    assert 0.5 < audible(result["audio"], rate=RATE) < 2.0
