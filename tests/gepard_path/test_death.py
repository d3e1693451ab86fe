"""The model dies in the middle of an utterance: whoever listens is told, and it comes back by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from tests.gepard_path.conftest import ModelGateway
from tests.gepard_path.oracle import LONG, SHORT, spoken
from tests.peers.cartesia import cartesia_client
from tests.peers.gateway import Running

VOICE = {"mode": "id", "id": "default"}
NATIVE = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 22050}
PROCESSES = {"gepard-torch": "torch_turns", "gepard": "plugin.stepper"}
BACK_S = 240.0


async def ready(gateway: ModelGateway) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.get(gateway.url + "/readyz") as response:
        return response.status, await response.json()


async def test_a_killed_model_fails_its_contexts_and_returns(gateway: ModelGateway, model: Path) -> None:
    _, state = await ready(gateway)
    word = PROCESSES[state["engine"]["name"]]
    before = {pid for pid, line in gateway.children().items() if word in line}
    assert before, gateway.children()
    async with cartesia_client(cast("Running", gateway)) as peer:
        await peer.say("c", f"{LONG} " * 30, more=False, voice=VOICE, output_format=NATIVE)
        await peer.audio("c", 0.1)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            error = await peer.until("error", "c")
        assert error["done"] is True
        assert error["error_code"] == "engine_crashed"
        assert (await ready(gateway))[0] == 503
        async with asyncio.timeout(BACK_S):
            while (await ready(gateway))[0] != 200:
                await asyncio.sleep(0.05)
        await peer.say("d", SHORT, more=False, voice=VOICE, output_format=NATIVE)
        (turn,) = await peer.ended("d")
        assert len(turn.audio) == 2 * len(spoken(model, SHORT))
    after = {pid for pid, line in gateway.children().items() if word in line}
    assert after
    assert not after & before


@pytest.mark.parametrize("word", ["nanocodec.worker"])
async def test_a_killed_codec_fails_its_contexts_and_returns(on_torch: ModelGateway, word: str) -> None:
    before = {pid for pid, line in on_torch.children().items() if word in line}
    assert before, on_torch.children()
    async with cartesia_client(cast("Running", on_torch)) as peer:
        await peer.say("c", f"{LONG} " * 30, more=False, voice=VOICE, output_format=NATIVE)
        await peer.audio("c", 0.1)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            error = await peer.until("error", "c")
        assert error["error_code"] in {"engine_crashed", "engine_error"}
        async with asyncio.timeout(60):
            while (await ready(on_torch))[0] != 200:
                await asyncio.sleep(0.05)
        await peer.say("d", SHORT, more=False, voice=VOICE, output_format=NATIVE)
        await peer.ended("d")
        assert peer.transcript.turns["d"].audio
