"""Unmodified clients of the Cartesia protocol against a gateway with the real voice."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.clients import SENTENCES, audible, drive, over_tls
from tests.peers.process import GatewayProcess


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess() as running:
        yield running


def check_times(words: list[list[Any]], seconds: float) -> None:
    """Starts in order, each word after the one before has ended, all within the audio."""
    for before, after in itertools.pairwise(words):
        assert before[1] <= before[2] <= after[1]
    assert words[0][1] < 0.3
    assert seconds - 0.6 < words[-1][2] <= seconds


@pytest.mark.slow
def test_livekit_speaks_a_turn_with_timed_words(gateway: GatewayProcess) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", "cartesia", "turn")
    # Whether a sentence's first word carries its blank depends on when LiveKit got its text.
    said = "".join(word for word, _, _ in result["words"])
    assert said.replace(" ", "") == SENTENCES.replace(" ", "")
    check_times(result["words"], audible(result["audio"]))


@pytest.mark.slow
def test_livekit_interrupts_and_speaks_again(gateway: GatewayProcess) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", "cartesia", "interrupt")
    assert "".join(word for word, _, _ in result["words"]) == "Second answer."
    assert 0.5 < audible(result["audio"]) < 2.0
    # It stopped reading: what it had got by then is bounded by our run-ahead.
    assert result["heard_s"] < 0.7 + 3.0 + 0.5


@pytest.mark.slow
def test_livekit_survives_a_long_tool_call(gateway: GatewayProcess) -> None:
    result = drive(gateway, "livekit", "livekit_tts.py", "cartesia", "pause")
    said = "".join(word for word, _, _ in result["words"])
    assert said.replace(" ", "") == "Letmelookthatupforyou.Hereitis,thankyou."
    assert audible(result["audio"]) > 2.0


@pytest.mark.slow
def test_the_sdk_speaks_over_websocket_and_http(gateway: GatewayProcess) -> None:
    check_sdk(drive(gateway, "sdk", "cartesia_sdk.py"))


@pytest.mark.slow
def test_the_sdk_speaks_over_tls_where_it_is_told_one_address_fact_3(tmp_path: Path) -> None:
    with over_tls(tmp_path) as (gateway, root):
        check_sdk(drive(gateway, "sdk", "cartesia_sdk.py", root=root))


def check_sdk(result: dict[str, Any]) -> None:
    """A turn pushed, a turn of flushes, a turn behind a cancelled one, a file and the voices."""
    push = result["push"]
    assert 4.0 < audible(push["audio"]) < 8.0
    assert push["kinds"].count("done") == 1
    assert push["kinds"][-1] == "done"
    flush = result["flush"]
    seconds = audible(flush["audio"], "mulaw", 8000)
    assert " ".join(word for word, _, _ in flush["words"]) == SENTENCES
    check_times(flush["words"], seconds)
    assert flush["flushes"] == [1, 2, 3]
    assert 0.5 < audible(result["after_cancel"]["audio"]) < 2.0
    wav = base64.b64decode(result["bytes"])
    assert wav[:4] == b"RIFF"
    assert wav.count(b"RIFF") == 1
    assert 4.0 < audible(base64.b64encode(wav[44:]).decode(), rate=24000) < 8.0
    assert "heart" in result["voices"]
