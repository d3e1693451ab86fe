"""What unmodified clients sent, line by line and at their own pace.

The captures hold each message as JSON; it goes out in the bytes that the client writes
(``tests.peers.captures``).
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests import virtual
from tests.peers import captures
from tests.peers.captures import Line
from tests.peers.elevenlabs import ElevenClient, Transcript, Turn
from tests.peers.gateway import Running, on_gateway

SOCKETS = captures.of("elevenlabs-single", "elevenlabs-multi")
DOWNLOADS = captures.of("elevenlabs-http")
TEXT = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
RATE = 22050


async def _upgrade(gateway: Running, line: Line, stack: contextlib.AsyncExitStack) -> ElevenClient:
    ws = await stack.enter_async_context(captures.upgraded(gateway, line))
    single = line["path"].endswith("/stream-input")
    return ElevenClient(
        ws, Transcript(single=single, rate=RATE, filled="sync_alignment" not in line["query"])
    )


async def replay(gateway: Running, capture: Path) -> list[Turn]:
    """All turns of a capture, whose client closes when its turns have ended or when it did then."""
    lines = captures.lines_of(capture)
    opened = next(line for line in lines if line["dir"] == "open")
    async with contextlib.AsyncExitStack() as stack:
        client = await _upgrade(gateway, opened, stack)
        began = virtual.clock() - opened["t"]
        reading = asyncio.ensure_future(client.close_code())
        for line in (line for line in lines if line["dir"] == "c2s"):
            if line["json"].get("close_socket"):
                await _all_ended(client)
            await asyncio.sleep(max(0.0, began + line["t"] - virtual.clock()))
            client.transcript.sent(line["json"])
            await client.ws.send_str(captures.written(capture, line))
        if not lines[-1].get("by") and not client.transcript.single:
            await _all_ended(client)
            await client.ws.close()
        assert await reading in {1000, None}
        assert client.transcript.errors == []
        return client.transcript.past


async def _all_ended(client: ElevenClient) -> None:
    while client.open_contexts:
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("capture", SOCKETS, ids=[path.stem for path in SOCKETS])
def test_a_captured_client_is_served(tmp_path: Path, capture: Path) -> None:
    @on_gateway(voice_aliases=captures.VOICES)
    async def main(gateway: Running) -> None:
        turns = await replay(gateway, capture)
        await asyncio.sleep(0.1)
        assert gateway.idle
        assert not gateway.services.sockets
        *cut, last = turns
        words = last.chars.split()
        if "interrupt" in capture.name:
            (first,) = cut
            assert 0 < first.seconds < 0.9 + 3.0 + 0.3
            assert first.chars.startswith("A long first answer ")
            assert words == ["Second", "answer."]
            assert last.seconds == pytest.approx(0.4, abs=0.01)
            return
        assert cut == []
        assert words == (["Hello", "there."] if "idle" in capture.name else TEXT.split())
        spoken = sum(len(text.split()) for text in gateway.engine.spoken)
        assert last.seconds == pytest.approx(spoken * 0.2, abs=0.4)
        assert last.clock == pytest.approx(last.seconds * 1000, abs=1) or not last.filled

    main(tmp_path)


@pytest.mark.parametrize("capture", DOWNLOADS, ids=[path.stem for path in DOWNLOADS])
def test_a_captured_request_over_http_is_served(tmp_path: Path, capture: Path) -> None:
    opened, body = captures.lines_of(capture)[:2]

    @on_gateway(voice_aliases=captures.VOICES)
    async def main(gateway: Running) -> None:
        async with captures.requested(gateway, capture, opened, body) as response:
            assert response.status == 200
            data = await response.read()
        spoken = sum(len(text.split()) for text in gateway.engine.spoken)
        assert len(data) % 2 == 0
        assert len(data) / 2 / RATE == pytest.approx(spoken * 0.2, abs=0.4)

    main(tmp_path)
