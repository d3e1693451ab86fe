"""Unmodified clients of Deepgram's turn-based protocol against a gateway with the real voice."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.peers.clients import SENTENCES, audible, drive
from tests.peers.process import GatewayProcess

RATE = 24000
LONG = "A long answer that will be cut by its listener. " * 20


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess() as running:
        yield running


@pytest.mark.slow
def test_the_sdk_speaks_interrupts_and_configures(gateway: GatewayProcess) -> None:
    result = drive(gateway, "sdk", "deepgram_flux_sdk.py")
    turn = result["turn"]
    seconds = audible(turn["audio"], rate=RATE)
    assert 4.0 < seconds < 8.0
    assert turn["kinds"] == ["Connected", "SpeechStarted", "Flushed", "SpeechMetadata"]
    assert abs(turn["last"]["audio_duration_ms"] - seconds * 1000) <= 1
    assert turn["last"]["input_character_count"] == len(SENTENCES)

    cut = result["interrupted"]["last"]
    assert cut["audio_played_ms"] == result["base"] + 1500
    assert cut["text_spoken"] + cut["text_remaining"] == LONG
    # About three words a second: a second and a half is a few words of the first sentence.
    assert 2 <= len(cut["text_spoken"].split()) <= 8
    assert LONG.startswith(cut["text_spoken"])

    assert result["configured"]["last"]["applied"]["speed"] == 1.25
    assert result["refused"]["last"]["code"] == "SPEED_OUT_OF_RANGE"
    # An offset that was used before is a warning, and the turn goes on.
    assert sorted(result["second"]["kinds"]) == ["Flushed", "SpeechMetadata", "SpeechStarted", "Warning"]
    assert 0.4 < audible(result["second"]["audio"], rate=RATE) < 2.0
    assert result["error"]["last"]["code"] == "DATA-0000"
    assert not {"text_spoken", "text_remaining"} & set(result["plain"]["last"])
    assert result["closed"]["kinds"] == ["SpeechStarted", "SpeechMetadata", "SessionMetadata"]
    typed = len(SENTENCES + LONG + "Second answer.Third answer.Last answer.")
    assert result["closed"]["last"]["total_input_character_count"] == typed
    assert result["handshake"] == 400
    assert 4.0 < audible(base64.b64encode(base64.b64decode(result["wav"])[44:]).decode(), rate=RATE) < 8.0
