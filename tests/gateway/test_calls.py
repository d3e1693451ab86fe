"""Calls and their agents: a Twilio in memory on one side, agents on real sockets on the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

from gateway.app import drain
from gateway.calls import AGENT_WAIT_S, LAST_WORDS_S, Call, why_none
from gateway.settings import TwilioAccount
from gateway.speaking import voice_revision
from sessions.events import AudioFormat
from telephony.dsp.pcm import decode, encode
from telephony.media_streams.protocol import Dtmf, Media
from tests import virtual
from tests.peers.call import VirtualCall
from tests.peers.garbage import Left
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import NativeClient, native_client
from tests.peers.raw import RawSocket, frame
from tests.peers.twilio import TwilioPeerCore
from tests.tone import RATE, ToneEngine

LONG = "One two three four five. " * 20
TOKEN = "a-token-of-twenty-letters"
PCM16 = {"encoding": "pcm_s16le", "sample_rate": 16000}


@dataclass(eq=False)
class Desk:
    """An agent without a socket."""

    name: str = ""
    free: int = 1
    got: list[Call] = field(default_factory=list)

    @property
    def free_calls(self) -> int:
        return self.free - len(self.got)

    @property
    def agent_name(self) -> str:
        return self.name

    def caller_format(self) -> AudioFormat | None:
        return None

    async def call_started(self, call: Call) -> None:
        self.got.append(call)

    async def call_dtmf(self, call: Call, digit: str) -> None: ...

    async def call_audio(self, call: Call, seq: int, start: int, data: bytes) -> None: ...

    async def call_ended(self, call: Call, reason: str) -> None:
        self.got = [c for c in self.got if c is not call]


@contextlib.asynccontextmanager
async def incoming(
    gateway: Running, tenant: str = "default", **params: str
) -> AsyncIterator[tuple[VirtualCall, Call]]:
    """A call that has come in; not given to anybody yet."""
    hub = gateway.services.calls
    async with VirtualCall(params=params) as peer:
        call = hub.new_call(
            peer.leg, provider="twilio", tenant=tenant, parameters=peer.leg.started.custom_parameters
        )
        pump = asyncio.ensure_future(_pump(peer, call))
        try:
            yield peer, call
        finally:
            await peer.leg.close()
            await pump
            await hub.end(call)


async def _pump(peer: VirtualCall, call: Call) -> None:
    async for event in peer.leg.events():
        if isinstance(event, Media):
            await call.audio(event.payload)
        elif isinstance(event, Dtmf):
            await call.dtmf(event.digit)


def speech_s(heard: bytes | bytearray) -> float:
    """Seconds of tone in what was heard, by frames."""
    frames = [bytes(heard[i : i + 160]) for i in range(0, len(heard), 160)]
    return sum(0.02 for f in frames if np.abs(decode(f, "mulaw")).max() > 0.05)


# Finding an agent


@on_gateway()
async def test_a_call_goes_to_the_agent_with_most_room(gateway: Running) -> None:
    hub = gateway.services.calls
    small, large, other = Desk(free=1), Desk(free=3), Desk(free=9)
    hub.agent_ready(small, "default")
    hub.agent_ready(large, "default")
    hub.agent_ready(other, "somebody else")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            _, call = await stack.enter_async_context(incoming(gateway))
            assert await hub.find_agent(call)
        assert (len(small.got), len(large.got), len(other.got)) == (1, 3, 0)
        assert len(hub.calls) == 4
    assert small.got == large.got == []
    assert not hub.calls


@on_gateway()
async def test_a_call_may_ask_for_an_agent_by_name(gateway: Running) -> None:
    hub = gateway.services.calls
    sales, support = Desk("sales", free=5), Desk("support")
    for agent in (sales, support):
        hub.agent_ready(agent, "default")
    async with incoming(gateway, agent="support", From="+1555") as (_, call):
        assert await hub.find_agent(call)
        assert call.agent is support
        assert (call.caller, call.called) == ("+1555", "")


def test_the_log_says_why_nobody_took_a_call() -> None:
    assert why_none([], "greeter") == "no agent is connected"
    assert why_none([Desk("other")], "greeter") == "no agent has the name that the call asks for"
    assert why_none([Desk("other"), Desk("greeter", free=0)], "greeter") == "all agents are busy"
    assert why_none([Desk(free=0)], "") == "all agents are busy"


@on_gateway()
async def test_a_call_waits_for_an_agent_and_not_for_ever(gateway: Running) -> None:
    hub = gateway.services.calls
    agent = Desk()
    async with incoming(gateway) as (_, first), incoming(gateway) as (_, second):
        waiting = asyncio.ensure_future(hub.find_agent(first))
        await asyncio.sleep(5)
        assert not waiting.done()
        hub.agent_ready(agent, "default")
        hub.agent_ready(agent, "default")  # a resume says so again
        assert await waiting
        began = virtual.clock()
        assert not await hub.find_agent(second)
        assert virtual.clock() - began == pytest.approx(AGENT_WAIT_S, abs=0.1)
        waiting = asyncio.ensure_future(hub.find_agent(second))
        await asyncio.sleep(1)
        await hub.end(first)
        assert await waiting  # room again
        agent.free = 2
        hub.agent_gone(agent, "default")
        waiting = asyncio.ensure_future(hub.find_agent(first))
        hub.capacity_changed()
        await asyncio.sleep(1)
        assert not waiting.done()
        waiting.cancel()


# An agent at work


@contextlib.asynccontextmanager
async def served(
    gateway: Running, agent: dict[str, Any] | None = None, **params: str
) -> AsyncIterator[tuple[VirtualCall, Call, NativeClient, str]]:
    """A call with an agent on a real socket, who has been told of it."""
    wanted = {"name": "desk", "max_calls": 5} | (agent or {})
    async with native_client(gateway, agent=wanted) as client, incoming(gateway, **params) as (peer, call):
        assert await gateway.services.calls.find_agent(call)
        started = await client.until("call.started")
        assert started["call"] == call.id
        yield peer, call, client, call.id


@on_gateway()
async def test_an_agent_is_told_of_its_call(gateway: Running) -> None:
    async with served(gateway, caller="+15551234567", called="+15557654321", order="00123") as (
        *_,
        client,
        call_id,
    ):
        started = next(m for m in client.transcript.messages if m["type"] == "call.started")
        assert started == {
            "type": "call.started",
            "call": call_id,
            "index": 1,
            "provider": "twilio",
            "caller": "+15551234567",
            "called": "+15557654321",
            "parameters": {"caller": "+15551234567", "called": "+15557654321", "order": "00123"},
            "format": {"encoding": "mulaw", "sample_rate": 8000},
            "caller_audio": None,
        }


@pytest.mark.parametrize(("encoding", "rate"), [("mulaw", 8000), ("pcm_s16le", 8000), ("pcm_s16le", 16000)])
def test_the_callers_audio_comes_in_the_format_asked_for(tmp_path: Any, encoding: str, rate: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        wanted = {"encoding": encoding, "sample_rate": rate}
        async with served(gateway, {"caller_audio": wanted}) as (peer, call, client, _):
            tone = 0.5 * np.sin(np.arange(8000) * 2 * np.pi * 440 / 8000)
            payload = encode(tone.astype(np.float32), "mulaw")
            for i in range(50):
                peer.socket.feed(peer.core.media(payload[i * 160 : i * 160 + 160]))
                await asyncio.sleep(0.02)
            peer.socket.feed(peer.core.dtmf("7"))
            assert (await client.until("call.dtmf")) == {"type": "call.dtmf", "call": call.id, "digit": "7"}
            frames = client.transcript.caller
        width = 1 if encoding == "mulaw" else 2
        assert [f.seq for f in frames] == list(range(50))
        position = 0
        for piece in frames:
            assert (piece.index, piece.start) == (call.index, position)
            position += len(piece.payload) // width
        assert position == pytest.approx(rate, abs=rate * 0.005)  # a resampler keeps a few ms back
        samples = decode(b"".join(f.payload for f in frames), encoding)
        assert np.abs(samples).max() == pytest.approx(0.5, abs=0.03)
        if encoding == "mulaw":
            assert b"".join(f.payload for f in frames) == payload

    main(tmp_path)


@on_gateway()
async def test_contexts_of_a_call_take_turns_and_done_means_heard(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        began = virtual.clock()
        for name in ("a", "b"):
            await client.send("open", name, call=call_id, text="One two three four five.", end=True)
        first = await client.until("done")
        first_at = virtual.clock() - began
        second = await client.until("done")
        second_at = virtual.clock() - began
        assert (first["context"], second["context"]) == ("a", "b")
        assert first["total_samples"] == 8000  # at the call's rate
        assert first_at == pytest.approx(1.0, abs=0.1)
        assert second_at == pytest.approx(2.0, abs=0.2)
        assert client.transcript.turns["a"].frames == []  # the audio goes to the caller
        assert client.transcript.turns["a"].text == "One two three four five."
        peer.core.advance()
        assert speech_s(peer.core.heard) == pytest.approx(2.0, abs=0.1)
        assert peer.core.violations == []
        assert peer.core.starved(0.05) == []


@on_gateway()
async def test_a_barge_in_clears_at_once_and_heard_is_exact(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        await client.send("open", "a", call=call_id, text=LONG)
        await client.send("open", "b", call=call_id, text="Never heard.")  # waits for its turn
        await client.until("opened", "b")
        await asyncio.sleep(1.5)
        await client.send("cancel", "a")
        cancelled = await client.until("cancelled", "a")
        peer.core.advance()
        heard = cancelled["heard"]
        assert len(peer.core.clears) == 1
        assert heard["ms"] == pytest.approx(len(peer.core.heard) / 8, abs=21)
        assert heard["text"] + heard["unheard"] == LONG
        spoken = heard["ms"] / 200
        assert len(heard["text"].split()) == pytest.approx(spoken, abs=0.6)
        await client.send("cancel", "b")
        assert (await client.until("cancelled", "b"))["heard"]["sample"] <= 0.2 * 8000
        await client.send("open", "c", call=call_id, text="Go on.", end=True)
        assert (await client.until("done"))["context"] == "c"
        assert peer.core.violations == []


@on_gateway()
async def test_an_interrupt_stays_with_its_own_listener(gateway: Running) -> None:
    async with served(gateway) as (_, _, client, call_id):
        await client.send("open", "page", text=LONG)
        await client.send("open", "a", call=call_id, text=LONG)
        await client.audio("page", 0.5)
        await client.send("open", "b", call=call_id, text="Sure.", end=True, interrupt=True)
        assert (await client.until("cancelled"))["context"] == "a"
        await client.until("done", "b")
        assert client.transcript.turns["page"].end is None
        await client.send("cancel", "page")
        await client.until("cancelled", "page")


@on_gateway()
async def test_a_context_of_a_call_has_the_calls_format(gateway: Running) -> None:
    async with served(gateway) as (_, _, client, call_id):
        await client.send("open", "a", call=call_id, format=PCM16)
        error = await client.until("error")
        assert (error["field"], error["terminal"]) == ("format", True)
        same = {"encoding": "mulaw", "sample_rate": 8000}
        await client.send("open", "a", call=call_id, format=same, text="Hi.", end=True)
        opened = await client.until("opened")
        assert opened["format"] == same
        await client.send("played", "a", sample=5)  # the leg knows better
        await client.until("done")


# The end of a call


@on_gateway()
async def test_a_hang_up_lets_the_last_words_be_heard(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        await client.send("open", "a", call=call_id, text="Thank you and good bye.", end=True)
        await client.send("call.hangup", call=call_id)
        await client.send("call.hangup", call=call_id)  # twice is once
        await client.until("done", "a")
        while not peer.leg.closed:
            await asyncio.sleep(0.05)
        peer.core.advance()
        assert speech_s(peer.core.heard) == pytest.approx(1.0, abs=0.05)
        assert peer.core.violations == []


@on_gateway()
async def test_a_turn_without_end_does_not_keep_a_call(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        await client.send("open", "a", call=call_id, text="And then")
        began = virtual.clock()
        await client.send("call.hangup", call=call_id)
        while not peer.leg.closed:
            await asyncio.sleep(0.5)
        assert virtual.clock() - began == pytest.approx(LAST_WORDS_S, abs=2)


@on_gateway()
async def test_a_hang_up_may_be_at_once(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        await client.send("open", "a", call=call_id, text=LONG, end=True)
        await asyncio.sleep(1)
        await client.send("call.hangup", call=call_id, after_audio=False)
        await asyncio.sleep(0.1)
        assert peer.leg.closed
        peer.core.advance()
        assert len(peer.core.heard) / 8000 < 1.5


@on_gateway()
async def test_the_agent_is_told_the_end_and_its_contexts_are_over_before(gateway: Running) -> None:
    async with native_client(gateway, agent={"name": "desk"}) as client:
        async with incoming(gateway) as (_, call):
            assert await gateway.services.calls.find_agent(call)
            await client.until("call.started")
            await client.send("open", "a", call=call.id, text=LONG)
            await client.until("opened")
            await asyncio.sleep(1)
        ended = await client.until("call.ended")  # the caller hung up
        assert (ended["call"], ended["reason"]) == (call.id, "caller")
        assert client.transcript.turns["a"].end is not None
        await client.send("open", "b", call=call.id, text="Hello?")
        error = await client.until("error")
        assert (error["field"], error["terminal"]) == ("call", True)
        assert gateway.idle


@on_gateway()
async def test_the_agent_learns_how_each_context_ended_when_the_caller_is_gone(gateway: Running) -> None:
    """Also of one that met the closed leg before the end of the call was told."""
    async with native_client(gateway, agent={"name": "desk"}) as client, incoming(gateway) as (peer, call):
        assert await gateway.services.calls.find_agent(call)
        await client.until("call.started")
        for name in ("speaking", "waiting"):
            await client.send("open", name, call=call.id, text=LONG)
        await client.until("opened", "waiting")
        await asyncio.sleep(1)
        await peer.leg.close()
        await asyncio.sleep(5)
        await gateway.services.calls.end(call)
        await client.until("call.ended")
        turns = client.transcript.turns
        assert [(turns[name].end or {})["type"] for name in ("speaking", "waiting")] == ["cancelled"] * 2
        assert 800 < (turns["speaking"].end or {})["heard"]["ms"] < 1500
        (session,) = gateway.services.native_sessions.values()
        assert len(session.contexts) == 0


@on_gateway(twilio=(TwilioAccount("", TOKEN),), public_origin="https://voice.example.com")
async def test_a_carrier_that_breaks_its_protocol_ends_the_call_as_failed(gateway: Running) -> None:
    signature = RequestValidator(TOKEN).compute_signature("wss://voice.example.com/media/twilio", {})
    async with native_client(gateway, agent={"name": "desk"}) as client:
        for bad, reason in (
            (frame(2, b"binary"), "failed"),
            (frame(1, b"{"), "failed"),
            (frame(8, b""), "caller"),
        ):
            raw, core = RawSocket(gateway.port), TwilioPeerCore()
            await raw.upgrade("/media/twilio", {"X-Twilio-Signature": signature})
            await raw.text(core.connected())
            await raw.text(core.start())
            call = (await client.until("call.started"))["call"]
            await raw.send(bad)
            assert await client.until("call.ended") == {"type": "call.ended", "call": call, "reason": reason}
            raw.close()


@on_gateway(twilio=(TwilioAccount("", TOKEN),), public_origin="https://voice.example.com")
async def test_a_call_that_is_over_leaves_nothing_to_the_collector(gateway: Running) -> None:
    signature = RequestValidator(TOKEN).compute_signature("wss://voice.example.com/media/twilio", {})

    async def call(client: NativeClient, name: str) -> None:
        raw, core = RawSocket(gateway.port), TwilioPeerCore()
        await raw.upgrade("/media/twilio", {"X-Twilio-Signature": signature})
        await raw.text(core.connected())
        await raw.text(core.start())
        call = (await client.until("call.started"))["call"]
        await client.send("open", name, call=call, text=LONG, end=True)
        await raw.until(b'"media"')
        await client.send("cancel", name)
        await client.until("cancelled", name)
        raw.close()
        await client.until("call.ended")

    async with native_client(gateway, agent={"name": "desk"}) as client:
        await call(client, "first")  # what is made once is made by now
        with Left() as left:
            await call(client, "second")
            await asyncio.sleep(60)
    assert left.types == {}


@on_gateway(resume_s=10)
async def test_a_call_outlives_a_dropped_agent_for_the_time_of_a_resume(gateway: Running) -> None:
    async with served(gateway) as (peer, _, client, call_id):
        await client.send("open", "a", call=call_id, text="One two three four five.", end=True)
        await client.until("opened")
        client.drop()
        await asyncio.sleep(5)
        answer = await client.connect(resume=client.resume)
        assert answer["resumed"] is True
        await client.until("done", "a")
        peer.core.advance()
        assert speech_s(peer.core.heard) == pytest.approx(1.0, abs=0.05)
        client.drop()
        await asyncio.sleep(11)  # nobody came back: the caller is not left in silence
        assert peer.leg.closed
        assert not gateway.services.native_sessions


@on_gateway(drain_s=20)
async def test_a_call_is_talked_on_during_a_drain_and_ended_at_its_deadline(gateway: Running) -> None:
    services = gateway.services
    async with served(gateway) as (peer, _, client, call_id):
        with services.in_flight.one():  # as its media route has it
            draining = asyncio.ensure_future(drain(services))
            await client.until("draining")
            await client.send("open", "bye", call=call_id, text="We restart. Goodbye.", end=True)
            assert (await client.until("done", "bye"))["context"] == "bye"
            assert speech_s(peer.core.heard) > 0.3
            await client.send("open", "other", text="Not to the call.")
            assert (await client.until("error", "other"))["code"] == "draining"
            assert (await client.until("call.ended"))["reason"] == "draining"
            assert await client.close_code() == 1012
            assert await draining is False


@on_gateway()
async def test_a_draining_agent_gets_no_new_call_and_keeps_its_own(gateway: Running) -> None:
    services = gateway.services
    async with served(gateway) as (peer, _, client, call_id):
        services.draining.set()
        await client.until("draining")
        agent = next(iter(services.native_sessions.values()))
        assert agent.free_calls == 0
        await asyncio.sleep(5)
        await client.settled()  # its socket stays for the call
        await client.send("call.hangup", call=call_id)
        while not peer.leg.closed:
            await asyncio.sleep(0.05)
        await services.calls.end(services.calls.calls[call_id])
        assert (await client.until("call.ended"))["reason"] == "agent"
        assert await client.close_code() == 1012
        services.draining.clear()


@on_gateway(lambda: ToneEngine(second="other", can_clone=True))
async def test_a_voice_made_for_a_call_ends_with_the_hang_up(gateway: Running) -> None:
    services = gateway.services
    data = await gateway.engine.enroll(ToneEngine.tone(RATE, 660), RATE)
    revision = voice_revision(gateway.engine.info)
    async with served(gateway) as (peer, call, client, call_id):
        services.holds.check("default", call_id)
        voice = await services.voices.put("default", call_id, data, 60.0, revision=revision)
        services.holds.add(voice)
        await client.send("open", "a", voice=voice.voice_id, call=call_id, text="One two three.", end=True)
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        assert gateway.engine.pitch(gateway.engine.requests[-1].conditioning) == 660
        await client.send("open", "b", voice=voice.voice_id, text="Not outside of it.", end=True)
        await client.ended("b")
        assert client.transcript.messages[-1]["code"] == "unknown_voice"
        await peer.leg.close()
        await services.calls.end(call)
        assert len(services.holds) == 0
        assert await services.voices.catalogue.list("default", session=call_id) == ()
