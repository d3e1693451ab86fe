"""A small client of the native protocol: text in as it comes, audio out as it comes.

``say`` talks to a running gateway over ``/v1/stream``; it is what ``voxwire say`` does and a short example of
the protocol. It reports audio as played the moment it has been written, so that a file is made as fast as the
engine goes; a player's pipe slows it down to the listener's pace by itself.
"""

from __future__ import annotations

import asyncio
import codecs
import concurrent.futures
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

import aiohttp
import msgspec

from gateway.native.frames import Kind, unpack
from gateway.wav import WavFile
from sessions.events import AudioFormat, Encoding
from tts_core.errors import BadRequest, Unauthorised, UnknownVoice, VoxwireError

FORMATS: dict[str, AudioFormat] = {
    "pcm-24000": AudioFormat(Encoding.PCM_S16LE, 24000),
    "pcm-22050": AudioFormat(Encoding.PCM_S16LE, 22050),
    "pcm-16000": AudioFormat(Encoding.PCM_S16LE, 16000),
    "pcm-8000": AudioFormat(Encoding.PCM_S16LE, 8000),
    "mulaw-8000": AudioFormat(Encoding.MULAW, 8000),
    "alaw-8000": AudioFormat(Encoding.ALAW, 8000),
}
CONTEXT = "say"
SILENT_DEADLINE_S = 60.0
"""No message at all for this long, all text sent, means that the gateway is lost."""
RUN_AHEAD_MS = 60_000
REPORT_S = 0.5
"""Audio between two reports of what was played."""
LARGEST_PIECE = 8_000
"""Characters a message: far below the 64 KiB that a gateway accepts, whatever the script."""


class GatewayError(VoxwireError):
    """What the gateway said went wrong, or that it could not be reached; the message is for people."""

    code = "gateway_error"


@dataclass(slots=True)
class Spoken:
    """The outcome: seconds of wall time from the first text, samples and rate of the audio."""

    samples: int = 0
    rate: int = 24000
    first_audio: float = -1.0
    took: float = 0.0
    underruns: int = 0
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the audio."""
        return self.samples / self.rate


class Sink(Protocol):
    """Where the audio goes."""

    async def write(self, data: bytes) -> None:
        """Take whole samples; may wait for a slow reader."""
        ...


COMPRESSED = frozenset({".mp3", ".ogg", ".opus", ".flac", ".m4a", ".aac", ".wma", ".webm", ".mp4"})
"""Endings of files that bare samples must not be put into."""


class FileSink:
    """A file, or standard output for "-": WAV when the name ends in .wav, else the bare samples.

    What was in the file before is replaced at the first sound; when none comes, it stays as it was, and a
    file that was not there before is not left behind.

    Raises BadRequest for the ending of a compressed format, OSError if the place cannot be written.
    """

    def __init__(self, place: str, audio: AudioFormat) -> None:
        self._to_stdout = place == "-"
        self._path = Path(place)
        ending = self._path.suffix.lower()
        if ending in COMPRESSED:
            raise BadRequest(f"{ending} files are not made: use .wav, or another ending for the bare samples")
        self._audio = audio
        self._as_wav = ending == ".wav"
        self._made = not self._to_stdout and not self._path.exists()
        # Opened now, so that a place that cannot be written is told before anything is spoken.
        self._file: BinaryIO = sys.stdout.buffer if self._to_stdout else self._path.open("ab")
        self._wav: WavFile | None = None
        self._empty = True

    async def write(self, data: bytes) -> None:
        """Append; a slow pipe may block this process, which has nothing else to do."""
        if self._empty:
            self._empty = False
            if not self._to_stdout:
                self._file.close()
                self._file = self._path.open("wb")
            if self._as_wav:
                self._wav = WavFile(self._file, self._audio)
        (self._wav or self._file).write(data)
        if self._to_stdout:
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wav is not None:
            self._wav.finish()
        if not self._to_stdout:
            self._file.close()
            if self._empty and self._made:
                self._path.unlink(missing_ok=True)


_RAW_FORMAT = {
    Encoding.PCM_S16LE: ("S16_LE", "s16le", "s16le"),
    Encoding.MULAW: ("MU_LAW", "mulaw", "ulaw"),
    Encoding.ALAW: ("A_LAW", "alaw", "alaw"),
    Encoding.PCM_F32LE: ("FLOAT_LE", "f32le", "float32le"),
}


def player_command(audio: AudioFormat, which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """The command that plays raw samples from its standard input, by the first player that is installed.

    Raises BadRequest, naming what to install, if there is none.
    """
    alsa, ffmpeg, pulse = _RAW_FORMAT[audio.encoding]
    rate = str(audio.rate)
    choices = [
        ["aplay", "-q", "-t", "raw", "-f", alsa, "-r", rate, "-c", "1", "-"],
        ["paplay", "--raw", f"--format={pulse}", f"--rate={rate}", "--channels=1"],
        ["ffplay", "-nodisp", "-autoexit", "-loglevel", "error", "-f", ffmpeg, "-ar", rate, "-"],
    ]
    for command in choices:
        if which(command[0]):
            return command
    raise BadRequest("--play needs one of aplay (alsa-utils), paplay (pulseaudio-utils) or ffplay (ffmpeg)")


class PlayerSink:
    """A player's standard input; leaving waits for the end of the sound, or kills it after an error."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
        return self

    async def write(self, data: bytes) -> None:
        """Hand on; waits while the player is busy. Raises GatewayError if it went away."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            raise GatewayError(f"{self._command[0]} stopped; is there a sound device?") from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        if error is not None and process.returncode is None:
            process.kill()
        process.stdin.close()
        if await process.wait() != 0 and error is None:
            raise GatewayError(f"{self._command[0]} could not play the sound; is there a sound device?")


async def pieces(text: str) -> AsyncIterator[str]:
    """A known text as deltas."""
    for start in range(0, len(text), LARGEST_PIECE):
        yield text[start : start + LARGEST_PIECE]


async def stdin_pieces(descriptor: int | None = None) -> AsyncIterator[str]:
    """Standard input as deltas while it arrives; UTF-8, characters are never cut.

    Raises BadRequest for other bytes. Cancelling it leaves one blocked read in a thread that ends with the
    process.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    source = sys.stdin.fileno() if descriptor is None else descriptor
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(4)

    def read() -> None:
        # Not every input can be polled (a file cannot), so a thread of its own reads. It is a daemon and
        # reads the bare descriptor, so that it neither delays the exit nor holds a lock during it.
        data = b"-"
        while data:
            try:
                data = os.read(source, LARGEST_PIECE)
            except OSError:  # a terminal that was hung up, a descriptor closed under us: the end of the text
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):  # the loop is closed, or closing
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while True:
        data = await queue.get()
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError:
            raise BadRequest("the text on standard input is not UTF-8") from None
        if text:
            yield text
        if not data:
            return


Progress = Callable[[Spoken], None]


def unreachable(url: str, error: Exception) -> str:
    """Why nothing could be asked at ``url``, in plain words."""
    if not url.startswith(("http://", "https://")):
        return f"{url} is not a gateway's address: it begins with http:// or https://"
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        return f"the certificate of {url} is not trusted, or not for this name (see SSL_CERT_FILE)"
    return f"no gateway can be reached at {url} ({type(error).__name__})"


async def say(
    url: str,
    key: str,
    deltas: AsyncIterator[str],
    sink: Sink,
    audio: AudioFormat,
    *,
    voice: str = "",
    speed: float = 1.0,
    progress: Progress | None = None,
    verify: bool = True,
) -> Spoken:
    """Speak ``deltas`` through the gateway at ``url`` (http or https) into ``sink``.

    Cancelling it closes the connection, which stops the gateway's work.

    Raises:
        Unauthorised: the key is refused.
        GatewayError: unreachable, lost, or the gateway's own error.
        OSError: the sink's own.

    """
    address = url.rstrip("/").replace("http", "ws", 1) + "/v1/stream"
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http:
            headers = {"Authorization": f"Bearer {key}"}
            async with http.ws_connect(
                address, headers=headers, max_msg_size=1 << 20, ssl=verify, autoping=True
            ) as ws:
                return await _Conversation(ws, sink, audio, progress).run(deltas, voice, speed)
    except aiohttp.WSServerHandshakeError as refused:
        if refused.status in {401, 403}:
            raise Unauthorised("the gateway refused the key; give one with --key or VOXWIRE_KEY") from None
        raise GatewayError(f"the gateway refused the connection (HTTP {refused.status})") from None
    except _SinkError as failed:
        raise failed.error from None
    except (aiohttp.ClientError, OSError) as error:
        raise GatewayError(unreachable(url, error)) from None


class _SinkError(Exception):
    """Carries a sink's OSError past those of the connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


class _Conversation:
    def __init__(
        self, ws: aiohttp.ClientWebSocketResponse, sink: Sink, audio: AudioFormat, progress: Progress | None
    ) -> None:
        self._ws, self._sink, self._audio, self._progress = ws, sink, audio, progress
        self._spoken = Spoken(rate=audio.rate)
        self._began = time.monotonic()
        self._all_sent = False
        self._reported = 0

    async def run(self, deltas: AsyncIterator[str], voice: str, speed: float) -> Spoken:
        await self._send({"type": "hello", "version": 1, "client": "voxwire say"})
        await self._send(
            {
                "type": "open",
                "context": CONTEXT,
                "voice": voice,
                "speed": speed,
                "format": {"encoding": self._audio.encoding.value, "sample_rate": self._audio.rate},
                "run_ahead_ms": RUN_AHEAD_MS,
            }
        )
        sender = asyncio.create_task(self._send_text(deltas))
        receiver = asyncio.create_task(self._receive())
        try:
            # Whichever fails first ends both; the receiver ends it when all is spoken.
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and not receiver.done():
                await sender
            return await receiver
        finally:
            for task in (sender, receiver):
                task.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._ws.send_str(msgspec.json.encode(message).decode())

    async def _send_text(self, deltas: AsyncIterator[str]) -> None:
        first = True
        async for text in deltas:
            if first:
                self._began, first = time.monotonic(), False
            await self._send({"type": "text", "context": CONTEXT, "text": text})
        await self._send({"type": "end", "context": CONTEXT})
        self._all_sent = True

    async def _receive(self) -> Spoken:
        last = time.monotonic()
        while True:
            try:
                message = await self._ws.receive(timeout=SILENT_DEADLINE_S)
            except TimeoutError:
                if not self._all_sent:
                    continue  # whoever types takes the time it takes
                raise GatewayError("the gateway fell silent") from None
            if message.type is aiohttp.WSMsgType.BINARY:
                await self._take(message.data)
                if time.monotonic() - last >= 0.1:
                    last = time.monotonic()
                    self._tell()
            elif message.type is aiohttp.WSMsgType.TEXT:
                if self._event(msgspec.json.decode(message.data)):
                    self._tell()
                    return self._spoken
            else:
                raise GatewayError(f"the gateway closed the connection ({self._ws.close_code})")

    async def _take(self, data: bytes) -> None:
        frame = unpack(data)
        if frame.kind is not Kind.SPEECH or not frame.payload:
            return
        if self._spoken.first_audio < 0:
            self._spoken.first_audio = time.monotonic() - self._began
        try:
            await self._sink.write(frame.payload)
        except OSError as error:
            raise _SinkError(error) from None
        self._spoken.samples += len(frame.payload) // self._audio.width
        if self._spoken.samples - self._reported >= self._audio.rate * REPORT_S:
            self._reported = self._spoken.samples
            await self._send({"type": "played", "context": CONTEXT, "sample": self._reported})

    def _event(self, message: dict[str, Any]) -> bool:
        """Take a control message; True at the end."""
        kind = message.get("type")
        if kind == "error" and (message.get("terminal") or message.get("context") in {None, CONTEXT}):
            told = str(message.get("message", "the gateway failed"))
            if message.get("code") == UnknownVoice.code:
                told = "there is no such voice; 'voxwire voices' lists them"
            raise GatewayError(told, retry_after=message.get("retry_after"))
        if kind == "cancelled":
            raise GatewayError("the gateway cut the speech")
        if kind != "done":
            return False
        if message.get("total_samples") != self._spoken.samples:
            raise GatewayError("audio was lost on the way")
        self._spoken.stats = message.get("stats", {})
        self._spoken.underruns = int(self._spoken.stats.get("underruns", 0))
        return True

    def _tell(self) -> None:
        self._spoken.took = time.monotonic() - self._began
        if self._progress is not None:
            self._progress(self._spoken)


__all__ = [
    "FORMATS",
    "FileSink",
    "GatewayError",
    "PlayerSink",
    "Spoken",
    "pieces",
    "player_command",
    "say",
    "stdin_pieces",
    "unreachable",
]
