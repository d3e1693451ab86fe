"""A faithful Twilio: the other end of a two-way media stream.

``TwilioPeerCore`` is sans-I/O. It makes Twilio's messages, and for ours it does what Twilio does: buffers the
audio, plays it on its clock at 8,000 samples a second, sends a mark back when what came before it has played,
empties the buffer on ``clear`` and sends the pending marks back then. It records what the caller heard, when
the buffer ran dry, and all that Twilio would complain about, with its codes (31950 malformed, 31951 invalid).

``TwilioPeer`` puts it on a real WebSocket, its upgrade signed by the official ``twilio`` package.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

RATE = 8000
FRAME = 160
SILENCE = b"\xff"
HEADERS = (b"RIFF", b"RIFX", b"ID3", b"OggS", b"fLaC")


@dataclass(frozen=True)
class Violation:
    """Something Twilio does not take. ``code``: Twilio's error code; 0 where it plays noise silently."""

    code: int
    what: str


@dataclass(frozen=True)
class Gap:
    """The buffer ran dry after ``heard`` samples, at ``at``, for ``seconds``, and then more audio came."""

    at: float
    seconds: float
    heard: int


@dataclass
class Received:
    """A message of ours as it arrived. ``value``: payload, mark name or nothing."""

    at: float
    event: str
    value: bytes | str = b""


@dataclass
class _Audio:
    data: bytes


@dataclass
class _Mark:
    name: str


@dataclass
class TwilioPeerCore:
    """One stream. All times are seconds of ``clock``."""

    clock: Callable[[], float] = time.monotonic
    stream_sid: str = "MZ" + "0123456789abcdef" * 2
    call_sid: str = "CA" + "0123456789abcdef" * 2
    account_sid: str = "AC" + "0123456789abcdef" * 2
    params: Mapping[str, str] = field(default_factory=dict)
    one_way: bool = False  # <Start><Stream>: everything we send is an error, and no mark comes back
    violations: list[Violation] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    clears: list[float] = field(default_factory=list)
    dropped: int = 0  # samples that a clear emptied
    marks_played: list[tuple[float, str]] = field(default_factory=list)
    marks_cleared: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._buffer: deque[_Audio | _Mark] = deque()
        self._played_to = 0.0  # while audio is buffered: the time up to which it has been played
        self._dry_since: float | None = None
        self._sequence = 0
        self._chunk = 0

    # What Twilio sends

    def connected(self) -> str:
        return json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})

    def start(self, **changes: Any) -> str:
        body = {
            "accountSid": self.account_sid,
            "streamSid": self.stream_sid,
            "callSid": self.call_sid,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": dict(self.params),
        }
        return self._numbered("start", start=body | changes)

    def media(self, payload: bytes = SILENCE * FRAME) -> str:
        self._chunk += 1
        body = {
            "track": "inbound",
            "chunk": str(self._chunk),
            "timestamp": str((self._chunk - 1) * 20),
            "payload": base64.b64encode(payload).decode(),
        }
        return self._numbered("media", media=body)

    def dtmf(self, digit: str) -> str:
        return self._numbered("dtmf", dtmf={"track": "inbound_track", "digit": digit})

    def mark(self, name: str) -> str:
        return self._numbered("mark", mark={"name": name})

    def stop(self) -> str:
        return self._numbered("stop", stop={"accountSid": self.account_sid, "callSid": self.call_sid})

    def _numbered(self, event: str, **body: Any) -> str:
        self._sequence += 1
        head = {"event": event, "sequenceNumber": str(self._sequence), "streamSid": self.stream_sid}
        return json.dumps(head | body)

    # What Twilio does with ours

    @property
    def buffered(self) -> int:
        """Samples in the buffer at the last :meth:`advance`."""
        return sum(len(item.data) for item in self._buffer if isinstance(item, _Audio))

    @property
    def pending_marks(self) -> list[str]:
        return [item.name for item in self._buffer if isinstance(item, _Mark)]

    def receive(self, message: str | bytes) -> list[str]:
        """Take a message of ours; return what Twilio answers at once."""
        now = self.clock()
        answers = self.advance(now)
        if isinstance(message, bytes):
            self._violate(31950, "binary frame")
            return answers
        try:
            parsed = json.loads(message)
            event = parsed["event"]
        except (ValueError, KeyError, TypeError):
            self._violate(31951, "not a JSON object with an event")
            return answers
        if self.one_way:
            self._violate(31951, f"{event} on a one-way stream")
            return answers
        if event not in ("media", "mark", "clear"):
            self._violate(31951, f"unknown event {event}")
            return answers
        if parsed.get("streamSid") != self.stream_sid:
            self._violate(31951, "wrong streamSid")
            return answers
        return answers + {"media": self._media, "mark": self._mark, "clear": self._clear}[event](parsed, now)

    def advance(self, now: float | None = None) -> list[str]:
        """Play up to ``now``; return the marks that come back."""
        now = self.clock() if now is None else now
        answers = []
        while self._buffer:
            head = self._buffer[0]
            if isinstance(head, _Mark):
                self._buffer.popleft()
                self.marks_played.append((self._played_to, head.name))
                answers.append(self.mark(head.name))
                continue
            # Round to the nearest sample: float time must not hold one back.
            ready = min(len(head.data), max(0, round((now - self._played_to) * RATE)))
            self.heard += head.data[:ready]
            self._played_to += ready / RATE
            if ready < len(head.data):
                head.data = head.data[ready:]
                break
            self._buffer.popleft()
            self._dry_since = self._played_to
        return answers

    def next_mark(self) -> float | None:
        """When the next mark is due if nothing else happens."""
        ahead = 0
        for item in self._buffer:
            if isinstance(item, _Mark):
                return self._played_to + ahead / RATE
            ahead += len(item.data)
        return None

    def starved(self, at_least: float = 0.0) -> list[Gap]:
        """Dry spells longer than ``at_least`` seconds (and than a sample)."""
        return [gap for gap in self.gaps if gap.seconds > max(at_least, 1.5 / RATE)]

    def media_since_clear(self) -> bytes:
        """All audio that arrived after the last ``clear``."""
        events = [item.event for item in self.received]
        last = len(events) - events[::-1].index("clear") if "clear" in events else 0
        return b"".join(item.value for item in self.received[last:] if isinstance(item.value, bytes))

    def _media(self, parsed: dict[str, Any], now: float) -> list[str]:
        try:
            payload = base64.b64decode(parsed["media"]["payload"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error):
            self._violate(31951, "media without a base64 payload")
            return []
        self.received.append(Received(now, "media", payload))
        if not payload:
            self._violate(0, "empty media")
            return []
        if payload.startswith(HEADERS):
            self._violate(0, "a file header in the audio")
        if len(payload) % FRAME:
            self._violate(0, "not whole frames")
        if not self._buffer:
            if self._dry_since is not None and now > self._dry_since:
                self.gaps.append(Gap(self._dry_since, now - self._dry_since, len(self.heard)))
            self._played_to = now if self._dry_since is None else max(now, self._dry_since)
        self._buffer.append(_Audio(payload))
        return []

    def _mark(self, parsed: dict[str, Any], now: float) -> list[str]:
        try:
            name = str(parsed["mark"]["name"])
        except (KeyError, TypeError):
            self._violate(31951, "mark without a name")
            return []
        self.received.append(Received(now, "mark", name))
        if not self._buffer:
            self.marks_played.append((now, name))
            return [self.mark(name)]
        self._buffer.append(_Mark(name))
        return []

    def _clear(self, parsed: dict[str, Any], now: float) -> list[str]:
        self.received.append(Received(now, "clear"))
        self.clears.append(now)
        pending = self.pending_marks
        self.marks_cleared += [(now, name) for name in pending]
        self.dropped += self.buffered
        self._buffer.clear()
        self._dry_since = None  # what follows a clear is a new utterance, not a gap
        return [self.mark(name) for name in pending]

    def _violate(self, code: int, what: str) -> None:
        self.violations.append(Violation(code, what))


class TwilioPeer:
    """A call on a real socket.

    Args:
        url: where to connect, e.g. ``ws://127.0.0.1:PORT/media/twilio``.
        auth_token: signs the upgrade.
        public_url: the URL in the TwiML, which is what is signed; ``url`` itself by default.
        params: the TwiML's ``<Parameter>`` elements.
        signature: sent instead of the right one; ``""`` sends none.
    """

    def __init__(
        self,
        url: str,
        auth_token: str,
        public_url: str | None = None,
        params: Mapping[str, str] | None = None,
        *,
        signature: str | None = None,
        **core: Any,
    ) -> None:
        self.core = TwilioPeerCore(params=params or {}, **core)
        self.closed = asyncio.Event()
        self.close_code: int | None = None
        self.first_audio_at: float | None = None
        self._url = url
        right = RequestValidator(auth_token).compute_signature(public_url or url, {})
        self._signature = right if signature is None else signature
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._caller: deque[bytes] = deque()

    async def __aenter__(self) -> TwilioPeer:
        await self.connect()
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()

    async def connect(self) -> None:
        """Make the upgrade. Raises aiohttp.WSServerHandshakeError when it is refused (31920)."""
        headers = {"X-Twilio-Signature": self._signature} if self._signature else {}
        self._session = aiohttp.ClientSession()
        try:
            self._socket = await self._session.ws_connect(
                self._url,
                headers=headers,
                compress=0,
                autoping=True,
                timeout=aiohttp.ClientWSTimeout(ws_close=5),
            )
        except BaseException:
            await self._session.close()
            raise

    async def begin(self, *, caller: bool = True) -> None:
        """Send ``connected`` and ``start``, then the caller's audio each 20 ms: silence, or :meth:`say`."""
        await self.send(self.core.connected())
        await self.send(self.core.start())
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._play())]
        if caller:
            self._tasks.append(asyncio.create_task(self._talk()))

    async def send(self, text: str | bytes) -> None:
        """Send anything, also what Twilio never would."""
        assert self._socket is not None
        if isinstance(text, bytes):
            await self._socket.send_bytes(text)
        else:
            await self._socket.send_str(text)

    def say(self, audio: bytes) -> None:
        """Let the caller say mu-law audio, instead of silence."""
        self._caller.extend(audio[i : i + FRAME].ljust(FRAME, SILENCE) for i in range(0, len(audio), FRAME))

    async def press(self, digits: str) -> None:
        """Press keys."""
        for digit in digits:
            await self.send(self.core.dtmf(digit))

    async def hang_up(self) -> None:
        """The caller hangs up: ``stop``, then close. Safe to repeat."""
        if self._socket is not None and not self._socket.closed:
            try:
                await self.send(self.core.stop())
            except (ConnectionError, RuntimeError):
                self.closed.set()  # the other side was faster
        await self.drop()

    async def drop(self) -> None:
        """Close without ``stop``."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()

    async def wait(self, condition: Callable[[TwilioPeerCore], bool], timeout_s: float = 10.0) -> None:
        """Wait until ``condition`` holds, tried on every message; TimeoutError if it does not."""
        async with asyncio.timeout(timeout_s):
            while True:
                self.core.advance()
                if condition(self.core):
                    return
                self._changed.clear()
                try:
                    async with asyncio.timeout(0.01):
                        await self._changed.wait()
                except TimeoutError:
                    if self.closed.is_set() and not self.core.buffered and not condition(self.core):
                        raise ConnectionError("the stream was closed before it happened") from None

    async def _read(self) -> None:
        assert self._socket is not None
        async for message in self._socket:
            if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                break
            if self.first_audio_at is None and '"media"' in str(message.data):
                self.first_audio_at = self.core.clock()
            for answer in self.core.receive(message.data):
                await self.send(answer)
            self._changed.set()
        self.close_code = self._socket.close_code
        self.closed.set()
        self._changed.set()

    async def _play(self) -> None:
        """Send marks back when they are due."""
        while not self.closed.is_set():
            due = self.core.next_mark()
            wait = 0.02 if due is None else min(0.02, max(0.0, due - self.core.clock()))
            await asyncio.sleep(wait)
            for answer in self.core.advance():
                await self.send(answer)
                self._changed.set()

    async def _talk(self) -> None:
        start = self.core.clock()
        frames = 0
        while not self.closed.is_set():
            await self.send(self.core.media(self._caller.popleft() if self._caller else SILENCE * FRAME))
            frames += 1
            await asyncio.sleep(max(0.0, start + frames * 0.02 - self.core.clock()))
