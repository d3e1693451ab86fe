"""LiveKit's unmodified plugins against a gateway; run in the ``livekit`` environment.

Arguments: gateway address, plugin (cartesia, deepgram, deepgram-flux, elevenlabs, openai), mode (turn,
schedule, interrupt, pause, reuse, whole, mp3). In ``reuse`` the plugin's socket rests between two turns,
until a line can be read. Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import aiohttp
from livekit.plugins import cartesia, deepgram, elevenlabs, openai

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


def plugin(name: str, url: str, mode: str, http: aiohttp.ClientSession) -> Any:
    """The plugin as its users make it."""
    if name == "deepgram":
        return deepgram.TTS(
            model="aura-2-andromeda-en",
            api_key="any",
            base_url=url + "/v1/speak",
            sample_rate=24000,
            http_session=http,
        )
    if name == "deepgram-flux":
        return deepgram.TTSv2(
            model="flux-alexis-en", api_key="any", base_url=url + "/v2/speak", http_session=http
        )
    if name == "elevenlabs":
        options: dict[str, Any] = {"auto_mode": False, "chunk_length_schedule": [50, 80, 120]}
        return elevenlabs.TTS(
            voice_id="heart",
            model="gepard-1.0",
            api_key="any",
            base_url=url + "/v1",
            encoding="pcm_22050",
            http_session=http,
            **(options if mode == "schedule" else {}),
        )
    if name == "openai":
        return openai.TTS(
            model="gpt-4o-mini-tts",
            voice="alloy",
            base_url=url + "/v1",
            api_key="any",
            response_format="mp3" if mode == "mp3" else "pcm",
        )
    return cartesia.TTS(
        voice="heart", model="gepard-1.0", api_key="any", base_url=url, sample_rate=22050, http_session=http
    )


def begin(tts: Any, name: str) -> Any:
    """A long text under way; OpenAI's plugin has whole texts alone."""
    if name == "openai":
        return tts.synthesize(LONG * 10)
    stream = tts.stream()
    stream.push_text(LONG)
    return stream


async def whole(tts: Any, text: str) -> dict[str, Any]:
    audio = b""
    async for event in tts.synthesize(text):
        audio += bytes(event.frame.data)
    return {"audio": base64.b64encode(audio).decode(), "words": []}


async def say(tts: Any, name: str, texts: list[str], pause_s: float = 0.05) -> dict[str, Any]:
    if name == "openai":
        return await whole(tts, "".join(texts))
    return await speak(tts.stream(), texts, pause_s)


async def main(url: str, name: str, mode: str) -> None:
    async with aiohttp.ClientSession() as http:
        tts = plugin(name, url, mode, http)
        result: dict[str, Any] = {}
        if mode in {"turn", "schedule", "mp3"}:
            result = await say(tts, name, TURN)
        elif mode == "whole":
            result = await whole(tts, "".join(TURN))
            result["voices"] = [voice.id for voice in await tts.list_voices()]
        elif mode == "reuse":
            first = await say(tts, name, ["First answer."])
            print("rest", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            result = await say(tts, name, ["Second answer."])
            result["first"] = first["audio"]
        elif mode == "pause":
            # A tool call in the middle of a turn: longer than LiveKit's 10 s without any message.
            result = await say(tts, name, ["Let me look that up for you. ", "Here it is, thank you."], 11.0)
        else:
            stream = begin(tts, name)
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
            result = await say(tts, name, ["Second answer."])
            result["heard_s"] = heard
        await tts.aclose()
    print(json.dumps(result))


asyncio.run(main(*sys.argv[1:4]))
