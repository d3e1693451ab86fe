"""Phone calls from end to end: a gateway process, the real voice, the README's agent, a Twilio peer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any
from xml.etree import ElementTree

import aiohttp
import pytest

from telephony.dsp.level import rms_dbfs
from telephony.dsp.pcm import decode
from tests.peers.process import ROOT, GatewayProcess
from tests.peers.twilio import TwilioPeer, TwilioPeerCore

pytestmark = pytest.mark.slow

TOKEN = "twilio-token-0123456789abcdef"
ORIGIN = "https://voice.example.com"
PUBLIC = "wss://voice.example.com/media/twilio"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess(public_origin=ORIGIN, twilio_auth_token=TOKEN) as running:
        yield running


class Agent:
    """The README's agent, as it is shipped."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(ROOT / "deploy" / "agent.py")],
            env=os.environ | {"VOXWIRE_URL": gateway.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.lines = self.process.stdout
        assert self.lines.readline() == "waiting for calls\n"

    def stop(self) -> str:
        self.process.terminate()
        return self.lines.read()


@pytest.fixture(scope="module")
def agent(gateway: GatewayProcess) -> Iterator[Agent]:
    running = Agent(gateway)
    yield running
    running.stop()


def call(gateway: GatewayProcess, **params: str) -> TwilioPeer:
    return TwilioPeer(gateway.ws + "/media/twilio", TOKEN, PUBLIC, params)


def speech_s(heard: bytes) -> float:
    """Seconds of heard audio in 20 ms frames that are not silence."""
    frames = [heard[i : i + 160] for i in range(0, len(heard), 160)]
    return sum(rms_dbfs(decode(f, "mulaw")) > -45 for f in frames) * 0.02


def twiml() -> dict[str, str]:
    """The parameters of the TwiML that we ship: it must reach the README's agent."""
    found = ElementTree.parse(ROOT / "deploy" / "twiml.xml").iter("Parameter")
    return {parameter.attrib["name"]: parameter.attrib["value"] for parameter in found}


async def test_a_call_is_greeted_and_its_digits_spoken_back(gateway: GatewayProcess, agent: Agent) -> None:
    async with call(gateway, **twiml(), name="Ada") as peer:
        await peer.wait(lambda core: speech_s(bytes(core.heard)) > 1.4, 15)
        greeting = len(peer.core.heard)
        await peer.press("407")
        await peer.wait(lambda core: speech_s(bytes(core.heard[greeting:])) > 1.0, 15)
        assert peer.core.violations == []
        assert peer.core.starved(0.05) == []
        assert peer.core.clears  # a key interrupts what is being said
        before = len(peer.core.heard)
        await peer.press("#")
        async with asyncio.timeout(20):
            await peer.closed.wait()
        peer.core.advance()
        assert speech_s(bytes(peer.core.heard[before:])) > 0.8  # "Thank you. Goodbye." was heard to its end
    assert peer.core.violations == []


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ({"VOXWIRE_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1"),
        ({"VOXWIRE_PORT": "1"}, "http://127.0.0.1:1"),
        ({"VOXWIRE_PORT": "2", "VOXWIRE_URL": "http://localhost:1"}, "http://localhost:1"),
    ],
)
def test_an_agent_without_a_gateway_says_what_to_do(named: dict[str, str], address: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")} | named
    command = [sys.executable, str(ROOT / "deploy" / "agent.py")]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"no gateway answers at {address}: start one")
    assert len(run.stderr.splitlines()) == 1


async def test_a_barge_in_stops_at_once_and_the_heard_text_is_exact(
    gateway: GatewayProcess, agent: Agent
) -> None:
    async with call(gateway) as peer:
        await peer.wait(lambda core: speech_s(bytes(core.heard)) > 0.8, 15)
        pressed = peer.core.clock()
        await peer.press("5")
        await peer.wait(lambda core: bool(core.clears), 5)
        assert peer.core.clears[0] - pressed < 0.25
        assert peer.core.dropped <= 0.5 * 8000  # no more than the lead was thrown away
        assert peer.core.violations == []


async def test_an_agent_of_our_own_hears_the_caller_and_learns_what_was_heard(
    gateway: GatewayProcess,
) -> None:
    """The heard text against the peer's own playout, word by word, over several cuts."""
    from gateway.native.frames import Kind, unpack

    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    async with aiohttp.ClientSession() as http, http.ws_connect(gateway.ws + "/v1/stream?api_key=x") as ws:
        caller_audio = {"encoding": "pcm_s16le", "sample_rate": 16000}
        await ws.send_json(
            {"type": "hello", "version": 1, "agent": {"name": "exact", "caller_audio": caller_audio}}
        )
        assert (await ws.receive_json())["type"] == "hello"
        async with call(gateway, agent="exact", caller="+15551234567", note="x") as peer:
            started = await receive(ws, "call.started")
            assert started["caller"] == "+15551234567"
            assert started["parameters"]["note"] == "x"
            assert started["format"] == {"encoding": "mulaw", "sample_rate": 8000}
            peer.say(bytes([0x00]) * 8000)  # one second at full scale
            loud = cuts = 0
            for cut_after in (0.7, 1.4, 2.3):
                base = len(peer.core.heard)
                turn = f"turn-{cut_after}"
                await ws.send_json(
                    {"type": "open", "context": turn, "call": started["call"], "text": text, "end": True}
                )
                until = base + round(cut_after * 8000)
                await peer.wait(partial(heard_more_than, until), 15)
                asked = peer.core.clock()
                await ws.send_json({"type": "cancel", "context": turn})
                words: list[dict[str, Any]] = []
                while True:
                    message = await ws.receive(timeout=10)
                    if message.type is aiohttp.WSMsgType.BINARY:
                        frame = unpack(message.data)
                        assert frame.kind is Kind.CALLER
                        assert len(frame.payload) in range(0, 1300)
                        loud += rms_dbfs(decode(frame.payload, "pcm_s16le")) > -10
                        continue
                    event = message.json()
                    if event["type"] == "words":
                        words += event["words"]
                    if event["type"] == "cancelled":
                        break
                # Two sockets: the agent may learn of the cut before the peer has read its clear.
                await peer.wait(partial(cleared, cuts + 1), 5)
                cuts += 1
                heard_s = (len(peer.core.heard) - base) / 8000
                # Cut between our cancel and the peer's reading of the clear, milliseconds apart.
                hop_s = peer.core.clears[-1] - asked
                got = len(event["heard"]["text"].split())
                assert (
                    heard_words(words, heard_s - hop_s - SLACK_S)
                    <= got
                    <= heard_words(words, heard_s + SLACK_S)
                )
                assert event["heard"]["text"] + event["heard"]["unheard"] == text
                assert -SLACK_S <= heard_s - event["heard"]["ms"] / 1000 <= hop_s + SLACK_S
                after = len(peer.core.media_since_clear())
                await asyncio.sleep(0)
                assert after == 0
            assert loud > 20  # the caller's voice came through
            await peer.press("7")
            assert (await receive(ws, "call.dtmf"))["digit"] == "7"
            await ws.send_json(
                {"type": "open", "context": "bye", "call": started["call"], "text": "Goodbye.", "end": True}
            )
            await ws.send_json({"type": "call.hangup", "call": started["call"]})
            kinds = []
            while "call.ended" not in kinds:
                message = await ws.receive(timeout=10)
                if message.type is aiohttp.WSMsgType.TEXT:
                    kinds.append(message.json()["type"])
            assert "done" in kinds
            assert peer.core.violations == []


SLACK_S = 0.02
"""A frame: what marks and clocks of two processes may differ by."""


def heard_words(words: list[dict[str, Any]], seconds: float) -> int:
    """Words whose middle was played."""
    return sum((word["start"] + word["end"]) / 2 <= seconds for word in words)


def cleared(times: int, core: TwilioPeerCore) -> bool:
    return len(core.clears) >= times


def heard_more_than(samples: int, core: TwilioPeerCore) -> bool:
    return len(core.heard) > samples


async def receive(ws: aiohttp.ClientWebSocketResponse, kind: str) -> dict[str, Any]:
    while True:
        message = await ws.receive(timeout=10)
        if message.type is aiohttp.WSMsgType.TEXT:
            event: dict[str, Any] = message.json()
            if event["type"] == kind:
                return event
            assert event["type"] != "error", event


@pytest.mark.parametrize(
    ("public", "signature"),
    [
        ("https://voice.example.com/media/twilio", None),
        ("wss://voice.example.com/media/twilio/", None),
        ("wss://other.example.com/media/twilio", None),
        (PUBLIC, ""),
        (PUBLIC, "bm90IGEgc2lnbmF0dXJl"),
    ],
)
async def test_a_wrong_signature_is_refused_before_the_upgrade(
    gateway: GatewayProcess, public: str, signature: str | None
) -> None:
    peer = TwilioPeer(gateway.ws + "/media/twilio", TOKEN, public, signature=signature)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await peer.connect()
    assert refused.value.status == 403


async def test_a_wrong_token_is_refused(gateway: GatewayProcess) -> None:
    peer = TwilioPeer(gateway.ws + "/media/twilio", "another-token-0123456789", PUBLIC)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await peer.connect()
