"""LiveKit's unmodified OpenAI plugin against a gateway; run in the ``livekit`` environment.

Arguments: gateway address, mode (turn, mp3, interrupt). Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from livekit.plugins import openai

TEXT = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
LONG = "A long first answer that the caller will interrupt before it ends. "


async def speak(tts: Any, text: str) -> str:
    audio = b""
    async for event in tts.synthesize(text):
        audio += bytes(event.frame.data)
    return base64.b64encode(audio).decode()


async def main(url: str, mode: str) -> None:
    tts = openai.TTS(
        model="gpt-4o-mini-tts",
        voice="alloy",
        base_url=url + "/v1",
        api_key="any",
        response_format="mp3" if mode == "mp3" else "pcm",
    )
    result: dict[str, Any] = {}
    if mode == "interrupt":
        stream = tts.synthesize(LONG * 20)

        async def listen() -> None:
            async for _ in stream:
                result["heard"] = True

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.6)
        listening.cancel()
        await stream.aclose()
        result["audio"] = await speak(tts, "Second answer.")
    else:
        result["audio"] = await speak(tts, TEXT)
    await tts.aclose()
    print(json.dumps(result))


asyncio.run(main(sys.argv[1], sys.argv[2]))
