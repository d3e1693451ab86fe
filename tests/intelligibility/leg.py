"""Text through a running gateway to the end of an 8 kHz mu-law leg, streamed as a language model would."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import aiohttp

from gateway.native.frames import unpack
from tests.peers.process import GatewayProcess
from tests.peers.twilio import TwilioPeer

TOKEN = "twilio-token-0123456789abcdef"
ORIGIN = "https://voice.example.com"
PUBLIC = "wss://voice.example.com/media/twilio"
AT_ONCE = 6
DELTA_S = 0.01
REPORT = 4000  # samples between two reports of what was played
DEADLINE_S = 60.0


def settings() -> dict[str, str]:
    """What the gateway needs for calls."""
    return {"public_origin": ORIGIN, "twilio_auth_token": TOKEN}


def deltas(text: str) -> list[str]:
    """Cut like tokens, anywhere, the same each time: pieces of 1 to 6 characters."""
    chance = random.Random(text)
    out, at = [], 0
    while at < len(text):
        size = chance.randint(1, 6)
        out.append(text[at : at + size])
        at += size
    return out


async def send(ws: aiohttp.ClientWebSocketResponse, context: str, text: str) -> None:
    for delta in deltas(text):
        await ws.send_json({"type": "text", "context": context, "text": delta})
        await asyncio.sleep(DELTA_S)
    await ws.send_json({"type": "end", "context": context})


async def native(gateway: GatewayProcess, texts: Mapping[str, str]) -> dict[str, bytes]:
    """Each text over a native socket of its own, some at once, in the order of ``texts``.

    What comes is reported as played at once, so that the gateway need not wait for a listener.
    """
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(http: aiohttp.ClientSession, text: str) -> bytes:
        async with (
            limit,
            asyncio.timeout(DEADLINE_S),
            http.ws_connect(gateway.ws + "/v1/stream?api_key=x") as ws,
        ):
            await ws.send_json({"type": "hello", "version": 1})
            fmt = {"encoding": "mulaw", "sample_rate": 8000}
            await ws.send_json({"type": "open", "context": "c", "format": fmt})
            sending = asyncio.create_task(send(ws, "c", text))
            audio, reported = bytearray(), 0
            async for message in ws:
                if message.type is aiohttp.WSMsgType.BINARY:
                    frame = unpack(message.data)
                    assert frame.start == len(audio)
                    audio += frame.payload
                    if len(audio) - reported >= REPORT:
                        reported = len(audio)
                        await ws.send_json({"type": "played", "context": "c", "sample": reported})
                    continue
                event = message.json()
                assert event["type"] not in ("error", "cancelled"), event
                if event["type"] == "done":
                    assert event["total_samples"] == len(audio)
                    await sending
                    return bytes(audio)
            sending.cancel()
            raise AssertionError(f"the gateway closed the socket: {ws.close_code}")

    async with aiohttp.ClientSession() as http:
        heard = await asyncio.gather(*(one(http, text) for text in texts.values()))
    return dict(zip(texts, heard, strict=True))


async def calls(gateway: GatewayProcess, texts: Mapping[str, str]) -> dict[str, bytes]:
    """Each text by an agent into a call of its own, heard at the end of a Twilio stream, in real time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(http: aiohttp.ClientSession, name: str, text: str) -> bytes:
        agent = f"agent-{name}"
        async with (
            limit,
            asyncio.timeout(DEADLINE_S),
            http.ws_connect(gateway.ws + "/v1/stream?api_key=x") as ws,
        ):
            await ws.send_json({"type": "hello", "version": 1, "agent": {"name": agent}})
            assert (await ws.receive_json())["type"] == "hello"
            async with TwilioPeer(gateway.ws + "/media/twilio", TOKEN, PUBLIC, {"agent": agent}) as peer:
                started = await ws.receive_json()
                assert started["type"] == "call.started", started
                await ws.send_json({"type": "open", "context": "c", "call": started["call"]})
                sending = asyncio.create_task(send(ws, "c", text))
                while (event := await ws.receive_json())["type"] != "done":
                    assert event["type"] in ("opened", "words"), event
                await sending
                assert peer.core.violations == []
                peer.core.advance()
                # ``done`` says that the caller has heard the last sample; the last frame may be padded.
                assert 0 <= len(peer.core.heard) - event["total_samples"] < 160
                return bytes(peer.core.heard)

    async with aiohttp.ClientSession() as http:
        heard = await asyncio.gather(*(one(http, name, text) for name, text in texts.items()))
    return dict(zip(texts, heard, strict=True))
