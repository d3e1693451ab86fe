"""The unmodified ``deepgram-sdk`` for Python against a gateway; run in the ``sdk`` environment.

Argument: gateway address. Prints one JSON object with a part per scenario.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Clear, SpeakV1Close, SpeakV1Flush, SpeakV1Text

TURN = ["Hello there, this is the first delta. ", "Your order number is 4215 ", "and it ships on Thursday."]
MODEL = "aura-2-thalia-en"


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def until(socket: Any, kind: str) -> dict[str, Any]:
    audio = b""
    kinds: list[str] = []
    async for message in socket:
        if isinstance(message, bytes):
            audio += message
            continue
        kinds.append(message.type)
        if message.type == kind:
            break
    return {"audio": packed(audio), "kinds": kinds}


async def main(url: str) -> None:
    client = AsyncDeepgramClient(
        api_key="any",
        environment=DeepgramClientEnvironment(
            base=url, production=url.replace("http", "ws", 1), agent=url, agent_rest=url
        ),
    )
    out: dict[str, Any] = {}
    async with client.speak.v1.connect(model=MODEL, encoding="linear16", sample_rate="24000") as socket:
        for text in TURN:
            await socket.send_text(SpeakV1Text(text=text))
        await socket.send_flush(SpeakV1Flush(type="Flush"))
        out["turn"] = await until(socket, "Flushed")
        await socket.send_text(SpeakV1Text(text="A long answer that will be cut. " * 20))
        await socket.send_flush(SpeakV1Flush(type="Flush"))
        await asyncio.sleep(0.5)
        await socket.send_clear(SpeakV1Clear(type="Clear"))
        out["cleared"] = await until(socket, "Cleared")
        await socket.send_text(SpeakV1Text(text="Second answer."))
        await socket.send_flush(SpeakV1Flush(type="Flush"))
        out["second"] = await until(socket, "Flushed")
        await socket.send_close(SpeakV1Close(type="Close"))
    file = client.speak.v1.audio.generate(
        text="".join(TURN), model=MODEL, encoding="linear16", sample_rate=24000
    )
    out["wav"] = packed(b"".join([piece async for piece in file]))
    file = client.speak.v1.audio.generate(text="".join(TURN), model=MODEL)
    out["mp3"] = packed(b"".join([piece async for piece in file]))
    print(json.dumps(out))


asyncio.run(main(sys.argv[1]))
