"""A thousand clients that leave as they should not, while one that behaves speaks on and notices nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

from gateway.calls import Call
from gateway.dialects.cartesia import CartesiaContext
from gateway.native.outbox import Outbox
from gateway.native.session import NativeContext, NativeSession
from gateway.settings import TwilioAccount
from gateway.sockets import Socket
from sessions.runner import ContextRunner
from telephony.media_streams.driver import MediaStreamLeg
from tests import virtual
from tests.peers.cartesia import RAW, VOICE
from tests.peers.gateway import Running, open_gateway
from tests.peers.native import NativeClient, Turn, native_client
from tests.peers.raw import RawSocket, frame
from tests.peers.twilio import TwilioPeerCore
from tests.tone import ToneEngine

TIMES = 1000
AT_ONCE = 20
TOKEN = "a-token-of-twenty-letters"
ORIGIN = "https://voice.example.com"
LONG = "One two three four five. " * 40
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
MANNER = {"format": {"encoding": "pcm_s16le", "sample_rate": 8000}, "text_mode": "segment"}
RESUME_S = 5.0
IDLE_S = 60.0

Opening = Callable[[RawSocket], Awaitable[None]]
Leaving = Callable[[RawSocket], Awaitable[None]]


# How they come: up to the middle of an utterance


async def native(raw: RawSocket) -> None:
    await raw.upgrade("/v1/stream", {"X-API-Key": "any"})
    await raw.text(json.dumps({"type": "hello", "version": 1}))
    await raw.text(json.dumps({"type": "open", "context": "a", "text": LONG}))
    await raw.until(b'"words"')


async def cartesia(raw: RawSocket) -> None:
    await raw.upgrade("/tts/websocket", {"X-API-Key": "any"})
    request = {
        "context_id": "a",
        "transcript": LONG,
        "voice": VOICE,
        "output_format": RAW,
        "continue": True,
    }
    await raw.text(json.dumps(request))
    await raw.until(b'"chunk"')


async def twilio(raw: RawSocket) -> None:
    signature = RequestValidator(TOKEN).compute_signature(f"wss{ORIGIN[5:]}/media/twilio", {})
    await raw.upgrade("/media/twilio", {"X-Twilio-Signature": signature})
    core = TwilioPeerCore()
    await raw.text(core.connected())
    await raw.text(core.start())
    for _ in range(3):
        await raw.text(core.media())
    await raw.until(b'"media"')  # the agent's greeting


async def silent(raw: RawSocket) -> None:
    """Upgraded, and not a word said."""
    await raw.upgrade("/v1/stream", {"X-API-Key": "any"})


async def half_upgraded(raw: RawSocket) -> None:
    """In the middle of the upgrade request."""
    await raw.connect()
    request = raw.request("/v1/stream", {"X-API-Key": "any"})
    await raw.send(request[: random.randrange(1, len(request))])


# How they go


async def reset(raw: RawSocket) -> None:
    raw.reset()


async def vanish(raw: RawSocket) -> None:
    """Half-open: nothing ever comes again, and nothing is read."""


async def half_closed(raw: RawSocket) -> None:
    raw.half_close()
    await raw.read()


async def without_a_word(raw: RawSocket) -> None:
    raw.close()


async def mid_frame(raw: RawSocket) -> None:
    await raw.send(frame(1, b'{"type":', length=1000))
    raw.close()


async def mid_frame_reset(raw: RawSocket) -> None:
    await raw.send(frame(1, b"{", length=40)[:-1])
    raw.reset()


async def mid_json(raw: RawSocket) -> None:
    await raw.send(frame(1, b'{"type": "text", "context": "a", "te'))
    raw.close()


async def mid_message(raw: RawSocket) -> None:
    await raw.send(frame(1, b'{"type": "te', fin=False))
    raw.reset()


async def ten_megabytes(raw: RawSocket) -> None:
    await raw.send(frame(1, b"", length=10 << 20))
    piece = b"x" * 65536
    for _ in range(160):
        if not await raw.send(piece):
            break
    raw.close()


async def ten_megabytes_in_fragments(raw: RawSocket) -> None:
    piece = b"x" * 60_000
    await raw.send(frame(1, piece, fin=False))
    for _ in range(160):
        if not await raw.send(frame(0, piece, fin=False)):
            break
    raw.close()


async def binary(raw: RawSocket) -> None:
    await raw.send(frame(2, os.urandom(100)))
    raw.reset()


async def not_utf8(raw: RawSocket) -> None:
    await raw.send(frame(1, b'{"type": "\xff\xfe"}'))
    raw.close()


async def unmasked_and_reserved(raw: RawSocket) -> None:
    await raw.send(b"\xf3\x05hello")
    raw.close()


async def bad_close_code(raw: RawSocket) -> None:
    await raw.send(frame(8, b"\x00\x01"))
    raw.reset()


OPENINGS: list[Opening] = [native, cartesia, twilio]
LEAVINGS: list[Leaving] = [
    *(reset, vanish, half_closed, without_a_word, mid_frame, mid_frame_reset, mid_json, mid_message),
    *(ten_megabytes, ten_megabytes_in_fragments, binary, not_utf8, unmasked_and_reserved, bad_close_code),
]


def plan(rng: random.Random) -> list[tuple[Opening, Leaving]]:
    """A thousand of them, each pair of coming and going often enough."""
    pairs = [(opening, leaving) for opening in OPENINGS for leaving in LEAVINGS]
    pairs += [(silent, leaving) for leaving in LEAVINGS]
    pairs += [(half_upgraded, leaving) for leaving in (reset, vanish, half_closed, without_a_word)]
    chosen = [pairs[i % len(pairs)] for i in range(TIMES)]
    rng.shuffle(chosen)
    return chosen


# Those that behave


async def agent(client: NativeClient, calls: Counter[str]) -> None:
    """Greets every caller at length and counts."""
    with contextlib.suppress(ConnectionError):
        while True:
            message = await client.next()
            if not isinstance(message, dict):
                continue
            calls[message["type"]] += 1
            client.transcript.messages.clear()
            client.sent.clear()
            if message["type"] == "call.started":
                call = message["call"]
                await client.send("open", call, call=call, text=LONG)


async def steady(client: NativeClient, stop: asyncio.Event) -> list[str]:
    """Speaks without a pause until told to stop; the sentences."""
    await client.send("open", "steady", **MANNER)
    said: list[str] = []
    while not stop.is_set():
        said.append(f"Sentence {_words(len(said))} of many. ")
        await client.send("text", "steady", text=said[-1])
        while _spoken(client) < len(said) - 2:
            await client.next()
    await client.send("end", "steady")
    await client.until("done", "steady")
    return said


def _spoken(client: NativeClient) -> int:
    turn = client.transcript.turns.get("steady")
    return sum(word["text"] == "many." for word in turn.words) if turn else 0


def _words(number: int) -> str:
    return " ".join(DIGITS[int(digit)] for digit in str(number))


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def held(gateway: Running) -> dict[str, Any]:
    """Everything that a client could have left behind."""
    gc.collect()
    services = gateway.services
    return {
        "sockets": len(services.sockets),
        "sessions": len(services.native_sessions),
        "contexts": services.in_flight.count,
        "slots": services.limits.active,
        "streams": services.scheduler.stats.active,
        "queued": services.scheduler.stats.queued,
        "running": gateway.engine.running,
        "playing": len(services.playing),
        "calls": len(services.calls.calls),
        "paced": len(services.wheel),
        "spawned": services.tasks,
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def alive() -> Counter[str]:
    """What a client brings to life, by type."""
    gc.collect()
    kinds = (
        Socket,
        NativeSession,
        Outbox,
        NativeContext,
        CartesiaContext,
        ContextRunner,
        Call,
        MediaStreamLeg,
    )
    found = Counter({kind.__name__: 0 for kind in kinds})
    found.update(type(thing).__name__ for thing in gc.get_objects() if type(thing) in kinds)
    return found


async def leave_badly(gateway: Running, opening: Opening, leaving: Leaving, kept: list[RawSocket]) -> None:
    raw = RawSocket(gateway.port)
    await opening(raw)
    await leaving(raw)
    if leaving in {vanish, half_closed}:
        kept.append(raw)


async def storm(gateway: Running, client: NativeClient, clients: list[tuple[Opening, Leaving]]) -> list[str]:
    """Let these come and go while the steady one speaks; its sentences, when all is over."""
    before = held(gateway)
    stop = asyncio.Event()
    speaking = asyncio.ensure_future(steady(client, stop))
    kept: list[RawSocket] = []
    for at in range(0, len(clients), AT_ONCE):
        await asyncio.gather(*(leave_badly(gateway, *pair, kept) for pair in clients[at : at + AT_ONCE]))
        await asyncio.sleep(0.5)
    assert not speaking.done()
    stop.set()
    said = await speaking
    await asyncio.sleep(RESUME_S + 1)
    assert len(gateway.services.native_sessions) <= 2 + len(kept)
    for _ in range(8):  # the half-open ones are let go by time alone
        await client.settled()
        await asyncio.sleep(IDLE_S / 4)
    after = held(gateway)
    after["descriptors"] -= len(kept)  # our own ends
    assert after == before
    for raw in kept:
        raw.close()
    return said


async def _main(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(
            stack,
            folder,
            engine=ToneEngine(xrt=100_000.0, slots=64),
            clock=virtual.clock,
            resume_s=RESUME_S,
            socket_idle_s=IDLE_S,
            context_idle_s=30.0,
            max_contexts_per_socket=TIMES,
            messages_per_s=10_000,
            twilio=(TwilioAccount("", TOKEN),),
            public_origin=ORIGIN,
        )
        listener = await stack.enter_async_context(
            native_client(gateway, agent={"name": "desk", "max_calls": TIMES})
        )
        calls: Counter[str] = Counter()
        answering = [asyncio.ensure_future(agent(listener, calls)), asyncio.ensure_future(pings(listener))]
        client = await stack.enter_async_context(native_client(gateway))
        await asyncio.sleep(1)

        clients = plan(random.Random(11))
        resident, left, said = [], [], []
        for half in (clients[: TIMES // 2], clients[TIMES // 2 :]):
            said.append(await storm(gateway, client, half))
            gateway.engine.requests.clear()
            left.append(alive())
            resident.append(resident_mb())
        assert left[1] == left[0], "objects that were not let go"
        assert resident[1] - resident[0] < 24, f"{resident} MB resident after each half"
        assert calls["call.started"] == calls["call.ended"] == sum(o is twilio for o, _ in clients)

        # What the one that behaved has heard is what it hears on a quiet gateway, sample by sample.
        for turn, sentences in zip(list(client.transcript.past), said, strict=True):
            assert len(sentences) > 10
            text = "".join(sentences)
            assert turn.end is not None
            assert turn.end["type"] == "done"
            assert turn.end["stats"]["underruns"] == 0
            assert turn.text == text.strip()
            quiet = await aloud(client, sentences)
            assert bytes(quiet.audio) == bytes(turn.audio)
        answering[1].cancel()
        await listener.ws.close()
        await asyncio.gather(*answering, return_exceptions=True)


async def aloud(client: NativeClient, said: list[str]) -> Turn:
    """The same once more, as fast as it is made."""
    await client.send("open", "aloud", **MANNER)
    for text in said:
        await client.send("text", "aloud", text=text)
    await client.send("end", "aloud")
    await client.until("opened", "aloud")
    turn = client.transcript.turns["aloud"]
    while turn.end is None:
        await client.send("played", "aloud", sample=turn.samples)
        await client.next()
    return turn


async def pings(client: NativeClient) -> None:
    """A client that only listens says now and then that it is there."""
    while True:
        await asyncio.sleep(IDLE_S / 2)
        await client.send("ping")


@pytest.mark.slow
def test_a_thousand_bad_farewells_leave_nothing_and_harm_nobody(tmp_path: Path) -> None:
    random.seed(11)
    virtual.run(lambda: _main(tmp_path / "data"))
