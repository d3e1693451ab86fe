"""Answers phone calls: greets, speaks back the digits that the caller presses, stops when interrupted.

An agent of your own begins here: ``.venv/bin/python deploy/agent.py``, beside a gateway. Its protocol is
described in ``gateway/native/PROTOCOL.md``. The gateway is the one on this machine at ``VOXWIRE_PORT`` (8080
unless set), or wherever ``VOXWIRE_URL`` says. Where keys are needed, ``VOXWIRE_KEY`` holds one with the scope
``call``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import aiohttp

PORT = os.environ.get("VOXWIRE_PORT") or "8080"
GATEWAY = os.environ.get("VOXWIRE_URL") or f"http://127.0.0.1:{PORT}"
KEY = os.environ.get("VOXWIRE_KEY", "any-key-works-on-this-machine")


class Conversation:
    """One call: every turn is a context of its own; a new turn interrupts the one before."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, call: str) -> None:
        self.ws, self.call, self.turns, self.digits = ws, call, 0, ""

    async def say(self, text: str) -> None:
        """Speak ``text``, given as a language model would stream it."""
        self.turns += 1
        turn = f"{self.call}/{self.turns}"
        await self.ws.send_json({"type": "open", "context": turn, "call": self.call, "interrupt": True})
        for delta in text.split(" "):
            await self.ws.send_json({"type": "text", "context": turn, "text": delta + " "})
        await self.ws.send_json({"type": "end", "context": turn})

    async def pressed(self, digit: str) -> None:
        """Answer a key of the caller's phone."""
        if digit == "#":
            await self.say("Thank you. Goodbye.")
            await self.ws.send_json({"type": "call.hangup", "call": self.call})
        else:
            self.digits += digit
            await self.say(f"You pressed <spell>{self.digits}</spell>.")


async def serve(ws: aiohttp.ClientWebSocketResponse) -> None:
    """Take calls until the gateway closes the connection."""
    conversations: dict[str, Conversation] = {}
    audio = {"encoding": "pcm_s16le", "sample_rate": 16000}
    agent = {"name": "greeter", "max_calls": 10, "caller_audio": audio}
    await ws.send_json({"type": "hello", "version": 1, "agent": agent})
    async for message in ws:
        if message.type is aiohttp.WSMsgType.BINARY:
            continue  # the caller's voice, 20 ms a frame: give it to your speech recognition
        event = json.loads(message.data)
        match event["type"]:
            case "hello":
                print("waiting for calls", flush=True)
            case "call.started":
                talk = conversations[event["call"]] = Conversation(ws, event["call"])
                await talk.say(f"Hello {event['parameters'].get('name', '')}! Please press a few digits.")
            case "call.dtmf":
                await conversations[event["call"]].pressed(event["digit"])
            case "cancelled":
                print("interrupted; the caller heard:", event["heard"]["text"], flush=True)
            case "call.ended":
                conversations.pop(event["call"])
            case "error":
                print(event["code"], event["message"], flush=True)


async def main() -> None:
    """Connect and serve; ends with a line that says why."""
    try:
        address = GATEWAY.replace("http", "ws", 1) + "/v1/stream"
        async with aiohttp.ClientSession(headers={"X-API-Key": KEY}) as http, http.ws_connect(address) as ws:
            await serve(ws)
            sys.exit(f"the gateway has closed the connection ({ws.close_code})")
    except aiohttp.WSServerHandshakeError as refused:
        sys.exit(f"{GATEWAY} refused the connection ({refused.status}): is VOXWIRE_KEY right?")
    except aiohttp.ClientConnectionError:
        sys.exit(f"no gateway answers at {GATEWAY}: start one, or name another by VOXWIRE_URL or _PORT")


if __name__ == "__main__":
    asyncio.run(main())
