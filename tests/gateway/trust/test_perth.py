"""Resemble's detector, the real one in its own environment, and what happens where it does not work (S35)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gateway.intake.clip import Clip, decode_clip
from gateway.trust.perth import WORKER, PerthCheck
from tests.envs import ROOT, ensure
from tests.gateway.trust.test_check import RECORD
from tests.peers.channels import CHANNELS
from tests.peers.clips import clip, wav
from tests.peers.embedded import RATE, speech
from tests.peers.gateway import Start
from tts_core.engine import Samples
from tts_core.errors import EngineError, EngineTimeout, SettingsError

DEADLINE_S = 120.0


def resembled(pcm: Samples) -> Samples:
    """The same speech with Resemble's mark."""
    done = subprocess.run(
        [str(ensure("perth")), str(ROOT / "tests/peers/perth_mark.py"), str(WORKER)],
        input=pcm.tobytes(), capture_output=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    return np.frombuffer(done.stdout, "<f4").astype(np.float32)


async def heard(pcm: Samples, name: str = "mu-law") -> Clip:
    return await decode_clip(bytearray(wav(*CHANNELS[name](pcm, RATE))))


def program(folder: Path, script: str) -> str:
    """What passes for a Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
async def check() -> AsyncIterator[PerthCheck]:
    made = PerthCheck(str(ensure("perth")), start_s=DEADLINE_S, look_s=DEADLINE_S)
    await made.start()
    yield made
    await made.close()


@pytest.mark.slow
async def test_resembles_mark_is_refused_and_plain_speech_not(check: PerthCheck) -> None:
    pcm = speech(6)[0]
    assert await check.look(await heard(pcm), RECORD) == []
    marked = resembled(pcm)
    for name in ("mu-law", "MP3 32k"):
        recording = await heard(marked, name)
        (found,) = await check.look(recording, RECORD)
        assert (found.code, found.severity) == ("synthetic", "refuse")
        assert recording.pcm.any()
    (found,) = await check.look(await heard(marked), msgspec.structs.replace(RECORD, how="licensed"))
    assert (found.code, found.severity) == ("synthetic", "warn")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "its process ended"),
        ("echo hello", "its process ended"),
        ('echo \'{"error": "torch is older than 2.6"}\'', "torch is older"),
        ("echo 42", "another program"),
        ("exec sleep 60", "too long"),
    ],
)
async def test_what_is_no_detector_does_not_start(script: str, why: str, tmp_path: Path) -> None:
    check = PerthCheck(program(tmp_path, script), start_s=0.5 if "sleep" in script else 30.0)
    with pytest.raises(SettingsError, match=why):
        await check.start()


async def test_a_python_that_is_not_there_or_lacks_the_package() -> None:
    with pytest.raises(SettingsError, match="no such Python"):
        await PerthCheck("/no/such/python").start()
    with pytest.raises(SettingsError, match="cannot be imported"):
        await PerthCheck(sys.executable).start()


async def test_a_gateway_that_is_to_have_it_does_not_start_without(start_gateway: Start) -> None:
    with pytest.raises(SettingsError, match="reference_perth"):
        await start_gateway(reference_perth="on")


async def test_one_that_fails_later_refuses_and_is_started_anew(tmp_path: Path) -> None:
    recording = await decode_clip(clip())
    hanging = PerthCheck(program(tmp_path, "echo '\"ready\"'; exec sleep 60"), look_s=0.2)
    await hanging.start()
    with pytest.raises(EngineTimeout):
        await hanging.look(recording, RECORD)
    with pytest.raises(EngineTimeout):  # a new one, which hangs as well
        await hanging.look(recording, RECORD)
    await hanging.close()
    dying = PerthCheck(program(tmp_path, "echo '\"ready\"'"))
    await dying.start()
    for _ in range(2):
        with pytest.raises(EngineError):
            await dying.look(recording, RECORD)
    strange = PerthCheck(program(tmp_path, "echo '\"ready\"'; echo '\"yes\"'; exec cat >/dev/null"))
    await strange.start()
    with pytest.raises(EngineError):
        await strange.look(recording, RECORD)
    gone = PerthCheck(program(tmp_path, "exit 1"))
    with pytest.raises(EngineError):
        await gone.look(recording, RECORD)


async def test_cancelled_it_ends_the_process_that_holds_the_clip(tmp_path: Path) -> None:
    check = PerthCheck(program(tmp_path, "echo '\"ready\"'; exec cat >/dev/null"))
    await check.start()
    process = check._process
    assert process is not None
    looking = asyncio.ensure_future(check.look(await decode_clip(clip()), RECORD))
    for _ in range(3):
        await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert process.returncode is not None
