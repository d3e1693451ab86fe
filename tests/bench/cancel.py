"""Barge-in: from an agent's ``cancel`` to the last audio, on the native socket and on the wire of a call.

The gateway as a process with the real voice; several sockets, then several calls, are cut at once at random
moments while they speak. Native: from ``cancel`` sent to the last frame of that context received (0 when
none came after it). Call: from ``cancel`` sent by the agent to Twilio's ``clear`` received. After the
``cancelled`` event, and after the ``clear``, not a byte of that context may come.

    python -m tests.bench cancel [--cuts 120]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import time
from dataclasses import dataclass, field

import aiohttp
import numpy as np

from gateway.native.frames import unpack
from tests.bench.report import Report
from tests.peers.process import GatewayProcess
from tests.peers.twilio import TwilioPeer

AT_ONCE = 8
TEXT = (
    "This is what the agent was about to say, and it goes on for quite a while, until somebody interrupts. "
    * 6
)
TOKEN = "twilio-token-0123456789abcdef"
ORIGIN, PUBLIC = "https://voice.example.com", "wss://voice.example.com/media/twilio"
AFTER_S = 0.3
"""How long is listened for audio that must not come."""

STEP_S = 30.0


@dataclass
class Cuts:
    """What was measured: seconds, and bytes that came too late."""

    last: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    late_bytes: int = 0


async def native(gateway: GatewayProcess, cuts: int, seed: int, out: Cuts) -> None:
    """One client that is interrupted ``cuts`` times."""
    chance = random.Random(seed)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(gateway.ws + "/v1/stream?api_key=bench") as ws,
    ):
        await ws.send_json({"type": "hello", "version": 1})
        assert (await ws.receive_json())["type"] == "hello"
        for cut in range(cuts):
            context = f"turn-{cut}"
            fmt = {"encoding": "mulaw", "sample_rate": 8000}
            await ws.send_json({"type": "open", "context": context, "format": fmt, "text": TEXT, "end": True})
            index = -1
            first: float | None = None
            sent: float | None = None
            last: float | None = None
            wait = chance.uniform(0.0, 1.2)
            async with asyncio.timeout(STEP_S):
                while True:
                    left = None if first is None or sent is not None else first + wait - time.perf_counter()
                    try:
                        message = await ws.receive(timeout=None if left is None else max(0.0001, left))
                    except TimeoutError:
                        message = None
                    now = time.perf_counter()
                    if sent is None and first is not None and now >= first + wait:
                        await ws.send_json({"type": "cancel", "context": context})
                        sent = last = now
                    if message is None:
                        continue
                    if message.type is aiohttp.WSMsgType.BINARY:
                        assert unpack(message.data).index == index
                        first = first or now
                        last = now
                        continue
                    event = message.json()
                    assert event["type"] != "error", event
                    if event["type"] == "opened":
                        index = event["index"]
                    if event["type"] == "cancelled":
                        break
            assert sent is not None
            assert last is not None
            out.last.append(max(0.0, last - sent))
            out.acknowledged.append(now - sent)
            until = time.perf_counter() + AFTER_S
            while (left := until - time.perf_counter()) > 0:
                try:
                    message = await ws.receive(timeout=left)
                except TimeoutError:
                    break
                if message.type is aiohttp.WSMsgType.BINARY:
                    out.late_bytes += len(unpack(message.data).payload)


async def call(gateway: GatewayProcess, cuts: int, seed: int, out: Cuts) -> None:
    """One phone call whose agent is interrupted ``cuts`` times."""
    chance = random.Random(seed)
    agent = f"agent-{seed}"
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(gateway.ws + "/v1/stream?api_key=bench") as ws,
    ):
        await ws.send_json({"type": "hello", "version": 1, "agent": {"name": agent}})
        assert (await ws.receive_json())["type"] == "hello"
        async with TwilioPeer(gateway.ws + "/media/twilio", TOKEN, PUBLIC, {"agent": agent}) as peer:
            started = await ws.receive_json()
            for cut in range(cuts):
                context, cleared, heard = f"turn-{cut}", len(peer.core.clears), len(peer.core.heard)
                await ws.send_json(
                    {"type": "open", "context": context, "call": started["call"], "text": TEXT, "end": True}
                )
                enough = heard + round(chance.uniform(0.1, 1.2) * 8000)
                await peer.wait(lambda core, n=enough: len(core.heard) >= n, STEP_S)  # type: ignore[misc]
                sent, sent_peer = time.perf_counter(), peer.core.clock()
                await ws.send_json({"type": "cancel", "context": context})
                async with asyncio.timeout(STEP_S):
                    while (event := await ws.receive_json())["type"] != "cancelled":
                        assert event["type"] in ("opened", "words"), event
                    out.acknowledged.append(time.perf_counter() - sent)
                    await peer.wait(lambda core, n=cleared: len(core.clears) > n, STEP_S)  # type: ignore[misc]
                out.last.append(peer.core.clears[cleared] - sent_peer)
                await asyncio.sleep(AFTER_S)
                out.late_bytes += len(peer.core.media_since_clear())
            assert peer.core.violations == []


async def watch(late: list[float]) -> None:
    """How late this process wakes: what of the figures is the measuring side's own."""
    while True:
        due = time.perf_counter() + 0.005
        await asyncio.sleep(0.005)
        late.append(time.perf_counter() - due)


async def run(cuts: int) -> tuple[Cuts, Cuts, list[float]]:
    """Cuts on native sockets, cuts on calls, and the lateness of this process."""
    sockets, calls, late = Cuts(), Cuts(), list[float]()
    each = -(-cuts // AT_ONCE)
    with GatewayProcess(public_origin=ORIGIN, twilio_auth_token=TOKEN) as gateway:
        watcher = asyncio.create_task(watch(late))
        await asyncio.gather(*(native(gateway, each, n, sockets) for n in range(AT_ONCE)))
        await asyncio.gather(*(call(gateway, each, n, calls) for n in range(AT_ONCE)))
        watcher.cancel()
    return sockets, calls, late


def main(argv: list[str]) -> int:
    """Run the bench and report."""
    parser = argparse.ArgumentParser(prog="cancel")
    parser.add_argument("--cuts", type=int, default=120)
    args = parser.parse_args(argv)
    load = os.getloadavg()[0]
    gc.disable()  # a pause of ours would look like one of the gateway's
    sockets, calls, late = asyncio.run(run(max(1, args.cuts)))
    report = Report("cancel")
    for label, values in (
        ("native: cancel to last frame", sockets.last),
        ("native: cancel to acknowledgement", sockets.acknowledged),
        ("call: cancel to clear on the wire", calls.last),
        ("call: cancel to acknowledgement", calls.acknowledged),
        ("this process's own lateness", late),
    ):
        for percent in (50, 99):
            report.figure(f"{label}, p{percent}", float(np.percentile(values, percent)) * 1000, "ms")
    report.figure("cuts, native and calls", f"{len(sockets.last)}, {len(calls.last)}")
    report.figure("cut at once", AT_ONCE)
    report.figure("machine's load before the run", load)
    report.goal(
        "native: cancel to last frame, p99 ms", float(np.percentile(sockets.last, 99)) * 1000, "<= 20"
    )
    report.goal("call: cancel to clear, p99 ms", float(np.percentile(calls.last, 99)) * 1000, "<= 20")
    report.goal("bytes after a cut", sockets.late_bytes + calls.late_bytes, "== 0")
    return report.finish()
