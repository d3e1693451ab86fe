"""What unmodified clients sent, recorded at the wire: the captures, and how they are sent again.

A capture is one JSON object a line: ``t`` seconds, ``conn``, ``dir`` (``open``, ``c2s``, ``s2c``, ``close``,
``client_gone``...), ``kind``, and ``json`` or a count of ``bytes``. Its client half is what is sent; the rest
is a stub's, and says when the client had its answers and how much it had heard when it left.

The recorder kept of a message the JSON that it read, keys in their order and numbers as they were, and not
its bytes: ``written`` puts it into those that the client's own code makes of it. Of the headers it kept the
ones that say who asks for what, with the keys masked.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.envs import ROOT
from tests.peers.gateway import Running

FOLDER = ROOT / "tests" / "gateway" / "dialects" / "captures"
VOICES = {"voiceA": "tone", "andrew": "tone", "gepard-1.0": "tone", "g": "tone"}
"""What the clients had been told as a voice (of Deepgram's: as a model), as an operator maps it."""
UNSENT = ("Accept", "User-Agent", "Content-Type")
"""Headers that aiohttp adds by itself and that a capture has where its client sent them."""

Line = dict[str, Any]


def every() -> list[Path]:
    """All captures there are."""
    return sorted(FOLDER.glob("*.jsonl"))


def of(*protocols: str) -> list[Path]:
    """Those of these protocols, by what the recorder called them."""
    return [path for path in every() if lines_of(path)[0]["proto"] in protocols]


def lines_of(path: Path) -> list[Line]:
    """The lines of a capture."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(path: Path, line: Line) -> str:
    """A client's message as the client of this capture writes it.

    Source: the code of the versions that were recorded. pipecat 1.14.0, LiveKit's plugins 1.8.9 and the SDKs
    of Cartesia 4.2.0, Deepgram 7.17.0 and ElevenLabs 2.78.0 send ``json.dumps`` over sockets, but for the
    ``cancel`` of Cartesia's, which is a model of pydantic's, indented by two. A body over HTTP is httpx's
    (OpenAI's SDK 3.57.0 does the same): without spaces, in UTF-8.
    """
    message = line["json"]
    if line["kind"] == "body":
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    indented = path.stem.startswith("cartesia-sdk") and "cancel" in message
    return json.dumps(message, indent=2 if indented else None)


def headers_of(line: Line) -> dict[str, str]:
    """The headers of an ``open`` line, with some key for the one that is masked."""
    return {name: value.replace("<masked>", "any") for name, value in line["headers"].items()}


def session(line: Line) -> aiohttp.ClientSession:
    """What sends the headers of an ``open`` line, and none of ``UNSENT`` beside them."""
    return aiohttp.ClientSession(headers=headers_of(line), skip_auto_headers=UNSENT)


@contextlib.asynccontextmanager
async def requested(
    gateway: Running, path: Path, opened: Line, body: Line
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a request over HTTP: its ``open`` line and its body."""
    async with (
        session(opened) as http,
        http.request(
            opened["method"],
            gateway.url + opened["path"],
            params=opened["query"],
            data=written(path, body).encode(),
        ) as response,
    ):
        yield response


@contextlib.asynccontextmanager
async def upgraded(gateway: Running, line: Line) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """The socket of an ``open`` line; compression is offered where the client did so, and always declined."""
    opened = {**line, "headers": dict(line["headers"])}
    offer = opened["headers"].pop("Sec-WebSocket-Extensions", None)
    assert offer in {None, "permessage-deflate; client_max_window_bits"}  # aiohttp's own, word for word
    async with (
        session(opened) as http,
        http.ws_connect(
            gateway.url + line["path"],
            method=line["method"],
            params=line["query"],
            compress=15 if offer else 0,
            max_msg_size=0,
        ) as ws,
    ):
        assert ws.compress == 0
        yield ws
