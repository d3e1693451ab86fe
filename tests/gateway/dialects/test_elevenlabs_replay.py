"""What unmodified clients sent, line by line and at their own pace; see the captures beside this file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import virtual
from tests.peers.elevenlabs import ElevenClient, Turn, eleven_client
from tests.peers.gateway import Running, on_gateway

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*elevenlabs*.jsonl"))
TEXT = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
RATE = 22050
Line = dict[str, Any]


def _headers(line: Line) -> dict[str, str]:
    return {name: value.replace("<masked>", "any") for name, value in line["headers"].items()}


async def _upgrade(gateway: Running, line: Line, stack: contextlib.AsyncExitStack) -> ElevenClient:
    headers = _headers(line)
    deflate = "permessage-deflate" in headers.pop("Sec-WebSocket-Extensions", "")
    client = await stack.enter_async_context(
        eleven_client(
            gateway,
            headers=headers,
            query="&".join(f"{name}={value}" for name, value in line["query"].items()),
            voice=line["path"].split("/")[-2],
            path=line["path"].rsplit("/", 1)[-1],
            compress=15 if deflate else 0,
            turn={"rate": RATE, "filled": "sync_alignment" not in line["query"]},
        )
    )
    assert client.ws.compress == 0
    return client


async def replay(gateway: Running, lines: list[Line]) -> list[Turn]:
    """All turns of a capture, whose client closes when its turns have ended or when it did then."""
    opened = next(line for line in lines if line["dir"] == "open")
    async with contextlib.AsyncExitStack() as stack:
        client = await _upgrade(gateway, opened, stack)
        began = virtual.clock() - opened["t"]
        reading = asyncio.ensure_future(client.close_code())
        for line in (line for line in lines if line["dir"] == "c2s"):
            if line["json"].get("close_socket"):
                await _all_ended(client)
            await asyncio.sleep(max(0.0, began + line["t"] - virtual.clock()))
            await client.send(line["json"])
        if not lines[-1].get("by") and not client.transcript.single:
            await _all_ended(client)
            await client.ws.close()
        assert await reading in {1000, None}
        assert client.transcript.errors == []
        return client.transcript.past


async def _all_ended(client: ElevenClient) -> None:
    while client.open_contexts:
        await asyncio.sleep(0.1)


SOCKETS = [path for path in CAPTURES if "http" not in path.name]


@pytest.mark.parametrize("capture", SOCKETS, ids=[path.stem for path in SOCKETS])
def test_a_captured_client_is_served(tmp_path: Path, capture: Path) -> None:
    lines = [json.loads(line) for line in capture.read_text().splitlines()]

    @on_gateway(voice_aliases={"voiceA": "tone"})
    async def main(gateway: Running) -> None:
        turns = await replay(gateway, lines)
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


@on_gateway(voice_aliases={"voiceA": "tone"})
async def test_a_captured_request_over_http_is_served(gateway: Running) -> None:
    (capture,) = (path for path in CAPTURES if "http" in path.name)
    opened, body = (json.loads(line) for line in capture.read_text().splitlines()[:2])
    async with (
        aiohttp.ClientSession(headers=_headers(opened)) as http,
        http.post(gateway.url + opened["path"], params=opened["query"], json=body["json"]) as response,
    ):
        assert response.status == 200
        data = await response.read()
    spoken = sum(len(text.split()) for text in gateway.engine.spoken)
    assert len(data) / 2 / RATE == pytest.approx(spoken * 0.2, abs=0.4)


def test_the_captures_are_there() -> None:
    assert len(CAPTURES) == 10
