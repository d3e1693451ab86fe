"""WebSockets with limits: what every dialect's socket needs before it may trust its peer to behave.

The rules (protocols.md 0, R10, R28; trust.md S8): pings are answered and pongs never required, compression is
declined, a message has a size, a client a message rate, a socket an idle limit measured in hours, and a peer
that does not read is cut after a deadline. Cancelling any of these methods leaves the socket to its owner's
``close``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from gateway import logs
from gateway.collector import strip
from tts_core.errors import BadRequest, Busy, LegClosed

if TYPE_CHECKING:
    from gateway.services import Services
    from sessions.principal import Principal

SEND_DEADLINE_S = 10.0
"""A peer that takes nothing for this long is gone; run-ahead is bounded by a clock long before (S8, R5)."""
CLOSE_DEADLINE_S = 2.0
SMALL = 60 * 1024
"""Bytes that a connection with nothing unsent takes without a wait: below every mark at which one begins."""
AT_ONCE_S = 0.0001
"""A message that took no longer was there already: asking for it did not let others run."""


def takes_at_once(request: web.Request, size: int) -> bool:
    """Whether so many bytes can be written to the connection without a wait: no deadline is needed then."""
    transport = request.transport
    return transport is not None and transport.get_write_buffer_size() == 0 and size < SMALL


class Bucket:
    """A token bucket: ``rate`` a second on average, twice that in one burst. Seconds of ``clock``."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate, self._full, self._clock = rate, 2.0 * rate, clock
        self._level, self._at = self._full, clock()

    def take(self) -> float:
        """Take one more; how long to wait before it is due, 0 where there was room."""
        now = self._clock()
        self._level = min(self._full, self._level + (now - self._at) * self._rate) - 1.0
        self._at = now
        return max(0.0, -self._level / self._rate)


class Socket:
    """One accepted WebSocket of a dialect."""

    def __init__(
        self,
        services: Services,
        request: web.Request,
        ws: web.WebSocketResponse,
        dialect: str,
        principal: Principal,
    ) -> None:
        self.request, self.ws, self.dialect, self.principal = request, ws, dialect, principal
        self._services = services
        self._bucket = Bucket(services.settings.messages_per_s, services.clock)
        self._sent = services.metrics.bytes.labels(dialect, "out")
        self._received = services.metrics.bytes.labels(dialect, "in")
        self._closing: asyncio.Event | None = None  # of a close under way

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.ws.closed

    async def send(self, data: str | bytes) -> None:
        """Send one text or binary message.

        Raises LegClosed if the peer is gone, or took nothing for SEND_DEADLINE_S and was cut.
        """
        if self.ws.closed:
            raise LegClosed("the connection is closed")
        try:
            # A character beyond ASCII takes up to four bytes.
            size = len(data) if isinstance(data, bytes) or data.isascii() else 4 * len(data)
            if takes_at_once(self.request, size):
                await self._write(data)
            else:
                async with asyncio.timeout(SEND_DEADLINE_S):
                    await self._write(data)
        except TimeoutError:
            self.abort()
            raise LegClosed("the client does not read") from None
        except (ConnectionError, RuntimeError):
            raise LegClosed("the connection is closed") from None
        self._sent.inc(len(data))

    async def _write(self, data: str | bytes) -> None:
        if isinstance(data, str):
            await self.ws.send_str(data)
        else:
            await self.ws.send_bytes(data)

    async def messages(self) -> AsyncIterator[str | bytes]:
        """Messages as they come; ends when the peer closes, breaks the protocol or idles.

        A peer that sends more than ``messages_per_s`` is read that slowly, and then waits by TCP: one socket
        may carry many calls, and a burst after a stall of the network is no reason to end them.
        """
        clock = self._services.clock
        while True:
            asked = clock()
            try:
                message = await self.ws.receive(timeout=self._services.settings.socket_idle_s)
            except TimeoutError:
                await self.close(WSCloseCode.OK, "idle")
                return
            if message.type is WSMsgType.TEXT or message.type is WSMsgType.BINARY:
                self._received.inc(len(message.data))
                wait = self._bucket.take()
                if wait > 0 or clock() - asked < AT_ONCE_S:
                    await asyncio.sleep(wait)
                yield message.data
            elif message.type not in {WSMsgType.PING, WSMsgType.PONG}:
                return

    async def close(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Close with a code and our words; a peer that does not answer is dropped after CLOSE_DEADLINE_S.

        A second call returns when the first one is through, which is cut short by nothing.
        """
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self.ws.close(code=code, message=reason.encode()[:120])
        except (TimeoutError, ConnectionError, RuntimeError):
            self.abort()
        finally:
            self._closing.set()

    def abort(self) -> None:
        """Drop the connection now; unsent data is thrown away."""
        transport = self.request.transport
        if transport is not None:
            transport.abort()


@asynccontextmanager
async def accept(
    services: Services,
    request: web.Request,
    dialect: str,
    principal: Principal,
    protocols: tuple[str, ...] = (),
) -> AsyncIterator[Socket]:
    """Upgrade an *already authenticated* request and hold the socket's place for the block.

    Raises Draining, Busy, or BadRequest for what is no upgrade, before the upgrade; LegClosed where the
    client has gone by then. On leaving, the socket is closed and forgotten, whatever happened inside.
    """
    services.refuse_if_draining()
    settings = services.settings
    if len(services.sockets) >= settings.max_sockets:
        raise Busy("too many connections", retry_after=1.0)
    ws = web.WebSocketResponse(
        timeout=CLOSE_DEADLINE_S,
        autoping=True,
        heartbeat=None,
        compress=False,
        protocols=protocols,
        max_msg_size=settings.max_message_bytes,
    )
    if request.method != hdrs.METH_GET or not ws.can_prepare(request):  # a HEAD comes here, too
        raise BadRequest("a WebSocket is spoken here: connect to this address with ws:// or wss://")
    socket = Socket(services, request, ws, dialect, principal)
    services.sockets.add(socket)
    sessions = services.metrics.sessions.labels(dialect)
    sessions.inc()
    try:
        with logs.bound(dialect=dialect):
            try:
                await ws.prepare(request)
            except ConnectionError:
                raise LegClosed("the client went before the upgrade") from None
            yield socket
    finally:
        services.sockets.discard(socket)
        sessions.dec()
        if not ws.closed and ws.prepared:
            await socket.close()
        strip(ws.exception())
