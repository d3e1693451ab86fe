"""Clients of the Cartesia protocol on a gateway with GEPARD: what is heard is what the model makes."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any, cast

import aiohttp
import numpy as np
import pytest

from sessions.events import AudioFormat, Encoding
from sessions.output import OutputStage
from telephony.dsp.pcm import decode
from tests import envs
from tests.gepard_path.conftest import ModelGateway
from tests.gepard_path.oracle import LONG, SHORT, close, spoken
from tests.peers.cartesia import CartesiaClient, cartesia_client
from tests.peers.gateway import Running
from tts_core.engine import Samples
from tts_core.nanocodec import fsq

VOICE = {"mode": "id", "id": "default"}
NATIVE = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 22050}
PHONE = {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}
PEERS = Path(__file__).resolve().parents[1] / "peers"


def client(gateway: ModelGateway) -> Any:
    return cartesia_client(cast("Running", gateway))


def encoded(pcm: Samples, encoding: Encoding, rate: int) -> bytes:
    stage = OutputStage(fsq.SAMPLE_RATE, AudioFormat(encoding, rate))
    return b"".join(data for data, _ in [*stage.push(pcm), *stage.finish()])


async def said(peer: CartesiaClient, text: str, fmt: dict[str, Any], context: str = "c") -> Any:
    await peer.say(context, text, more=False, voice=VOICE, output_format=fmt, add_timestamps=True)
    (turn,) = await peer.ended(context)
    assert not peer.transcript.errors
    assert turn.end is not None
    assert turn.end["type"] == "done"
    return turn


@pytest.mark.parametrize("text", [SHORT, LONG])
async def test_every_frame_is_heard_at_the_models_own_rate(
    gateway: ModelGateway, model: Path, text: str
) -> None:
    async with client(gateway) as peer:
        turn = await said(peer, text, NATIVE)
    wanted = spoken(model, text)
    frames = len(wanted) // fsq.SAMPLES_PER_FRAME
    assert frames > 20
    assert len(turn.audio) == 2 * frames * fsq.SAMPLES_PER_FRAME
    assert close(bytes(turn.audio), "pcm_s16le", encoded(wanted, Encoding.PCM_S16LE, 22050))
    assert turn.text == text


@pytest.mark.parametrize("text", [SHORT, LONG])
async def test_a_phone_gets_160_samples_for_441(gateway: ModelGateway, model: Path, text: str) -> None:
    async with client(gateway) as peer:
        turn = await said(peer, text, PHONE)
    wanted = spoken(model, text)
    assert len(turn.audio) == -(-len(wanted) * 160 // 441)
    assert close(bytes(turn.audio), "mulaw", encoded(wanted, Encoding.MULAW, 8000))


async def test_the_next_sentence_follows_without_its_listener_running_dry(
    gateway: ModelGateway, model: Path
) -> None:
    """Two segments, in order, with the pause between them that the gateway makes."""
    async with client(gateway) as peer:
        turn = await said(peer, f"{LONG} {SHORT}", NATIVE)
    heard = decode(bytes(turn.audio), "pcm_s16le")
    first, second = spoken(model, LONG), spoken(model, SHORT)
    assert np.abs(heard[: len(first)] - first).max() < 2e-4
    assert np.abs(heard[-len(second) :] - second).max() < 2e-4
    assert 0.1 < (len(heard) - len(first) - len(second)) / 22050 < 0.3
    assert turn.text == f"{LONG} {SHORT}"


async def test_nothing_to_say_is_a_short_silence(gateway: ModelGateway) -> None:
    async with client(gateway) as peer:
        turn = await said(peer, "...", NATIVE)
    assert 0.01 < turn.seconds < 0.1
    assert not np.any(np.frombuffer(bytes(turn.audio), np.int16))


async def test_a_cancel_frees_the_models_slot(gateway: ModelGateway) -> None:
    async with client(gateway) as peer, aiohttp.ClientSession() as http:
        await peer.say("c", f"{LONG} " * 12, more=False, voice=VOICE, output_format=NATIVE)
        await peer.audio("c", 0.2)
        await peer.cancel("c")
        await peer.ended("c")
        async with asyncio.timeout(5):
            while (await (await http.get(gateway.url + "/readyz")).json())["engine"]["free"] < 8:
                await asyncio.sleep(0.01)


async def test_what_the_engine_counts_is_told(gateway: ModelGateway) -> None:
    async with client(gateway) as peer, aiohttp.ClientSession() as http:
        await said(peer, SHORT, NATIVE)
        text = await (await http.get(gateway.url + "/metrics")).text()
        ready = await (await http.get(gateway.url + "/readyz")).json()
        voices = await (await http.get(gateway.url + "/voices", headers={"X-API-Key": "any"})).json()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(figures['voxwire_engine_events_total{event="requests"}']) >= 1
    assert float(figures['voxwire_engine_events_total{event="restarts"}']) >= 0
    assert 0 <= float(figures["voxwire_engine_codec_duty"]) <= 1
    assert float(figures["voxwire_engine_alive"]) == 1
    assert ready["engine"]["name"].startswith("gepard")
    assert {voice["id"] for voice in voices["data"]} >= {"default", "plain"}


@pytest.mark.slow
def test_the_official_sdk_speaks(gateway: ModelGateway) -> None:
    done = subprocess.run(
        [str(envs.ensure("sdk")), "-P", str(PEERS / "cartesia_sdk.py"), gateway.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    for part in ("push", "flush", "after_cancel"):
        assert len(base64.b64decode(result[part]["audio"])) > 8000
        assert result[part]["kinds"][-1] == "done"
    words = " ".join(word for word, _, _ in result["flush"]["words"])
    assert (
        words == "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
    )
    assert "default" in result["voices"]
