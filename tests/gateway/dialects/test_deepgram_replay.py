"""What unmodified clients of Deepgram's protocol sent, line by line and at their own pace."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests import virtual
from tests.peers.deepgram import DeepgramClient, deepgram_client
from tests.peers.gateway import Running, on_gateway

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*deepgram*.jsonl"))


async def replay(gateway: Running, lines: list[dict[str, Any]]) -> list[DeepgramClient]:
    """Every connection of a capture, read until we close it."""
    clients: list[DeepgramClient] = []
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
                headers = {k: v.replace("<masked>", "any") for k, v in line["headers"].items()}
                headers.pop("Sec-WebSocket-Extensions", None)
                query = "?" + urlencode({**line["query"], "model": "tone"})
                client = await stack.enter_async_context(deepgram_client(gateway, query, headers=headers))
                clients.append(client)
                reading = asyncio.ensure_future(client.until("close"))
                continue
            await clients[-1].ws.send_str(json.dumps(line["json"]))
            if line["json"]["type"] == "Close":
                assert reading is not None
                assert await reading == 1000
                began = virtual.clock() - line["t"]
    return clients


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_gets_its_answers_in_order(tmp_path: Path, capture: Path) -> None:
    lines = [json.loads(line) for line in capture.read_text().splitlines()]

    @on_gateway()
    async def main(gateway: Running) -> None:
        clients = await replay(gateway, lines)
        assert len(clients) == sum(line["dir"] == "open" for line in lines)
        kinds = [kind for client in clients for kind in client.kinds]
        assert not {"Warning", "Error"} & set(kinds)
        sent = [line["json"]["type"] for line in lines if line["dir"] == "c2s"]
        assert kinds.count("Cleared") == sent.count("Clear")
        spoken = " ".join(request.text for request in gateway.engine.requests)
        if "interrupt" in capture.stem or "clear" in capture.stem:
            assert "Second answer." in spoken
            assert kinds[-1] == "Flushed"
        else:
            assert "ships on Thursday." in spoken
            assert kinds[:3] == ["Metadata", "audio", "Flushed"]
        assert gateway.idle

    main(tmp_path)


def test_there_are_captures() -> None:
    assert len(CAPTURES) >= 8
