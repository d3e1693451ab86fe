"""What unmodified clients sent, line by line and at their own pace.

The captures hold each message as JSON; it goes out in the bytes that the client writes
(``tests.peers.captures``). What the recorded server said is passed over: here the gateway speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests import virtual
from tests.peers import captures
from tests.peers.cartesia import CartesiaClient, Turn
from tests.peers.gateway import Running, on_gateway

CAPTURES = captures.of("cartesia")
TURN = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."


async def replay(gateway: Running, capture: Path) -> list[Turn]:
    """All turns of a capture. A socket is closed when its turns have ended, or when the client closed it."""
    turns: list[Turn] = []
    client: CartesiaClient | None = None
    lines = [line for line in captures.lines_of(capture) if line["dir"] in {"open", "c2s", "close"}]
    async with contextlib.AsyncExitStack() as stack:
        began = virtual.clock()
        for line in lines:
            if line["dir"] == "open":
                client = CartesiaClient(await stack.enter_async_context(captures.upgraded(gateway, line)))
                began = virtual.clock() - line["t"]
                continue
            assert client is not None
            reading = asyncio.ensure_future(_read(client))
            await asyncio.sleep(max(0.0, began + line["t"] - virtual.clock()))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if line["dir"] == "c2s":
                client.transcript.sent(line["json"])
                await client.ws.send_str(captures.written(capture, line))
                continue
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
    @on_gateway(voice_aliases=captures.VOICES)
    async def main(gateway: Running) -> None:
        turns = await replay(gateway, capture)
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
