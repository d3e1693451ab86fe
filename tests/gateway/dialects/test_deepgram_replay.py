"""What unmodified clients of Deepgram's protocol sent, line by line and at their own pace.

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
from tests.peers.deepgram import DeepgramClient
from tests.peers.gateway import Running, on_gateway

CAPTURES = captures.of("deepgram")


async def replay(gateway: Running, capture: Path) -> list[DeepgramClient]:
    """Every connection of a capture, read until we close it."""
    clients: list[DeepgramClient] = []
    lines = captures.lines_of(capture)
    async with contextlib.AsyncExitStack() as stack:
        began, reading = virtual.clock(), None
        for line in lines:
            answer = line.get("json", {}).get("type")
            if line["dir"] == "s2c" and answer in {"Flushed", "Cleared"}:
                # The client waited for it before it went on.
                due = [said.get("json", {}).get("type") for said in lines[: lines.index(line) + 1]
                       if said["dir"] == "s2c" and said["conn"] == line["conn"]].count(answer)  # fmt: skip
                while clients[-1].kinds.count(answer) < due:
                    await asyncio.sleep(0.01)
                began = virtual.clock() - line["t"]
                continue
            if line["dir"] not in {"open", "c2s"}:
                continue
            await asyncio.sleep(max(0.0, began + line["t"] - virtual.clock()))
            if line["dir"] == "open":
                client = DeepgramClient(await stack.enter_async_context(captures.upgraded(gateway, line)))
                assert await client.next() == "Metadata"
                assert client.order[0][1]["model_name"] == line["query"]["model"]
                clients.append(client)
                reading = asyncio.ensure_future(client.until("close"))
                continue
            await clients[-1].ws.send_str(captures.written(capture, line))
            if line["json"]["type"] == "Close":
                assert reading is not None
                assert await reading == 1000
                began = virtual.clock() - line["t"]
    return clients


@pytest.mark.parametrize("capture", CAPTURES, ids=[path.stem for path in CAPTURES])
def test_a_capture_gets_its_answers_in_order(tmp_path: Path, capture: Path) -> None:
    lines = captures.lines_of(capture)

    @on_gateway(voice_aliases=captures.VOICES)
    async def main(gateway: Running) -> None:
        clients = await replay(gateway, capture)
        assert len(clients) == sum(line["dir"] == "open" for line in lines)
        kinds = [kind for client in clients for kind in client.kinds]
        assert not {"Warning", "Error"} & set(kinds)
        sent = [line["json"]["type"] for line in lines if line["dir"] == "c2s"]
        assert kinds.count("Cleared") == sent.count("Clear")
        assert {request.voice for request in gateway.engine.requests} == {"tone"}
        spoken = " ".join(request.text for request in gateway.engine.requests)
        if "interrupt" in capture.stem or "clear" in capture.stem:
            assert "Second answer." in spoken
            assert kinds[-1] == "Flushed"
        else:
            assert "ships on Thursday." in spoken
            assert kinds[:3] == ["Metadata", "audio", "Flushed"]
        assert gateway.idle

    main(tmp_path)
