"""The unmodified ``deepgram-sdk`` for Python on the turn-based socket; run in the ``sdk`` environment.

Argument: gateway address. Prints one JSON object with a part per scenario. Each message must be of the type
that the SDK has for it, with all its fields.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from deepgram import AsyncDeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v2 import types
from deepgram.speak.v2.types import (
    SpeakV2Configure,
    SpeakV2Interrupt,
    SpeakV2InterruptPlaybackOffset,
    SpeakV2Speak,
)

TURN = ["Hello there, this is the first delta. ", "Your order number is 4215 ", "and it ships on Thursday."]
LONG = "A long answer that will be cut by its listener. " * 20
MODEL = "flux-alexis-en"
DEADLINE_S = 30.0


def strict(message: Any) -> dict[str, Any]:
    """The message's fields; they must be what its type demands, which the SDK itself does not look at."""
    kind = getattr(types, f"SpeakV2{message.type}")
    fields: dict[str, Any] = message.dict()
    assert isinstance(message, kind), message
    kind.model_validate(fields)
    assert not message.__pydantic_extra__ or set(message.__pydantic_extra__) == {"reason"}, message
    return fields


async def until(socket: Any, kind: str, audio_bytes: int = 0) -> dict[str, Any]:
    """What comes up to a message of this type, or up to so much audio."""
    audio = b""
    kinds: list[str] = []
    fields: dict[str, Any] = {}
    while True:
        try:
            message = await asyncio.wait_for(socket.recv(), DEADLINE_S)
        except TimeoutError:
            sys.exit(f"no {kind} after {kinds} and {len(audio)} bytes")
        if isinstance(message, bytes):
            audio += message
            if kind == "audio" and len(audio) >= audio_bytes:
                break
            continue
        fields = strict(message)
        kinds.append(message.type)
        if message.type == kind:
            break
        if message.type == "Error":
            sys.exit(f"no {kind} but {fields}")
    return {"audio": base64.b64encode(audio).decode(), "bytes": len(audio), "kinds": kinds, "last": fields}


async def main(url: str) -> None:
    client = AsyncDeepgramClient(
        api_key="any",
        environment=DeepgramClientEnvironment(
            base=url, production=url.replace("http", "ws", 1), agent=url, agent_rest=url
        ),
    )
    out: dict[str, Any] = {}
    async with client.speak.v2.connect(
        model=MODEL, encoding="linear16", sample_rate="24000", speed=1.0, mip_opt_out=True, tag="test"
    ) as socket:
        for text in TURN:
            await socket.send_speak(SpeakV2Speak(text=text))
        await socket.send_flush()
        out["turn"] = await until(socket, "SpeechMetadata")
        base = out["turn"]["last"]["audio_duration_ms"]
        await asyncio.sleep(0.2)

        await socket.send_speak(SpeakV2Speak(text=LONG))
        await socket.send_flush()
        part = await until(socket, "audio", 2 * 48000)
        offset = SpeakV2InterruptPlaybackOffset(type="time_ms", value=base + 1500)
        await socket.send_interrupt(SpeakV2Interrupt(playback_offset=offset))
        out["interrupted"] = await until(socket, "SpeechInterrupted")
        out["interrupted"]["bytes"] += part["bytes"]
        out["base"] = base

        await socket.send_configure(SpeakV2Configure(speed=1.25))
        out["configured"] = await until(socket, "ConfigureSuccess")
        await socket.send_configure(SpeakV2Configure(speed=2.0))
        out["refused"] = await until(socket, "ConfigureFailure")
        await socket.send_speak(SpeakV2Speak(text="Second answer."))
        await socket.send_interrupt(SpeakV2Interrupt(playback_offset=offset))
        await socket.send_flush()
        out["second"] = await until(socket, "SpeechMetadata")

        await socket._send({"type": "Clear"})
        out["error"] = await until(socket, "Error")
        await socket.send_speak(SpeakV2Speak(text="Third answer."))
        await socket.send_interrupt()
        out["plain"] = await until(socket, "SpeechInterrupted")
        await socket.send_speak(SpeakV2Speak(text="Last answer."))
        await socket.send_close()
        out["closed"] = await until(socket, "SessionMetadata")
        async with asyncio.timeout(DEADLINE_S):
            async for message in socket:
                raise AssertionError(message)
    try:
        async with client.speak.v2.connect(model=MODEL, expressivity=7):
            pass
    except ApiError as error:
        out["handshake"] = error.status_code
    file = client.speak.v2.audio.generate(
        text="".join(TURN), model=MODEL, encoding="linear16", container="wav"
    )
    out["wav"] = base64.b64encode(b"".join([piece async for piece in file])).decode()
    print(json.dumps(out))


asyncio.run(main(sys.argv[1]))
