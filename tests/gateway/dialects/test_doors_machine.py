"""A client of any door as a state machine: turns begun, spoken, ended, interrupted and lost in any order.

After each step nothing was told twice and nothing of our inside: where turns have names each has one end at
most, and elsewhere there are no more of them than were asked for. At the end each turn that has a name, was
ended and not lost has its one end, the neighbour has its own audio to the sample, and nothing is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests import virtual
from tests.gateway.dialects.test_doors_fuzz import INSIDE, STEADY, STEADY_BYTES, STEP_S
from tests.peers.doors import SOCKETS, DoorClient, SocketDoor, door_client
from tests.peers.gateway import open_gateway

WORDS = st.sampled_from(
    ["One two three. ", "word " * 40, "Four", " five. ", "**x** ", "...", " ", "", "\ud83d"]
)
JUNK = ["{", "[]", "null", "5", '"x"', '{"type":"dance"}', "{}"]
PAUSES_S = st.sampled_from([3.0, 1.0, 0.3, 0.01, 0.0])
"""After each step; less in all than any idle limit, as the neighbour stays."""


class DoorMachine(RuleBasedStateMachine):
    """One connection after the other at ``door``, on a loop in virtual time that lasts for one run."""

    door: SocketDoor
    turns = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=virtual.VirtualLoop)
        self._stack, self._connection = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        self._folder = tempfile.TemporaryDirectory()
        self.client: DoorClient
        self.begun = 0
        self.asked = self.cancelled = 0
        """Ends that may be told on this connection, and interruptions."""
        self.said: set[str] = set()  # with words, on this connection, and not ended
        self.over: set[str] = set()  # those that were ended after that
        self._do(self._open())

    def _do(self, step: Coroutine[Any, Any, None], pause_s: float = 0.0) -> None:
        self._runner.run(step)
        self._runner.run(asyncio.sleep(pause_s))

    async def _open(self) -> None:
        self.gateway = await open_gateway(
            self._stack, Path(self._folder.name), clock=virtual.clock, resume_s=1
        )
        self.beside = await self._stack.enter_async_context(door_client(self.gateway, self.door))
        await self.beside.say("steady", STEADY)
        await self._connect()

    async def _connect(self) -> None:
        self._connection = contextlib.AsyncExitStack()
        self.client = await self._connection.enter_async_context(door_client(self.gateway, self.door))
        self.said, self.over, self.asked, self.cancelled = set(), set(), 0, 0

    async def _again(self) -> None:
        """Another connection where this one ended, as some do with their turn."""
        await asyncio.sleep(STEP_S)
        if self.client.ws.closed:
            await self._connection.aclose()
            await self._connect()

    async def _send(self, step: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(ConnectionError):  # the end of a turn may have ended the connection
            await step

    @initialize(target=turns, words=st.sampled_from(["One two three. ", "word " * 40]), pause_s=PAUSES_S)
    def first(self, words: str, pause_s: float) -> Any:
        """One at least is spoken, whatever the rules of this run."""
        return self.begin(words, pause_s)

    @rule(target=turns, words=WORDS, pause_s=PAUSES_S)
    def begin(self, words: str, pause_s: float) -> Any:
        """A new turn; one is spoken at a time where the wire has no names."""
        if len(self.said) >= (3 if self.door.ids else 1):
            return multiple()
        self.begun += 1
        turn = f"turn-{self.begun}"
        self._do(self._begin(turn, words), pause_s)
        return turn

    async def _begin(self, turn: str, words: str) -> None:
        await self._again()
        await self._send(self.client.say(turn, words))
        if words.strip():
            self.said.add(turn)

    @rule(turn=turns, words=WORDS, pause_s=PAUSES_S)
    def say(self, turn: str, words: str, pause_s: float) -> None:
        """More of it; text after the end begins another turn of that name, where there are names."""
        if turn in self.said:
            self._do(self._send(self.client.say(turn, words)), pause_s)

    @rule(turn=turns, pause_s=PAUSES_S)
    def flush(self, turn: str, pause_s: float) -> None:
        """All that is held is to be spoken."""
        if turn in self.said:
            self.asked += type(self.door).end is SocketDoor.end  # where a flush is an end
            self._do(self._send(self.client.flush(turn)), pause_s)

    @rule(turn=turns, how=st.sampled_from(["end", "cancel"]), pause_s=PAUSES_S)
    def finish(self, turn: str, how: str, pause_s: float) -> None:
        """Its end; that of one that is over already is nothing."""
        self.asked += 1
        self.cancelled += how == "cancel"
        self._do(self._send(getattr(self.client, how)(turn)), pause_s)
        if turn in self.said:
            self.said.discard(turn)
            self.over.add(turn)

    @rule(raw=st.sampled_from([*JUNK, None]), pause_s=PAUSES_S)
    def trouble(self, raw: str | None, pause_s: float) -> None:
        """What is no message, or the connection is lost and there is another."""
        if raw is None:
            self._do(self._drop(), pause_s)
        elif not self.door.one_turn:  # which it would end
            self._do(self._send(self.client.ws.send_str(raw)), pause_s)

    async def _drop(self) -> None:
        connection = self.client.ws._conn
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        await self._connection.aclose()
        await self._connect()

    @invariant()
    def nothing_is_told_twice(self) -> None:
        """Of any turn there is one end at most, and nothing after it; errors tell nothing of our inside."""
        if not self.door.ids:
            ends = sum(told.kind == "end" for _, told in self.client.told)
            assert ends <= (1 if self.door.one_turn else self.asked)
        else:
            for turn in self.said | self.over:
                kinds = [told.kind for told in self.client.of(turn)]
                assert self.client.ends(turn) <= 1, (turn, kinds)
                after = kinds[kinds.index("end") :] if "end" in kinds else []
                assert "audio" not in after, (turn, kinds)
        assert not [text for text in self.client.texts if INSIDE.search(text)]
        assert self.client.ws.close_code not in {1006, 1011}

    def teardown(self) -> None:
        """Let all be over, and look at what is left."""
        try:
            self._do(self._settle())
        finally:
            self._runner.close()
            self._folder.cleanup()

    async def _settle(self) -> None:
        for turn in sorted(self.said):
            self.asked, self.cancelled = self.asked + 1, self.cancelled + 1
            await self._send(self.client.cancel(turn))
        await asyncio.sleep(60)
        if self.door.ids and self.door.ends:
            for turn in self.over:
                assert self.client.ends(turn) >= 1, f"{turn} has no end: {self.client.of(turn)}"
        if self.door.name == "deepgram":  # each Clear is answered
            assert self.client.ends("") >= self.cancelled
        await self._connection.aclose()
        await self.beside.end("steady")
        await self.beside.over("steady")
        assert len(self.beside.audio("steady")) == STEADY_BYTES
        assert self.beside.faults == []
        await self.beside.ws.close()
        await asyncio.sleep(3)
        assert self.gateway.idle
        assert not self.gateway.services.sockets
        await self._stack.aclose()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"


@pytest.mark.parametrize("door", SOCKETS, ids=[door.name for door in SOCKETS])
def test_turns_in_any_order_end_once_and_leave_nothing(door: SocketDoor) -> None:
    machine = type(f"{re.sub('[^a-z]', '', door.name)}Machine", (DoorMachine,), {"door": door})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50,
            stateful_step_count=25,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
