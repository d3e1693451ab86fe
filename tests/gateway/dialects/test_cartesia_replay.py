"""What unmodified clients sent, line by line and at their own pace; see the captures beside this file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests import virtual
from tests.peers.cartesia import CartesiaClient, Turn, cartesia_client
from tests.peers.gateway import Running, on_gateway

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*cartesia*.jsonl"))
TURN = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."


async def _upgrade(
    gateway: Running, line: dict[str, Any], stack: contextlib.AsyncExitStack
) -> CartesiaClient:
    headers = {name: value.replace("<masked>", "any") for name, value in line["headers"].items()}
    deflate = "permessage-deflate" in headers.pop("Sec-WebSocket-Extensions", "")
    query = "&".join(f"{name}={value}" for name, value in line["query"].items())
    client = await stack.enter_async_context(
        cartesia_client(
            gateway, headers=headers, query="?" + query if query else "", compress=15 if deflate else 0
        )
    )
    assert client.ws.compress == 0
    return client


async def replay(gateway: Running, lines: list[dict[str, Any]]) -> list[Turn]:
    """All turns of a capture. A socket is closed when its turns have ended, or when the client closed it."""
    turns: list[Turn] = []
    client: CartesiaClient | None = None
    async with contextlib.AsyncExitStack() as stack:
        began = virtual.clock()
        for line in lines:
            if line["dir"] == "open":
                client = await _upgrade(gateway, line, stack)
                began = virtual.clock() - line["t"]
                continue
            assert client is not None
            reading = asyncio.ensure_future(_read(client))
            await asyncio.sleep(max(0.0, began + line["t"] - virtual.clock()))
            if line["dir"] == "c2s":
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                await client.send(line["json"])
                continue
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            sent = [row["json"] for row in lines if row["dir"] == "c2s" and row["conn"] == line["conn"]]
            over = {m["context_id"] for m in sent if m.get("cancel") or not m["continue"]}
            await client.ended(*over)
            turns += client.transcript.past
            assert client.transcript.errors == []
            await client.ws.close()
    return turns


async def _read(client: CartesiaClient) -> None:
    while True:
        await client.next()


@pytest.mark.parametrize("capture", CAPTURES, ids=[path.stem for path in CAPTURES])
def test_a_captured_client_is_served(tmp_path: Path, capture: Path) -> None:
    lines = [json.loads(line) for line in capture.read_text().splitlines()]

    @on_gateway(voice_aliases={"voiceA": "tone"})
    async def main(gateway: Running) -> None:
        turns = await replay(gateway, lines)
        await asyncio.sleep(0.1)
        assert gateway.idle
        timed = capture.name != "cartesia-sdk_3deltas.jsonl" and "sdk_interrupt" not in capture.name
        if "interrupt" not in capture.name:
            (turn,) = turns
            assert turn.end is not None
            assert turn.text == (TURN if timed else "")
            words = sum(len(spoken.split()) for spoken in gateway.engine.spoken)
            assert turn.seconds == pytest.approx(words * 0.2, abs=0.4)
            assert turn.flushes == ([1, 2, 3] if "flush_timestamps" in capture.name else [])
            return
        first, second = turns
        assert 0 < first.seconds < 5
        assert (first.end is None) is ("livekit" in capture.name)  # LiveKit stops reading and closes
        assert second.end is not None
        assert second.text == ("Second answer." if timed else "")
        assert second.seconds == pytest.approx(0.4, abs=0.01)
        assert gateway.engine.spoken[-1] == "Second answer."

    main(tmp_path)


def test_the_captures_are_there() -> None:
    assert len(CAPTURES) == 9
