"""The connections of Wyoming's clients: limits, deadlines, drain. See the package for who may come in."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from gateway import logs
from gateway.collector import strip
from gateway.sockets import CLOSE_DEADLINE_S, SEND_DEADLINE_S, Bucket
from sessions.principal import Principal, Scope
from tts_core.errors import BadRequest, Busy, LegClosed, SettingsError, VoxwireError

from . import wire
from .session import DIALECT, Session

if TYPE_CHECKING:
    from gateway.services import Services

CONNECTIONS = 100
"""At once; one more is told so and closed."""
QUEUE = 64
"""Events of one client that wait for what is being spoken; then it is not read any more."""
WITHIN_S = 30.0
"""An event that has begun is complete by then, or its sender is gone."""
READ = 1 << 13
"""Bytes looked at before others have their turn: some hundred events, be they ever so short."""

_log = logging.getLogger(__name__)


class Connection:
    """One client."""

    def __init__(
        self, services: Services, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._services, self._reader, self._writer = services, reader, writer
        settings = services.settings
        self._framing = wire.Reader(
            wire.Limits(line=settings.max_message_bytes, data=settings.max_body_bytes)
        )
        principal = Principal(settings.wyoming_tenant, DIALECT, frozenset({Scope.SPEAK, Scope.VOICE_READ}))
        self._session = Session(services, principal, self._send, self._hang_up)
        self._bucket = Bucket(settings.messages_per_s, services.clock)
        self._events: asyncio.Queue[wire.Event] = asyncio.Queue(QUEUE)
        self._handling = False
        self._leaving = False
        self._began = 0.0
        """When the event that is being received began, by the loop's clock."""
        self._sent = services.metrics.bytes.labels(DIALECT, "out")
        self._received = services.metrics.bytes.labels(DIALECT, "in")

    async def run(self) -> None:
        """Serve until the client goes, or is told to; nothing of it is spoken afterwards."""
        speaking = asyncio.create_task(self._speak(), name="wyoming speech")
        try:
            await self._receive()
        except (LegClosed, ConnectionError):
            pass
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await self._session.abort()
            await self._close()

    def leave(self) -> None:
        """The gateway is about to stop: end the connection, after what it is speaking."""
        self._leaving = True
        self._leave_if_idle()

    async def refuse(self, error: VoxwireError) -> None:
        """Tell why there is no room, and close."""
        try:
            await self._session.fail(error)
        except LegClosed:
            pass
        await self._session.abort()
        await self._close()

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while data := await self._read():
            self._received.inc(len(data))
            within = self._framing.within
            try:
                items = self._framing.feed(data)
            except wire.Broken as broken:
                await self._session.fail(broken)
                return
            for item in items:
                await asyncio.sleep(self._bucket.take())  # also where that is 0: others have their turn
                await self._sort(item)
            if items or not within:
                self._began = loop.time()

    async def _read(self) -> bytes:
        """What comes next; nothing when the client is gone, idle, or stuck within an event."""
        while True:
            within = self._framing.within
            due = self._began + WITHIN_S
            if not within:
                due = asyncio.get_running_loop().time() + self._services.settings.socket_idle_s
            try:
                async with asyncio.timeout_at(due):
                    return await self._reader.read(READ)
            except TimeoutError:
                if within or not self._working:
                    return b""

    async def _sort(self, item: wire.Event | BadRequest) -> None:
        """Answer at once what can be, and let the rest be done in order."""
        try:
            if isinstance(item, BadRequest):
                raise item
            if not await self._session.answer(item):
                await self._events.put(item)
        except LegClosed:
            raise
        except VoxwireError as error:
            self._services.metrics.refused(error.code)
            await self._send(wire.error(error))

    @property
    def _working(self) -> bool:
        return self._handling or self._session.busy or not self._events.empty()

    async def _speak(self) -> None:
        while True:
            event = await self._events.get()
            if self._writer.is_closing():
                continue  # nobody would hear it
            self._handling = True
            try:
                await self._session.take(event)
            except LegClosed:
                self._hang_up()
            except Exception as error:  # the one place where everything must become an answer
                if not isinstance(error, VoxwireError):
                    _log.error("event failed", exc_info=error)
                await self._fail(error)
            finally:
                self._handling = False
            self._leave_if_idle()

    async def _fail(self, error: Exception) -> None:
        try:
            await self._session.fail(error)
        except LegClosed:
            self._hang_up()

    def _leave_if_idle(self) -> None:
        if self._leaving and not self._working:
            self._hang_up()

    def _hang_up(self) -> None:
        """End the connection after what was sent, or after SEND_DEADLINE_S where that is not taken."""
        if self._writer.is_closing():
            return
        self._writer.close()
        if self._writer.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(SEND_DEADLINE_S, self._writer.transport.abort)

    async def _send(self, data: bytes) -> None:
        """Write an event. Raises LegClosed if the client is gone, or took nothing for SEND_DEADLINE_S."""
        writer = self._writer
        if writer.is_closing():
            raise LegClosed("the connection is closed")
        writer.write(data)
        self._sent.inc(len(data))
        if not writer.transport.get_write_buffer_size():
            return  # it has left already: nothing to wait for, and a timer saved for each piece of audio
        try:
            async with asyncio.timeout(SEND_DEADLINE_S):
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()
            raise LegClosed("the client does not read") from None
        except ConnectionError:
            raise LegClosed("the connection is closed") from None

    async def _close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError) as error:
            strip(error)
            self._writer.transport.abort()


class WyomingServer:
    """Listens at ``settings.wyoming`` from ``start`` to ``close``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self.url = ""
        """Where clients connect to, once started."""

    async def start(self) -> None:
        """Listen. Raises SettingsError when the address cannot be had."""
        address = self._services.settings.wyoming
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._connected, host.strip("[]"), int(port))
        except OSError as error:
            raise SettingsError(
                f"wyoming = {address!r} cannot be opened ({os.strerror(error.errno or 0)}); "
                "set VOXWIRE_WYOMING to a free port"
            ) from None
        self.url = f"tcp://{host}:{self._server.sockets[0].getsockname()[1]}"
        self._services.spawn(self._drain(), name="wyoming drain")

    async def close(self) -> None:
        """Listen no more. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._services.spawn(self._serve(reader, writer), name="wyoming connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        services = self._services
        connection = Connection(services, reader, writer)
        with logs.bound(dialect=DIALECT):
            if len(self._connections) >= CONNECTIONS:
                await connection.refuse(Busy("too many connections", retry_after=1.0))
                return
            self._connections.add(connection)
            sessions = services.metrics.sessions.labels(DIALECT)
            sessions.inc()
            try:
                await connection.run()
            finally:
                sessions.dec()
                self._connections.discard(connection)

    async def _drain(self) -> None:
        await self._services.draining.wait()
        await self.close()
        for connection in list(self._connections):
            connection.leave()


__all__ = ["WyomingServer"]
