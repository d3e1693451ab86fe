"""The engine with its real workers: the contract of all engines, and a gateway that speaks with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from telephony.dsp.level import rms_dbfs
from telephony.dsp.pcm import decode
from tests.peers.gateway import Running
from tests.peers.native import native_client
from tests.peers.piper_engine import RATE, VOICE, bundled, python
from tests.peers.process import GatewayProcess
from tests.tts_core.contract import EngineContract, samples
from tests.tts_core.piper.conftest import add_voice
from tts_core.engine import SpeechRequest
from tts_core.errors import SettingsError
from tts_core.piper import PiperEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestContract(EngineContract):
    repeats = False


async def test_it_says_which_voices_there_are(engine: PiperEngine) -> None:
    info = engine.info
    assert (info.name, info.native_rate, info.languages) == ("piper", RATE, ("en",))
    assert [v.id for v in info.voices] == [VOICE]


@pytest.mark.slow
async def test_voices_of_another_rate_are_brought_to_one(tmp_path: Path) -> None:
    add_voice(
        tmp_path,
        "de_DE-other-low",
        language={"code": "de_DE"},
        audio={"sample_rate": 16000},
        espeak={"voice": "de"},
    )
    add_voice(tmp_path, "en_US-joe-medium")
    made = PiperEngine(tmp_path, python=python(), workers=1, loaded=1)
    assert made.info.native_rate == RATE
    assert made.info.languages == ("de", "en")
    await made.start()
    try:
        lengths = []
        for voice in ("de_DE-other-low", "en_US-joe-medium"):
            request = SpeechRequest("r", "Hello, this is a test.", voice, seed=1)
            lengths.append(len(samples([c async for c in made.synthesize(request)])))
    finally:
        await made.close()
    # The same network, its samples taken for those of 16 kHz: slower, but for what German makes of the text.
    assert 1.1 < lengths[0] / lengths[1] < 2.0


async def test_a_python_that_is_none_is_told() -> None:
    with pytest.raises(SettingsError, match="VOXWIRE_PIPER_PYTHON"):
        PiperEngine(bundled(), python=Path("no-such-python"))


@contextlib.asynccontextmanager
async def piper_gateway(voices: Path) -> AsyncIterator[GatewayProcess]:
    made = GatewayProcess(engine="piper", piper_voices=str(voices), piper_python=str(python()), workers="2")
    gateway = await asyncio.to_thread(made.__enter__)
    try:
        yield gateway
    finally:
        await asyncio.to_thread(made.__exit__, None, None, None)


async def heard(gateway: GatewayProcess, text: str, **options: Any) -> tuple[np.ndarray, str]:
    """What a context of a native client gets: its samples and words."""
    async with native_client(cast("Running", gateway)) as client:
        await client.send("open", "a", text=text, end=True, **options)
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done", turn.end
        assert turn.opened["format"]["encoding"] == "pcm_s16le"
        return decode(bytes(turn.audio), "pcm_s16le"), turn.text


@pytest.mark.slow
async def test_a_gateway_speaks_with_it_and_cancels_exactly() -> None:
    text = "Hello there, this is Piper. Your order number is 4215, and it ships on Thursday."
    async with piper_gateway(bundled()) as gateway:
        pcm, words = await heard(gateway, text, format={"sample_rate": RATE})
        assert words == text
        assert 4.0 < len(pcm) / RATE < 8.0
        assert -35 < rms_dbfs(pcm) < -10
        async with native_client(cast("Running", gateway)) as client:
            await client.send("open", "b", text="This goes on and on for a while. " * 50, end=True)
            await client.audio("b", 1.0)
            await client.send("cancel", "b")
            (turn,) = await client.ended("b")
            assert turn.end is not None
            assert turn.end["type"] == "cancelled"
            assert (
                turn.end["last_sample"] == turn.samples
            )  # and none after it, or the client would have failed
            await client.send("open", "c", text="Sure.", end=True)
            await client.ended("c")
            assert await client.settled() == []
        assert gateway.stop() == 0


@pytest.mark.slow
async def test_a_language_that_we_do_not_normalise_is_left_to_piper(tmp_path: Path) -> None:
    add_voice(tmp_path, "de_DE-other-medium", language={"code": "de_DE"}, espeak={"voice": "de"})
    async with piper_gateway(tmp_path) as gateway:
        pcm, words = await heard(gateway, "Die Nummer ist 4215.", seed=1)
        assert words == "Die Nummer ist 4215."
        spelled, _ = await heard(gateway, "Die Nummer ist viertausendzweihundertfünfzehn.", seed=1)
        english, _ = await heard(gateway, "Die Nummer ist four thousand two hundred and fifteen.", seed=1)
    assert abs(len(pcm) - len(spelled)) < 0.1 * len(spelled)
    assert len(pcm) != len(english)
