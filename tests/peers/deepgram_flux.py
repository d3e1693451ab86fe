"""A client of Deepgram's turn-based socket that holds the gateway to its word about turns."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import aiohttp

from tests.peers.deepgram import DeepgramClient, connected
from tests.peers.gateway import Running

RATE = 24000
WORD_MS = 200
"""Of audio, with the engine of the tests."""
LONG = "word " * 200
CODES = {"MESSAGE-0000", "DATA-0000", "DATA-0002", "BIG-0000", *(f"NET-000{n}" for n in range(5))}
METADATA = {
    "speech_id",
    "audio_duration_ms",
    "input_character_count",
    "billable_character_count",
    "controls_applied",
}
KINDS = {
    "Connected",
    "SpeechStarted",
    "Flushed",
    "SpeechMetadata",
    "SpeechInterrupted",
    "ConfigureSuccess",
    "ConfigureFailure",
    "SessionMetadata",
    "Warning",
    "Error",
}


class FluxClient(DeepgramClient):
    """One socket."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, width: int = 2) -> None:
        super().__init__(ws, width)
        self.speeches: list[str] = []
        self.speaking: str | None = None
        self._before = 0

    @property
    def samples(self) -> int:
        """Of all turns so far."""
        return len(self.audio) // self.width

    async def next(self) -> str:
        """As before; audio comes within a turn alone."""
        kind = await super().next()
        assert kind != "audio" or self.speaking is not None, "audio of no turn"
        return kind

    def check(self, kind: str, told: dict[str, Any]) -> None:
        """Whether this message may come now."""
        assert kind in KINDS
        assert kind == "Connected" or self.order, "the greeting comes first"
        assert "SessionMetadata" not in self.kinds, "nothing comes after the totals"
        match kind:
            case "SpeechStarted":
                assert self.speaking is None, "one turn at a time"
                self.speaking = told["speech_id"]
                assert self.speaking not in self.speeches
                self.speeches.append(self.speaking)
                self._before = self.samples
            case "Flushed":
                assert told["speech_id"] == self.speaking
            case "SpeechMetadata":
                self._check_turn({name: value for name, value in told.items() if name != "type"})
                assert told["speech_id"] == self.speaking
                self.speaking = None
            case "SpeechInterrupted":
                self._check_turn(told["metadata"])
                assert told["metadata"]["speech_id"] == self.speaking, "a turn has one end"
                self.speaking = None
            case "Warning" | "ConfigureFailure":
                assert told["description"]
                assert told["code"] == told["code"].upper()
            case "Error":
                assert told["description"]
                assert told["code"] in CODES
                if told["code"] == "NET-0000":
                    self.speaking = None

    def _check_turn(self, told: dict[str, Any]) -> None:
        assert set(told) == METADATA
        ms = (self.samples - self._before) * 1000 / RATE if self.width == 2 else told["audio_duration_ms"]
        assert abs(told["audio_duration_ms"] - ms) <= 1
        assert told["billable_character_count"] <= told["input_character_count"]

    async def hear(self, ms: int) -> None:
        """Read until so much audio of the session has come."""
        while self.samples * 1000 < ms * RATE:
            await self.next()

    async def begin(self, ms: int) -> None:
        """Read until so much audio of the next turn has come."""
        await self.until("SpeechStarted")
        await self.hear(round(self.samples * 1000 / RATE) + ms)

    async def interrupt(self, ms: float | None = None) -> None:
        """Interrupt, at this offset of the session."""
        offset = {} if ms is None else {"playback_offset": {"type": "time_ms", "value": ms}}
        await self.send("Interrupt", **offset)

    async def late(self) -> dict[str, Any]:
        """The answer to an interrupt for which there is no turn any more."""
        told: dict[str, Any] = await self.until("Warning")
        assert told["code"] == "NO_ACTIVE_SPEECH"
        return told


def flux_client(
    gateway: Running,
    query: str = f"?model=tone&encoding=linear16&sample_rate={RATE}",
    *,
    headers: dict[str, str] | None = None,
    width: int = 2,
    protocols: tuple[str, ...] = (),
) -> contextlib.AbstractAsyncContextManager[FluxClient]:
    """Connect; the greeting has been read."""
    path = "/v2/speak" + query
    return connected(gateway, path, FluxClient, headers=headers, width=width, protocols=protocols)


def whole(told: dict[str, Any]) -> str:
    """The text of a turn that was interrupted."""
    text: str = told["text_spoken"] + told["text_remaining"]
    return text


def refusal(raw: str) -> dict[str, Any]:
    """The body of a refusal."""
    told: dict[str, Any] = json.loads(raw)
    assert set(told) == {"err_code", "err_msg", "request_id"}
    return told
