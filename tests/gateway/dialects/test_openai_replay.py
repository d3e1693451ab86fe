"""What unmodified clients of OpenAI's protocol asked for, and where they hung up.

The captures hold each body as JSON; it goes out in the bytes that the client writes
(``tests.peers.captures``).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import virtual
from tests.peers import captures
from tests.peers.captures import Line
from tests.peers.gateway import Running, on_gateway
from tests.tone import RATE, ToneEngine
from tts_core.engine import SpeechChunk, SpeechRequest

CAPTURES = captures.of("openai-speech")
FIRST = "A long first answer that the caller will interrupt before it ends."
GREETING = "Hello there, this is the first delta."
ORDER = "and it ships on Thursday."


class Steady(ToneEngine):
    """Speaks 1.25 times as fast as it is heard: as the recorded server did for those who hung up."""

    made = 0
    """Samples, of all requests."""

    async def synthesize(self, request: SpeechRequest) -> AsyncIterator[SpeechChunk]:
        made = super().synthesize(request)
        assert isinstance(made, AsyncGenerator)
        async with contextlib.aclosing(made) as chunks:
            async for chunk in chunks:
                self.made += len(chunk.pcm)
                yield chunk
                await asyncio.sleep(len(chunk.pcm) / RATE / 1.25)


@dataclass
class Heard:
    """One answer as its client got it."""

    asked: dict[str, Any]
    status: int
    kind: str
    audio: bytearray = field(default_factory=bytearray)
    events: list[dict[str, Any]] = field(default_factory=list)
    dropped: bool = False

    @property
    def seconds(self) -> float:
        """Of audio: 16 bits at 24 kHz."""
        return len(self.audio) / 2 / RATE

    def event(self, block: bytes) -> None:
        """Take a server-sent event."""
        told = json.loads(block.removeprefix(b"data: "))
        assert not self.events or self.events[-1]["type"] == "speech.audio.delta", "something after the end"
        self.events.append(told)
        if told["type"] == "speech.audio.delta":
            data = base64.b64decode(told["audio"], validate=True)
            assert data
            assert len(data) % 2 == 0, "a part of a sample"
            self.audio += data


def connections(lines: list[Line]) -> list[list[Line]]:
    """The lines of each connection, in the order in which they were opened."""
    opened = [line["conn"] for line in lines if line["dir"] == "open"]
    return [[line for line in lines if line["conn"] == conn] for conn in opened]


def left_at(lines: list[Line]) -> int | None:
    """The bytes of audio that the client had got when it hung up; None if it heard the answer to its end."""
    for line in lines:
        if line["dir"] == "client_gone":
            return int(line["after_bytes"])
    told = [line["json"] for line in lines if line["dir"] == "s2c" and line["kind"] == "sse"]
    if not told or told[-1]["type"] == "speech.audio.done":
        return None
    # LiveKit went while the server was waiting: there is no line for it but the end that is missing.
    return sum(int(re.findall(r"= (\d+) bytes", event["audio"])[0]) for event in told)


async def _read(response: aiohttp.ClientResponse, heard: Heard, enough: int | None) -> None:
    rest = b""
    async for data in response.content.iter_any():
        if heard.kind == "text/event-stream":
            *blocks, rest = (rest + data).split(b"\n\n")
            for block in blocks:
                heard.event(block)
        else:
            heard.audio += data
        if enough is not None and len(heard.audio) >= enough:
            heard.dropped = True
            return
    assert rest == b""


async def replay(gateway: Running, capture: Path) -> list[Heard]:
    """Every request of a capture, at its time; the gateway is idle after each of them."""
    answers: list[Heard] = []
    lines = captures.lines_of(capture)
    began = virtual.clock()
    for connection in connections(lines):
        opened, body = connection[:2]
        await asyncio.sleep(max(0.0, began + opened["t"] - virtual.clock()))
        async with captures.requested(gateway, capture, opened, body) as response:
            heard = Heard(body["json"], response.status, response.headers["Content-Type"])
            answers.append(heard)
            await _read(response, heard, left_at(connection))
            if heard.dropped:
                assert gateway.services.in_flight.count == gateway.engine.running == 1
                response.close()
        await asyncio.sleep(0.1)
        assert gateway.idle
    return answers


@pytest.mark.parametrize("capture", CAPTURES, ids=[path.stem for path in CAPTURES])
def test_a_captured_client_is_served(tmp_path: Path, capture: Path) -> None:
    engine = Steady()

    @on_gateway(lambda: engine, voice_aliases=captures.VOICES)
    async def main(gateway: Running) -> None:
        answers = await replay(gateway, capture)
        for heard in answers:
            events = heard.asked.get("stream_format") == "sse"
            assert (heard.status, heard.kind) == (200, "text/event-stream" if events else "audio/pcm")
            if events:
                last = "speech.audio.delta" if heard.dropped else "speech.audio.done"
                kinds = [event["type"] for event in heard.events]
                assert kinds == ["speech.audio.delta"] * (len(kinds) - 1) + [last]
                if not heard.dropped:
                    usage = heard.events[-1]["usage"]
                    assert set(usage) == {"input_tokens", "output_tokens", "total_tokens"}
                    assert usage["input_tokens"] == len(heard.asked["input"])
            if not heard.dropped:
                assert len(heard.audio) % 2 == 0
        spoken = " ".join(engine.spoken)
        words = len(spoken.split())
        assert {request.voice for request in engine.requests} == {"tone"}
        if "interrupt" not in capture.stem:
            assert not any(heard.dropped for heard in answers)
            assert spoken.startswith(GREETING)
            assert spoken.endswith(ORDER) or "livekit" in capture.stem
            assert sum(heard.seconds for heard in answers) == pytest.approx(words * engine.word_s, abs=0.4)
            return
        cut, *others = answers
        assert cut.dropped
        assert spoken.startswith(FIRST) or spoken.startswith(GREETING)
        # Little more was made than was heard, and no more is.
        rest = sum(heard.seconds for heard in others)
        made = engine.made / RATE - rest
        assert cut.seconds <= made <= cut.seconds + 0.3
        assert made <= len(cut.asked["input"].split()) * engine.word_s - 0.5
        assert [heard.asked["input"] for heard in others] == ["Second answer."] * len(others)
        assert rest == pytest.approx(0.4 * len(others), abs=0.01)
        made_by_then = engine.made
        await asyncio.sleep(5)
        assert engine.made == made_by_then

    main(tmp_path)
