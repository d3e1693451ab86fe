"""With the real recogniser on real speech."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from gateway.intake.clip import decode_clip
from gateway.trust import recogniser as module
from gateway.trust.reading import wrong
from gateway.trust.recogniser import Recogniser
from tests.peers.ears import python, read_by, whisper
from tts_core.errors import Busy, EngineError, SettingsError

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TEXT = "The second train to the coast leaves at nine."
SILENCE = np.zeros(22_050, np.float32)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ears() -> AsyncIterator[Recogniser]:
    """tiny.en, which is enough here."""
    made = Recogniser(whisper("tiny.en"), python=python(), deadline=120)
    await made.start()
    yield made
    await made.close()
    assert made._next is None


def child(ears: Recogniser) -> module._Child:
    assert ears._next is not None
    return ears._next.result()


def proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def test_it_writes_down_what_is_said_and_keeps_none_of_it(ears: Recogniser) -> None:
    clip = await decode_clip(bytearray(read_by("heart", TEXT)))
    heard = await ears.hear(clip.pcm, "en")
    assert wrong(TEXT, heard) == 0
    assert clip.pcm.any()
    assert os.fstat(child(ears).memory).st_size == 0
    first = child(ears).process.pid
    assert len(await ears.hear(SILENCE, "en")) < 100
    assert child(ears).process.pid == first
    assert b"train" not in proc(first, "cmdline")
    environment = proc(first, "environ")
    assert {part.split(b"=")[0] for part in environment.split(b"\0") if part} <= {
        b"HF_HUB_OFFLINE",
        b"OMP_NUM_THREADS",
        b"LC_CTYPE",
    }


async def test_one_that_was_killed_is_replaced(ears: Recogniser) -> None:
    old = child(ears)
    os.kill(old.process.pid, signal.SIGKILL)
    await old.process.wait()
    await ears.hear(SILENCE, "en")
    assert old.ended
    assert child(ears).process.pid != old.process.pid
    asking = asyncio.create_task(ears.hear(SILENCE, "en"))
    await asyncio.sleep(0)
    os.kill(child(ears).process.pid, signal.SIGKILL)  # in the middle
    with pytest.raises(EngineError) as error:
        await asking
    assert "listened" in error.value.message
    await ears.hear(SILENCE, "en")


async def test_who_goes_away_or_waits_too_long_leaves_nothing(ears: Recogniser) -> None:
    await ears.hear(SILENCE, "en")
    old = child(ears)
    asking = asyncio.create_task(ears.hear(np.tile(SILENCE, 20), "en"))
    while not os.fstat(old.memory).st_size:
        await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await old.process.wait()
    short = Recogniser(whisper("tiny.en"), python=python(), deadline=0.05)
    with pytest.raises(Busy):
        await short.hear(SILENCE, "en")
    await short.close()
    assert short._next is None


async def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no model\.bin"):
        await Recogniser(tmp_path).start()
    (tmp_path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(SettingsError, match=r"lacks faster-whisper.*VOXWIRE_CONSENT_PYTHON"):
        await Recogniser(tmp_path).start()
    with pytest.raises(SettingsError, match="is consent_asr a Whisper model"):
        await Recogniser(tmp_path, python=python()).start()
    with pytest.raises(SettingsError, match="does not start"):
        await Recogniser(tmp_path, python=tmp_path / "nowhere").start()
