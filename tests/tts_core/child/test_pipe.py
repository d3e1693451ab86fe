"""An end of a real socket on an event loop; the other end blocks in a thread or is another pipe."""

from __future__ import annotations

import asyncio
import socket

import numpy as np
import pytest

from tests.tts_core.child.cases import LANGUAGE, Echo, Message
from tts_core.child.frames import FrameError, numbers, raw
from tts_core.child.pipe import Pipe, open_pipe


class End:
    """What a pipe told."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[tuple[Message, memoryview]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.lost = 0

    def on_message(self, message: Message, payload: memoryview) -> None:
        if isinstance(message, Echo) and message.words == "forbidden":
            raise FrameError("that has no business here")
        self.got.put_nowait((message, payload))

    def on_lost(self) -> None:
        self.lost += 1
        self.gone.set()

    async def open(self, sock: socket.socket) -> Pipe[Message]:
        return await open_pipe(sock, LANGUAGE, self.on_message, self.on_lost, name="the peer")


async def test_many_frames_are_under_way_both_ways_at_once() -> None:
    one, other = socket.socketpair()
    left, right = End(), End()
    first, second = await left.open(one), await right.open(other)
    audio = np.arange(100_000, dtype=np.float32)
    for k in range(20):
        first.send(Echo(k), raw(audio + k))
        second.send(Echo(100 + k), raw(audio - k))
    assert first.unsent > 0  # a megabyte each: the buffers of the system hold less
    async with asyncio.timeout(30):
        for k in range(20):
            message, payload = await right.got.get()
            assert message == Echo(k)
            assert np.array_equal(numbers(payload, np.float32), audio + k)
            message, payload = await left.got.get()
            assert message == Echo(100 + k)
            assert np.array_equal(numbers(payload, np.float32), audio - k)
        assert first.unsent == 0
        first.abort()
        first.abort()
        await right.gone.wait()
        await left.gone.wait()
    first.send(Echo(1))  # to nobody
    second.abort()
    await asyncio.sleep(0)
    assert (left.lost, right.lost) == (1, 1)


async def test_what_is_sent_may_be_changed_afterwards() -> None:
    one, other = socket.socketpair()
    left, right = End(), End()
    first = await left.open(one)
    array = np.zeros(1 << 20, np.float32)
    first.send(Echo(1), raw(array))
    array[:] = 1
    second = await right.open(other)
    async with asyncio.timeout(30):
        _, payload = await right.got.get()
    assert not numbers(payload, np.float32).any()
    first.abort()
    second.abort()


@pytest.mark.parametrize("stream", [b"HTTP/1.1 200 OK", b"".join(LANGUAGE.encode(Echo(1, "forbidden")))])
async def test_who_breaks_the_protocol_is_cut_off(stream: bytes, caplog: pytest.LogCaptureFixture) -> None:
    one, other = socket.socketpair()
    end = End()
    await end.open(one)
    with other:
        other.sendall(stream)
        async with asyncio.timeout(30):
            await end.gone.wait()
        with pytest.raises(OSError):
            other.sendall(b"more")
    assert end.lost == 1
    assert end.got.empty()
    assert "a peer broke the protocol" in caplog.text


def test_nothing_is_sent_before_there_is_a_connection() -> None:
    end = End()
    pipe = Pipe(LANGUAGE, end.on_message, end.on_lost)
    pipe.send(Echo(1))
    pipe.abort()
    assert pipe.unsent == 0
