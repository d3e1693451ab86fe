"""LiveKit's unmodified plugins against a gateway in this process, whose output is noted.

What a plugin does with one protocol alone is tried beside the other clients of that protocol.
"""

from __future__ import annotations

import asyncio
import base64
import time

import pytest

from tests.peers.clients import left, listen
from tests.peers.gateway import Start
from tests.peers.made import Made

SILENCE_S = 360.0

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plugin", ["cartesia", "deepgram", "deepgram-flux", "elevenlabs"])
async def test_livekit_reuses_its_socket_after_six_minutes_r10(
    start_gateway: Start, made: Made, plugin: str
) -> None:
    ahead = 0.0

    def clock() -> float:
        return time.monotonic() + ahead

    # The gateway's timers run on the loop's time, which jumps with its clock, and for the test's rest.
    asyncio.get_running_loop().time = clock  # type: ignore[method-assign]
    gateway = await start_gateway(voice_aliases={"heart": "tone"}, clock=clock)

    def rest() -> None:
        nonlocal ahead
        assert gateway.services.sockets == made.sockets
        ahead += SILENCE_S

    result = await listen(gateway, "livekit", "livekit_tts.py", plugin, "reuse", rest=rest)
    assert ahead == SILENCE_S
    assert len(made.sockets) == 1
    assert made.errors == []
    for got, audio in zip(
        (base64.b64decode(result["first"]), result["audio"]), made.audio.values(), strict=True
    ):
        assert got[: len(audio)] == audio
        assert not any(got[len(audio) :])  # it fills its last frame with silence
    await left(gateway)
