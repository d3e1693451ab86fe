from __future__ import annotations

import asyncio

import pytest

from telephony.media_streams.socket import EagerSender
from tests.virtual import run
from tts_core.errors import LegClosed


class Transport:
    """A library's socket: writes, then waits while it is paused."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.drained: asyncio.Future[None] | None = None
        self.finished: list[str] = []
        self.lost = False

    async def send_str(self, text: str) -> None:
        if self.lost:
            raise ConnectionResetError("Cannot write to closing transport")
        self.written.append(text)
        if self.drained is not None:
            await asyncio.shield(self.drained)
            await asyncio.sleep(0)
        self.finished.append(text)

    def pause(self) -> None:
        self.drained = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        assert self.drained is not None
        self.drained.set_result(None)
        self.drained = None


def test_a_send_that_need_not_wait_is_done_when_the_call_returns() -> None:
    async def main() -> None:
        transport = Transport()
        send = EagerSender(transport.send_str)
        send("a")
        send("b")
        assert transport.finished == ["a", "b"]
        assert not send.waiting

    run(main)


def test_a_send_above_the_high_water_mark_is_written_now_and_finished_later() -> None:
    async def main() -> None:
        transport = Transport()
        transport.pause()
        send = EagerSender(transport.send_str, clock=asyncio.get_running_loop().time)
        send("a")
        send("b")
        assert transport.written == ["a", "b"]
        assert transport.finished == []
        await asyncio.sleep(1)
        assert send.waiting == 2
        transport.resume()
        await asyncio.sleep(1)
        assert transport.finished == ["a", "b"]
        assert not send.waiting

    run(main)


def test_a_peer_that_does_not_read_is_given_up() -> None:
    async def main() -> None:
        transport = Transport()
        transport.pause()
        send = EagerSender(transport.send_str, stall_s=5.0, clock=asyncio.get_running_loop().time)
        send("a")
        await asyncio.sleep(4.9)
        send("b")
        await asyncio.sleep(0.2)
        with pytest.raises(LegClosed, match="read"):
            send("c")
        assert transport.written == ["a", "b"]
        send.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not send.waiting

    run(main)


def test_a_lost_connection_is_told_in_our_words() -> None:
    async def main() -> None:
        transport = Transport()
        transport.lost = True
        with pytest.raises(LegClosed) as caught:
            EagerSender(transport.send_str)("a")
        assert "transport" not in caught.value.message

    run(main)


def test_a_connection_lost_while_waiting_leaves_nothing_behind() -> None:
    async def main() -> None:
        transport = Transport()
        transport.pause()
        send = EagerSender(transport.send_str, clock=asyncio.get_running_loop().time)
        send("a")
        assert transport.drained is not None
        transport.drained.set_exception(ConnectionResetError("gone"))
        await asyncio.sleep(0.1)
        assert not send.waiting
        assert transport.finished == []

    run(main)
