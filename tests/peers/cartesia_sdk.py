"""The unmodified ``cartesia`` Python SDK against a gateway; run in the ``sdk`` environment.

Argument: gateway address; for https the CA is in ``SSL_CERT_FILE``. Prints one JSON object with a part per
scenario.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from cartesia import AsyncCartesia

TURN = ["Hello there, this is the first delta. ", "Your order number is 4215 ", "and it ships on Thursday."]
PCM = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 22050}
MULAW = {"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000}
WAV = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 24000}
VOICE = {"mode": "id", "id": "heart"}


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def collect(context: Any) -> dict[str, Any]:
    audio = b""
    kinds: list[str] = []
    words: list[list[Any]] = []
    flushes: list[int] = []
    async for event in context.receive():
        kinds.append(event.type)
        if event.type == "chunk":
            audio += event.audio or b""
        elif event.type == "timestamps":
            stamps = event.word_timestamps
            words += [list(w) for w in zip(stamps.words, stamps.start, stamps.end, strict=True)]
        elif event.type == "flush_done":
            flushes.append(event.flush_id)
    return {"audio": packed(audio), "kinds": kinds, "words": words, "flushes": flushes}


async def main(url: str) -> None:
    # By itself the SDK opens its sockets at the same address, always over TLS.
    plain = {"websocket_base_url": url.replace("http", "ws", 1)} if url.startswith("http:") else {}
    client = AsyncCartesia(api_key="any", base_url=url, **plain)
    out: dict[str, Any] = {}
    async with client.tts.websocket_connect() as connection:
        context = connection.context(model_id="gepard-1.0", voice=VOICE, output_format=PCM)
        for text in TURN:
            await context.push(text)
        await context.no_more_inputs()
        out["push"] = await collect(context)

        context = connection.context(model_id="gepard-1.0", voice=VOICE, output_format=MULAW)
        for text in TURN:
            await context.send(
                model_id="gepard-1.0",
                transcript=text,
                voice=VOICE,
                output_format=MULAW,
                continue_=True,
                flush=True,
                add_timestamps=True,
                max_buffer_delay_ms=0,
            )
        await context.send(
            model_id="gepard-1.0", transcript="", voice=VOICE, output_format=MULAW, continue_=False
        )
        out["flush"] = await collect(context)

        context = connection.context(model_id="gepard-1.0", voice=VOICE, output_format=PCM)
        await context.send(
            model_id="gepard-1.0",
            transcript="A long first answer that the caller will interrupt before it ends. " * 6,
            voice=VOICE,
            output_format=PCM,
            continue_=True,
        )
        count = 0
        async for event in context.receive():
            count += event.type == "chunk"
            if count == 4:
                await context.cancel()
                break
        second = connection.context(model_id="gepard-1.0", voice=VOICE, output_format=PCM)
        await second.send(
            model_id="gepard-1.0",
            transcript="Second answer.",
            voice=VOICE,
            output_format=PCM,
            continue_=False,
        )
        out["after_cancel"] = await collect(second)
    response = await client.tts.generate(
        model_id="gepard-1.0", transcript="".join(TURN), voice=VOICE, output_format=WAV
    )
    out["bytes"] = packed(await response.read())
    out["voices"] = [voice.id async for voice in client.voices.list()]
    print(json.dumps(out))


asyncio.run(main(sys.argv[1]))
