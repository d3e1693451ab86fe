"""The client of the ``wyoming`` package, unmodified, against a gateway with the real voice."""

from __future__ import annotations

import base64
import time
import urllib.request

import pytest

from tests.peers.clients import audible, drive
from tests.peers.piper import free_port
from tests.peers.process import GatewayProcess

RATE = 24000
WHOLE = ["audio-start", "audio-chunk", "audio-stop"]
PIECES = [*WHOLE, "synthesize-stopped"]


def metrics(gateway: GatewayProcess) -> str:
    with urllib.request.urlopen(gateway.url + "/metrics") as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_the_real_client_speaks() -> None:
    port = free_port()
    with GatewayProcess(wyoming=str(port)) as gateway:
        result = drive(gateway, "wyoming", "wyoming_real.py", str(port))
        assert result["info"] == {"voices": [["heart", ["en-US"], True]], "streaming": True, "others": 0}
        assert result["pong"] == "hello"
        assert result["whole"]["kinds"] == WHOLE
        assert result["whole"]["rate"] == RATE
        assert 4.0 < audible(result["whole"]["audio"], rate=RATE) < 8.0
        assert result["pieces"]["kinds"] == PIECES
        assert 4.0 < audible(result["pieces"]["audio"], rate=RATE) < 8.0
        for name, kinds in (("unspeakable", WHOLE), ("unspeakable_pieces", PIECES)):
            assert result[name]["kinds"] == kinds
            silence = base64.b64decode(result[name]["audio"])
            assert 0.02 <= len(silence) / 2 / RATE <= 0.06
            assert not any(silence)
        assert result["again"]["kinds"] == WHOLE
        assert 0.5 < audible(result["again"]["audio"], rate=RATE) < 2.0
        assert result["nobody"]["kinds"] == ["error", ""]
        assert result["nobody"]["error"][0] == "unknown_voice"
        # The last client dropped while 100 sentences were spoken.
        deadline = time.monotonic() + 10
        while 'outcome="cancelled"' not in (text := metrics(gateway)):
            assert time.monotonic() < deadline, text
        assert 'voxwire_active_contexts{dialect="wyoming"} 0.0' in text
        print({name: result[name]["first_ms"] for name in ("whole", "pieces", "again")})
        assert gateway.stop() == 0


@pytest.mark.slow
def test_the_package_would_have_written_the_same_bytes() -> None:
    with GatewayProcess(wyoming="127.0.0.1:0") as gateway:
        port = gateway.told(r"and at tcp://127\.0\.0\.1:(\d+)\n")
        raw = drive(gateway, "wyoming", "wyoming_real.py", port)["raw"]
    assert raw["kinds"] == ["info", "pong", *WHOLE, *PIECES, "error"]
    assert raw["same"]
    assert raw["last"] == "error"
    assert raw["count"] > len(raw["kinds"])
