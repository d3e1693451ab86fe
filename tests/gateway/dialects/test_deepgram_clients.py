"""Unmodified clients of both of Deepgram's protocols against a gateway with the real voice."""

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
versions = pytest.mark.parametrize("version", ["deepgram", "deepgram-flux"])


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess() as running:
        yield running


@pytest.mark.slow
def test_the_sdk_speaks_clears_and_downloads(gateway: GatewayProcess) -> None:
    result = drive(gateway, "sdk", "deepgram_sdk.py")
    assert 4.0 < audible(result["turn"]["audio"], rate=RATE) < 8.0
    assert result["turn"]["kinds"] == ["Metadata", "Flushed"]
    # Audio up to the clear, bounded by our run-ahead; no Flushed for what was cleared.
    assert audible(result["cleared"]["audio"], rate=RATE) < 0.5 + 3.0 + 0.5
    assert result["cleared"]["kinds"] == ["Cleared"]
    assert 0.5 < audible(result["second"]["audio"], rate=RATE) < 2.0
    wav = base64.b64decode(result["wav"])
    assert wav[:4] == b"RIFF"
    assert 4.0 < audible(base64.b64encode(wav[44:]).decode(), rate=RATE) < 8.0
    with av.open(io.BytesIO(base64.b64decode(result["mp3"])), "r") as file:
        sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)])
    assert 4.0 < len(sound) / 22050 < 8.5


@pytest.mark.slow
@versions
def test_livekit_speaks_a_turn(gateway: GatewayProcess, version: str) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", version, "turn")
    assert 4.0 < audible(result["audio"], rate=RATE) < 8.0


@pytest.mark.slow
@versions
def test_livekit_interrupts_and_speaks_again(gateway: GatewayProcess, version: str) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", version, "interrupt")
    assert result["heard_s"] < 0.7 + 3.0 + 0.5
    assert 0.5 < audible(result["audio"], rate=RATE) < 2.0
