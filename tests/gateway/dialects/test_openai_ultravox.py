"""Ultravox's generic external voice at our speech endpoint, by its documentation: no live call was made.

Sources: docs.ultravox.ai, "Bring Your Own (Key)" and the schema ``ultravox.v1.GenericVoice``. A user writes
address, headers and a body in which ``{text}`` stands for the text; Ultravox posts it as JSON, a piece of
text at a time, and reads WAV or raw PCM as it streams. The response's type is what ``responseMimeType`` says
(``audio/l16`` for raw samples), or else its Content-Type, and its rate is ``responseSampleRate``.
"""

from __future__ import annotations

import io
import json
import re
import wave
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from telephony.dsp.pcm import encode
from tests.peers.gateway import Running, on_gateway

TEXTS = ["Your order ships on Thursday.", 'He said "five\\six"\nto the na\u00efve waiter.\n']


def voice(gateway: Running, response_format: str, **more: str) -> dict[str, Any]:
    """What a user writes under ``externalVoice.generic``."""
    return {
        "url": f"{gateway.url}/v1/audio/speech",
        "headers": {"Authorization": "Bearer any", "Content-Type": "application/json"},
        "body": {
            "model": "gepard-1.0",
            "voice": "alloy",
            "input": "{text}",
            "response_format": response_format,
        },
        "responseSampleRate": 24000,
        "responseWordsPerMinute": 150,
        **more,
    }


async def ask(generic: dict[str, Any], text: str) -> tuple[str, int, bytes]:
    """What Ultravox hears of a text: the Content-Type, and by its own reading the rate (Hz) and samples."""
    placed = json.dumps(generic["body"]).replace("{text}", json.dumps(text)[1:-1])
    async with (
        aiohttp.ClientSession(headers=generic["headers"]) as http,
        http.post(generic["url"], data=placed) as response,
    ):
        assert response.status == 200
        stated, data = response.headers["Content-Type"], await response.read()
    if generic.get("responseMimeType", stated) == "audio/l16":
        return stated, generic["responseSampleRate"], data
    assert stated == "audio/wav"
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getcomptype()) == (1, 2, "NONE")
        assert file.getframerate() == generic["responseSampleRate"]
        return stated, file.getframerate(), file.readframes(len(data))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("response_format", "more", "kind"),
    [("wav", {}, "audio/wav"), ("pcm", {"responseMimeType": "audio/l16"}, "audio/pcm")],
)
def test_a_generic_voice_hears_what_the_engine_made(
    tmp_path: Path, response_format: str, more: dict[str, str], kind: str, text: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        stated, rate, data = await ask(voice(gateway, response_format, **more), text)
        assert stated == kind
        assert rate == gateway.engine.info.native_rate == 24000  # hence nothing is resampled
        (request,) = gateway.engine.requests
        assert re.findall(r"\w+", request.text) == re.findall(r"\w+", text)
        made = [encode(chunk.pcm, "pcm_s16le") async for chunk in gateway.engine.synthesize(request)]
        assert data == b"".join(made)
        assert gateway.idle

    main(tmp_path)
