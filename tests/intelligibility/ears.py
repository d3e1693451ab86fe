"""Plays what a call gave to speech recognition in its own environment (``tests/peers/asr.py``)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.wav import header
from sessions.events import AudioFormat, Encoding
from tests import envs

SCRIPT = Path(__file__).resolve().parents[1] / "peers" / "asr.py"
DEADLINE_S = 1500.0
MULAW = AudioFormat(Encoding.MULAW, 8000)


@dataclass(frozen=True)
class Heard:
    """Transcripts by clip, as written and normalised, and the texts given along, normalised the same way."""

    heard: Mapping[str, str]
    normal: Mapping[str, str]
    texts: Sequence[str]


async def listen(model: str, clips: Mapping[str, bytes], texts: Sequence[str] = ()) -> Heard:
    """Let ``model`` ("tiny.en" or "base") transcribe clips of 8 kHz mu-law, at most 28 s each."""
    for name, clip in clips.items():
        assert len(clip) <= 28 * MULAW.rate, f"{name} is too long for one window"
    packed = {
        n: base64.b64encode(header(MULAW, len(c)) + c + b"\0" * (len(c) % 2)).decode()
        for n, c in clips.items()
    }
    child = await asyncio.create_subprocess_exec(
        str(envs.ensure("asr")),
        str(SCRIPT),
        model,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        request = json.dumps({"clips": packed, "texts": list(texts)}).encode()
        async with asyncio.timeout(DEADLINE_S):
            out, err = await child.communicate(request)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()[-3000:]
    return Heard(**json.loads(out.splitlines()[-1]))
