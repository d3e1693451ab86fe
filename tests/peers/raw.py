"""A WebSocket client without manners: raw bytes on a raw TCP socket, and every wrong way to leave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import struct
from collections.abc import Mapping

PATIENCE_S = 5.0


def frame(opcode: int, payload: bytes, *, length: int | None = None, fin: bool = True) -> bytes:
    """A masked frame; ``length`` claims another length than the payload has."""
    size = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", size)
    return head + b"\0\0\0\0" + payload  # a mask of zeros leaves the payload as it is


class RawSocket:
    """One connection to ``127.0.0.1:port``; nothing is read unless it is asked for."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.socket()
        self._socket.setblocking(False)
        # A small piece must not wait for the other side's acknowledgement: virtual time does not wait for it.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def connect(self) -> None:
        """Open the TCP connection."""
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", self._port))

    def request(self, path: str, headers: Mapping[str, str]) -> bytes:
        """An upgrade request."""
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def upgrade(self, path: str, headers: Mapping[str, str]) -> None:
        """Connect, upgrade and read the answer's head."""
        await self.connect()
        await self.send(self.request(path, headers))
        head = b""
        while b"\r\n\r\n" not in head:
            more = await self.read()
            assert more, "refused"
            head += more
        assert b" 101 " in head.split(b"\r\n")[0], head

    async def send(self, data: bytes) -> bool:
        """Send bytes; False if the other side is gone, or takes nothing for a while."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except (OSError, TimeoutError):
            return False
        return True

    async def text(self, text: str) -> bool:
        """Send a text message."""
        return await self.send(frame(1, text.encode()))

    async def read(self) -> bytes:
        """What has come; empty at the end, or when nothing comes for a while."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        except (OSError, TimeoutError):
            return b""

    async def until(self, word: bytes) -> None:
        """Read on until ``word`` has come."""
        seen = b""
        while word not in seen:
            more = await self.read()
            assert more, seen[-200:]
            seen = seen[-len(word) :] + more

    def reset(self) -> None:
        """Break off with a TCP reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def half_close(self) -> None:
        """Say that nothing more comes, and stay."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the TCP connection without a word of the protocol."""
        self._socket.close()
