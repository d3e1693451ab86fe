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
LISTENERS = 2
"""Processes that listen at once, one thread each."""

DEADLINE_S = 1200.0
MULAW = AudioFormat(Encoding.MULAW, 8000)
WINDOW = 28 * MULAW.rate
"""Whisper hears 30 s at a time, and the script adds a little silence."""

GAP = b"\xff" * (MULAW.rate * 7 // 10)


@dataclass(frozen=True)
class Heard:
    """Transcripts by clip, as written and normalised, and the texts given along, normalised the same way."""

    heard: Mapping[str, str]
    normal: Mapping[str, str]
    texts: Sequence[str]


def joined(clips: Sequence[bytes]) -> list[bytes]:
    """The clips in order, with 0.7 s of silence between them, in as few windows as they fit."""
    out: list[bytes] = []
    for clip in clips:
        if out and len(out[-1]) + len(GAP) + len(clip) <= WINDOW:
            out[-1] += GAP + clip
        else:
            out.append(clip)
    return out


async def listen(model: str, clips: Mapping[str, bytes], texts: Sequence[str] = ()) -> Heard:
    """Let ``model`` ("tiny.en" or "base") transcribe clips of 8 kHz mu-law, at most 28 s each."""
    for name, clip in clips.items():
        assert len(clip) <= WINDOW, f"{name} is too long for one window"
    names = list(clips)
    parts = [part for n in range(LISTENERS) if (part := names[n::LISTENERS])]
    answers = await asyncio.gather(
        *(
            _listen(model, {name: clips[name] for name in part}, texts if n == 0 else ())
            for n, part in enumerate(parts)
        )
    )
    heard = {name: text for answer in answers for name, text in answer.heard.items()}
    normal = {name: text for answer in answers for name, text in answer.normal.items()}
    return Heard(
        {name: heard[name] for name in names},
        {name: normal[name] for name in names},
        answers[0].texts if answers else (),
    )


async def _listen(model: str, clips: Mapping[str, bytes], texts: Sequence[str]) -> Heard:
    packed = {
        name: base64.b64encode(header(MULAW, len(clip)) + clip + b"\0" * (len(clip) % 2)).decode()
        for name, clip in clips.items()
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
