from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.outbox import Outbox, ResumeGap
from tests import virtual
from tts_core.errors import LegClosed


class Wire:
    """Takes messages until it breaks."""

    def __init__(self, breaks_after: int = 10**9) -> None:
        self.got: list[str | bytes] = []
        self.left = breaks_after

    async def send(self, message: str | bytes) -> None:
        await asyncio.sleep(0)
        if self.left == 0:
            raise LegClosed
        self.left -= 1
        self.got.append(message)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 3))
def test_nothing_is_lost_or_doubled_over_any_breaks(breaks: list[int], ahead: int) -> None:
    async def main() -> None:
        box = Outbox()
        received: list[str | bytes] = []
        number = 0
        for after in breaks:
            wire = Wire(after)
            try:
                await box.attach(wire.send, len(received))
            except LegClosed:
                pass
            for _ in range(after + ahead):
                await box.push(str(number))
                number += 1
            received += wire.got
            box.detach()
        last = Wire()
        await box.attach(last.send, len(received))
        received += last.got
        assert received == [str(i) for i in range(number)]

    virtual.run(main)


def test_messages_pushed_during_a_replay_keep_their_order() -> None:
    async def main() -> None:
        box = Outbox()
        for i in range(5):
            await box.push(str(i))
        wire = Wire()

        async def push() -> None:
            for i in range(5, 10):
                await box.push(str(i))
                await asyncio.sleep(0)

        await asyncio.gather(box.attach(wire.send, 2), push())
        assert wire.got == [str(i) for i in range(2, 10)]

    virtual.run(main)


def test_a_gap_or_a_claim_too_far_is_refused() -> None:
    async def main() -> None:
        box = Outbox(keep_bytes=10)
        wire = Wire()
        await box.attach(wire.send)
        for _ in range(10):
            await box.push("12345")
        for received in (0, 11):
            with pytest.raises(ResumeGap):
                await box.attach(Wire().send, received)

    virtual.run(main)


def test_senders_wait_at_the_limit_and_go_on_after_a_resume() -> None:
    async def main() -> None:
        box = Outbox(keep_bytes=10)
        await box.push("12345")
        await box.push("12345")
        waiting = asyncio.ensure_future(box.push("67890"))
        await asyncio.sleep(1)
        assert not waiting.done()
        wire = Wire()
        await box.attach(wire.send, 0)
        await waiting
        assert wire.got == ["12345", "12345", "67890"]

    virtual.run(main)


def test_closing_frees_those_who_wait() -> None:
    async def main() -> None:
        box = Outbox(keep_bytes=1)
        await box.push("1")
        waiting = asyncio.ensure_future(box.push("2"))
        await asyncio.sleep(0)
        box.close()
        with pytest.raises(LegClosed):
            await waiting
        with pytest.raises(LegClosed):
            await box.push("3")

    virtual.run(main)


def test_live_messages_are_neither_kept_nor_counted() -> None:
    async def main() -> None:
        box = Outbox()
        await box.push_live(b"lost")
        wire = Wire()
        await box.attach(wire.send)
        await box.push_live(b"now")
        assert (wire.got, box.count) == ([b"now"], 0)

    virtual.run(main)


def test_a_connection_that_was_taken_over_stops_replaying() -> None:
    async def main() -> None:
        box = Outbox()
        for i in range(5):
            await box.push(str(i))
        first, second = Wire(), Wire()
        slow = asyncio.ensure_future(box.attach(first.send, 0))
        await asyncio.sleep(0)
        await box.attach(second.send, 0)
        with pytest.raises(LegClosed):
            await slow
        await box.push("5")
        assert second.got == ["0", "1", "2", "3", "4", "5"]
        assert "5" not in first.got

    virtual.run(main)


def test_a_session_that_ends_during_a_replay_is_not_attached_to() -> None:
    async def main() -> None:
        box = Outbox()
        await box.push("0")
        await box.push("1")
        replay = asyncio.ensure_future(box.attach(Wire().send, 0))
        await asyncio.sleep(0)
        box.close()
        with pytest.raises(LegClosed):
            await replay
        assert not box.attached

    virtual.run(main)


def test_a_broken_connection_is_let_go_and_loses_nothing() -> None:
    async def main() -> None:
        box = Outbox()
        await box.attach(Wire(0).send)
        await box.push("0")
        assert not box.attached
        await box.attach(Wire(1).send, 0)
        await box.push_live(b"lost")
        assert not box.attached
        last = Wire()
        await box.attach(last.send, 0)
        assert last.got == ["0"]

    virtual.run(main)
