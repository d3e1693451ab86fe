"""The ``wyoming`` package's own client against a gateway; ARGS: its HTTP address (unused), the port.

Runs in the environment "wyoming". Prints one JSON object. Texts in pieces are sent as Home Assistant does:
the pieces, the whole text once more for servers that do not know pieces, and the stop.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
import time
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, async_read_event, read_event, write_event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

PIECES = [
    "Hello there, this is the first ",
    "delta. Your order num",
    "ber is 4215 and it ",
    "ships on Thursday.",
]


async def heard(client: AsyncTcpClient, *, pieces: bool = False) -> dict[str, Any]:
    """What comes up to the end of a request."""
    began = time.monotonic()
    kinds: list[str] = []
    rate = 0
    audio = b""
    first_ms = 0.0
    error = None
    while (event := await client.read_event()) is not None:
        if kinds[-1:] != [event.type]:
            kinds.append(event.type)
        if AudioStart.is_type(event.type):
            start = AudioStart.from_event(event)
            rate = start.rate
            assert (start.width, start.channels) == (2, 1)
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert chunk.rate == rate
            assert chunk.timestamp == len(audio) // 2 * 1000 // rate
            audio += chunk.audio
            first_ms = first_ms or (time.monotonic() - began) * 1000
        elif Error.is_type(event.type):
            told = Error.from_event(event)
            error = [told.code, told.text]
        elif (AudioStop.is_type(event.type) and not pieces) or SynthesizeStopped.is_type(event.type):
            break
    else:
        kinds.append("")
    return {
        "kinds": kinds,
        "rate": rate,
        "audio": base64.b64encode(audio).decode(),
        "first_ms": first_ms,
        "error": error,
    }


async def say(client: AsyncTcpClient, text: str, voice: SynthesizeVoice | None = None) -> dict[str, Any]:
    """A whole text."""
    await client.write_event(Synthesize(text=text, voice=voice).event())
    return await heard(client)


async def say_pieces(client: AsyncTcpClient, pieces: list[str]) -> dict[str, Any]:
    """A text in pieces, as Home Assistant sends it."""
    await client.write_event(SynthesizeStart(voice=SynthesizeVoice(language="en-US")).event())
    for piece in pieces:
        await client.write_event(SynthesizeChunk(text=piece).event())
    await client.write_event(Synthesize(text="".join(pieces)).event())
    await client.write_event(SynthesizeStop().event())
    return await heard(client, pieces=True)


async def raw(port: int) -> dict[str, Any]:
    """All bytes of one connection, and whether the package would have written the same."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    out = io.BytesIO()
    for request in (
        Describe().event(),
        Ping(text="é").event(),
        Synthesize(text="Hello.").event(),
        SynthesizeStart().event(),
        SynthesizeChunk(text="Good day.").event(),
        SynthesizeStop().event(),
        Synthesize(text="x", voice=SynthesizeVoice(name="nobody")).event(),  # the error closes
    ):
        write_event(request, out)
    writer.write(out.getvalue())
    data = await reader.read()
    writer.close()
    source, again = io.BytesIO(data), io.BytesIO()
    kinds: list[str] = []
    while (event := read_event(source)) is not None:
        if kinds[-1:] != [event.type]:
            kinds.append(event.type)
        write_event(event, again)
    assert source.tell() == len(data)
    feeding = asyncio.StreamReader()
    feeding.feed_data(data)
    feeding.feed_eof()
    count = 0
    last: Event | None = None
    while (event := await async_read_event(feeding)) is not None:
        count, last = count + 1, event
    return {"kinds": kinds, "same": again.getvalue() == data, "count": count, "last": last and last.type}


async def main(port: int) -> dict[str, Any]:
    """All scenes."""
    result: dict[str, Any] = {"raw": await raw(port)}
    async with AsyncTcpClient("127.0.0.1", port, connect_timeout=10, read_timeout=30) as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
        assert event is not None and Info.is_type(event.type)
        info = Info.from_event(event)
        (program,) = info.tts
        result["info"] = {
            "voices": [[v.name, v.languages, v.installed] for v in program.voices],
            "streaming": program.supports_synthesize_streaming,
            "others": len(info.asr) + len(info.wake) + len(info.handle) + len(info.intent),
        }
        await client.write_event(Ping(text="hello").event())
        event = await client.read_event()
        assert event is not None and Pong.is_type(event.type)
        result["pong"] = Pong.from_event(event).text
        result["whole"] = await say(client, "".join(PIECES), SynthesizeVoice(name=program.voices[0].name))
        result["pieces"] = await say_pieces(client, PIECES)
        result["unspeakable"] = await say(client, "...")
        result["unspeakable_pieces"] = await say_pieces(client, ["...", " "])
        result["again"] = await say(client, "And once more.")
    async with AsyncTcpClient("127.0.0.1", port, read_timeout=30) as client:
        result["nobody"] = await say(client, "Hello.", SynthesizeVoice(name="nobody"))
    async with AsyncTcpClient("127.0.0.1", port, read_timeout=30) as client:
        await client.write_event(Synthesize(text="This goes on. " * 100).event())
        assert (await client.read_event()) is not None  # and drops
    return result


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[2])))))
