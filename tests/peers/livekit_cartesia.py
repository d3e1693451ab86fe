"""LiveKit's unmodified Cartesia plugin against a gateway; run in the ``livekit`` environment.

Arguments: gateway address, mode (turn, interrupt, pause). Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import cartesia

TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = (
    "A long first answer that the caller will interrupt before it ends. "
    "And another sentence that follows it. "
)


async def speak(stream: Any, texts: list[str], pause_s: float = 0.05) -> dict[str, Any]:
    async def feed() -> None:
        for text in texts:
            stream.push_text(text)
            await asyncio.sleep(pause_s)
        stream.flush()
        stream.end_input()

    task = asyncio.create_task(feed())
    audio = b""
    words: list[list[Any]] = []
    async for event in stream:
        audio += bytes(event.frame.data)
        for word in event.frame.userdata.get("lk.timed_transcripts", []) or []:
            words.append([str(word), word.start_time, word.end_time])
    await task
    await stream.aclose()
    return {"audio": base64.b64encode(audio).decode(), "words": words}


async def main(url: str, mode: str) -> None:
    async with aiohttp.ClientSession() as http:
        tts = cartesia.TTS(
            voice="heart",
            model="gepard-1.0",
            api_key="any",
            base_url=url,
            sample_rate=22050,
            http_session=http,
        )
        result: dict[str, Any] = {}
        if mode == "turn":
            result = await speak(tts.stream(), TURN)
        elif mode == "pause":
            # A tool call in the middle of a turn: longer than LiveKit's 10 s without any message.
            result = await speak(
                tts.stream(), ["Let me look that up for you. ", "Here it is, thank you."], 11.0
            )
        else:
            stream = tts.stream()
            stream.push_text(LONG)
            heard = 0.0

            async def listen() -> None:
                nonlocal heard
                async for event in stream:
                    heard += event.frame.duration

            listening = asyncio.create_task(listen())
            await asyncio.sleep(0.7)
            listening.cancel()
            await stream.aclose()
            await asyncio.sleep(0.3)
            result = await speak(tts.stream(), ["Second answer."])
            result["heard_s"] = heard
        await tts.aclose()
    print(json.dumps(result))


asyncio.run(main(sys.argv[1], sys.argv[2]))
