"""LiveKit's unmodified ElevenLabs plugin against a gateway; run in the ``livekit`` environment.

Arguments: gateway address, mode (auto, schedule, interrupt, reuse, chunked), voice. ``reuse`` lets the pooled
socket rest between two turns while the gateway's clock is six minutes further on. Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import elevenlabs

TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = (
    "A long first answer that the caller will interrupt before it ends. "
    "And another sentence that follows it. "
)


async def speak(stream: Any, texts: list[str]) -> dict[str, Any]:
    async def feed() -> None:
        for text in texts:
            stream.push_text(text)
            await asyncio.sleep(0.05)
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


async def interrupted(tts: Any) -> float:
    """Seconds heard of a long answer that is cut after 0.7 s."""
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
    return heard


async def main(url: str, mode: str, voice: str) -> None:
    options: dict[str, Any] = {}
    if mode == "schedule":
        options = {"auto_mode": False, "chunk_length_schedule": [50, 80, 120]}
    async with aiohttp.ClientSession() as http:
        tts = elevenlabs.TTS(
            voice_id=voice,
            model="gepard-1.0",
            api_key="any",
            base_url=url + "/v1",
            encoding="pcm_22050",
            http_session=http,
            **options,
        )
        result: dict[str, Any] = {}
        if mode == "interrupt":
            heard = await interrupted(tts)
            await asyncio.sleep(0.3)
            result = await speak(tts.stream(), ["Second answer."])
            result["heard_s"] = heard
        elif mode == "reuse":
            first = await speak(tts.stream(), ["First answer."])
            print("rest", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            result = await speak(tts.stream(), ["Second answer."])
            result["first"] = first["audio"]
        elif mode == "chunked":
            audio = b""
            async for event in tts.synthesize("".join(TURN)):
                audio += bytes(event.frame.data)
            result = {"audio": base64.b64encode(audio).decode(), "words": []}
            result["voices"] = [v.id for v in await tts.list_voices()]
        else:
            result = await speak(tts.stream(), TURN)
        await tts.aclose()
    print(json.dumps(result))


asyncio.run(main(*sys.argv[1:4]))
