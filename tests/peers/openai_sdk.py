"""The unmodified ``openai`` Python SDK against a gateway; run in the ``sdk`` environment.

Argument: gateway address. Prints one JSON object with a part per scenario.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from openai import APIStatusError, AsyncOpenAI

TEXT = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def main(url: str) -> None:
    client = AsyncOpenAI(api_key="any", base_url=url + "/v1", max_retries=0)
    out: dict[str, Any] = {}
    speech = client.audio.speech
    async with speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
    ) as response:
        out["chunked"] = packed(b"".join([piece async for piece in response.iter_bytes()]))
    out["mp3"] = packed((await speech.create(model="tts-1", voice="nova", input=TEXT)).content)
    out["wav"] = packed(
        (await speech.create(model="tts-1", voice="heart", input=TEXT, response_format="wav")).content
    )
    audio = b""
    kinds: list[str] = []
    async with speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
    ) as response:
        async for line in response.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                kinds.append(event["type"])
                audio += base64.b64decode(event.get("audio", ""))
    out["sse"] = {"audio": packed(audio), "kinds": kinds}
    async with speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT * 40, response_format="pcm"
    ) as response:
        async for piece in response.iter_bytes():
            out["cut"] = len(piece)
            break
    try:
        await speech.create(model="tts-1", voice="nobody", input=TEXT)
    except APIStatusError as error:
        out["error"] = {"status": error.status_code, "param": error.param, "kind": type(error).__name__}
    out["models"] = [model.id async for model in client.models.list()]
    print(json.dumps(out))


asyncio.run(main(sys.argv[1]))
