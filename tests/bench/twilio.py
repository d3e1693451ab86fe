"""The whole Twilio path on one core: resample, mu-law, playout, base64, JSON, WebSocket, TCP.

Live: the gateway's own leg on aiohttp's server (no compression), pinned to one core, speaks on N calls at
once to clients in another process on another core. Audio at 24 kHz is resampled in batches on the wheel, 50
calls a batch and 100 ms at a time. For each N: lateness of every tick against its absolute deadline, CPU per
20 ms frame, and whether any listener ran dry. The callers are silent unless ``--inbound``.

Per stage: CPU per frame of each part alone, beside what a common serializer does (soxr VHQ stream,
``json.dumps``, a message per 20 ms).

It asks for the real-time scheduler, so that the figures are those of our work and not of what else the
machine does; the first line says whether it got it.

    python -m tests.bench twilio [--seconds 8] [--calls 250,500,1000,1250] [--inbound] [--no-fifo]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import resource
import socket
import time
from array import array
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import soxr
from aiohttp import WSMsgType, web

from gateway import collector
from telephony.dsp import g711, pcm
from telephony.dsp.resample import BatchResampler, Resampler
from telephony.media_streams.driver import MediaStreamLeg
from telephony.media_streams.protocol import Protocol
from telephony.media_streams.socket import EagerSender
from telephony.wheel import TimerWheel
from tests.bench.report import Report, table

RATE_IN = 24_000
FRAME_IN = RATE_IN // 50
GROUP = 50
CHUNK = 5  # frames an engine gives at a time
PRELOAD_S = 1.0
STREAM_SID = "MZ" + "0123456789abcdef" * 2
START = json.dumps(
    {
        "event": "start",
        "sequenceNumber": "1",
        "streamSid": STREAM_SID,
        "start": {
            "streamSid": STREAM_SID,
            "accountSid": "AC0",
            "callSid": "CA0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {},
        },
    }
)
INBOUND = base64.b64encode(b"\xff" * 160).decode()


# The other side: many phones in one process


def frame(text: str) -> bytes:
    """A client's WebSocket text frame, masked with zeros (RFC 6455, 5.3)."""
    data = text.encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + data


class Phone(asyncio.Protocol):
    """Reads the WebSocket frames by their lengths alone and plays them."""

    def __init__(self) -> None:
        self.opened = False
        self.buffer = b""
        self.samples = 0
        self.end = 0.0
        self.dry = 0.0
        self.sequence = 1
        self.transport: asyncio.Transport | None = None
        self.overhead = len(media_overhead())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        buffer = self.buffer + data if self.buffer else data
        at = 0
        if not self.opened:
            at = buffer.find(b"\r\n\r\n") + 4
            if at < 4:
                self.buffer = buffer
                return
            self.opened = True
            assert self.transport is not None
            hello = json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
            self.transport.write(frame(hello) + frame(START))
        while len(buffer) - at >= 4:
            size, head = buffer[at + 1] & 0x7F, 2
            if size == 126:
                size, head = int.from_bytes(buffer[at + 2 : at + 4], "big"), 4
            if len(buffer) - at < head + size:
                break
            if buffer[at] == 0x81 and size > self.overhead:
                self.play((size - self.overhead) * 3 // 4 // 160 * 160, now)
            at += head + size
        self.buffer = buffer[at:]

    def play(self, samples: int, now: float) -> None:
        if not self.samples:
            self.end = now
        self.dry += max(0.0, now - self.end)
        self.end = max(self.end, now) + samples / 8000
        self.samples += samples

    def talk(self) -> None:
        if self.transport is not None:
            self.sequence += 1
            self.transport.write(
                frame(
                    f'{{"event":"media","sequenceNumber":"{self.sequence}","streamSid":"{STREAM_SID}","media":'
                    f'{{"track":"inbound","chunk":"{self.sequence}","timestamp":"0","payload":"{INBOUND}"}}}}'
                )
            )


def media_overhead() -> str:
    protocol = Protocol()
    protocol.receive_text(START)
    return protocol.media(b"")


def phones(pipe: Connection, fifo: bool) -> None:
    """Serve requests: connect so many phones; tell what they heard."""
    settle(1, fifo)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        while True:
            order = await loop.run_in_executor(None, pipe.recv)
            if order is None:
                return
            port, count, seconds, inbound = order
            calls: list[Phone] = []
            for _ in range(count):
                _, phone = await loop.create_connection(Phone, "127.0.0.1", port)
                calls.append(phone)
                await asyncio.sleep(0.001)
            wheel = TimerWheel()
            if inbound:
                for phone in calls:
                    wheel.add(lambda due, now, missed, phone=phone: phone.talk())  # type: ignore[misc]
                wheel.start()
            pipe.send(True)
            await asyncio.sleep(seconds)
            await loop.run_in_executor(None, pipe.recv)
            pipe.send((sum(phone.samples for phone in calls), [phone.dry for phone in calls]))
            wheel.close()
            for phone in calls:
                if phone.transport is not None:
                    phone.transport.abort()

    asyncio.run(main())


def settle(core: int, fifo: bool) -> bool:
    """Stay on one core; allow many sockets. Returns whether the real-time scheduler was given."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    if not fifo:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        return False
    return True


# Our side


class ServerSocket:
    """aiohttp's server WebSocket as a leg's text socket."""

    def __init__(self, socket_: web.WebSocketResponse) -> None:
        self._socket = socket_
        self._send = EagerSender(socket_.send_str)
        self.send_text = self._send.__call__

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self._send.close()
        await self._socket.close(code=code, message=reason.encode())

    async def __aiter__(self) -> AsyncIterator[str]:
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                yield message.data


class Batch:
    """Up to 50 calls whose audio is made together."""

    def __init__(self, legs: list[MediaStreamLeg], turn: int) -> None:
        self.legs = legs
        self.resampler = BatchResampler(RATE_IN, 8000, len(legs))
        rng = np.random.default_rng(1)
        self.frames = (rng.standard_normal((CHUNK, len(legs), FRAME_IN)) * 0.1).astype(np.float32)
        self.turn = turn

    def step(self, due: float, now: float, missed: int) -> None:
        """Make a chunk of 100 ms each fifth period."""
        self.turn += 1 + missed
        while self.turn >= CHUNK:
            self.turn -= CHUNK
            chunk = np.empty((len(self.legs), CHUNK, 160), np.uint8)
            for index in range(CHUNK):
                out = self.resampler.process(self.frames[index])
                chunk[:, index] = g711.mulaw_encode(pcm.float_to_int16(out))
            for leg, row in zip(self.legs, chunk, strict=True):
                leg.playout.play(row.tobytes())


async def live(count: int, seconds: float, pipe: Connection, inbound: bool) -> dict[str, float]:
    """Speak on ``count`` calls for some seconds."""
    loop = asyncio.get_running_loop()
    late = array("d")
    measuring = False

    def note(seconds_late: float, ticks: int) -> None:
        if measuring:
            late.extend([seconds_late] * ticks)

    wheel = TimerWheel(on_lateness=note)
    wheel.start()
    legs: list[MediaStreamLeg] = []

    async def media(request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse(compress=False, autoping=True)
        await response.prepare(request)
        leg = MediaStreamLeg(ServerSocket(response), wheel, probe=False)
        async with leg:
            legs.append(leg)
            async for _ in leg.events():
                pass
        return response

    app = web.Application()
    app.router.add_get("/", media)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    site = web.SockSite(runner, listening)
    await site.start()
    pipe.send((listening.getsockname()[1], count, seconds, inbound))
    await loop.run_in_executor(None, pipe.recv)
    async with asyncio.timeout(30):
        while len(legs) < count:
            await asyncio.sleep(0.05)
    silence = pcm.silence("mulaw", 160)
    for index, leg in enumerate(legs):
        for _ in range(round(PRELOAD_S * 50)):
            leg.playout.play(silence)
        if index % 10 == 9:
            await asyncio.sleep(0)
    collector.settle()  # as the gateway does
    batches = [Batch(legs[at : at + GROUP], at // GROUP % CHUNK) for at in range(0, count, GROUP)]
    handles = [wheel.add(batch.step) for batch in batches]
    await asyncio.sleep(1.0)
    measuring = True
    sent = sum(leg.playout.stats.frames for leg in legs)
    wall, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds - 1.0)
    measuring = False
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    frames = sum(leg.playout.stats.frames for leg in legs) - sent
    for handle in handles:
        handle.cancel()
    pipe.send(True)
    _, dry = await loop.run_in_executor(None, pipe.recv)
    stalls = sum(leg.playout.stats.stalls + leg.playout.stats.underruns for leg in legs)
    for leg in legs:
        await leg.close()
    wheel.close()
    await runner.cleanup()
    lateness = np.frombuffer(late) * 1000
    return {
        "calls": count,
        "p50": float(np.percentile(lateness, 50)),
        "p99": float(np.percentile(lateness, 99)),
        "cpu": cpu / wall,
        "us": cpu / frames * 1e6,
        "pace": frames / count / 50 / wall,
        "dry": sum(seconds_dry > 0.001 for seconds_dry in dry),
        "stalls": stalls,
    }


# Each part alone


def per_frame(work: Callable[[], Any], frames: int, least_s: float = 0.3) -> float:
    """Microseconds of CPU per frame; best of 3."""
    best = float("inf")
    for _ in range(3):
        rounds, begin = 0, time.process_time()
        while (spent := time.process_time() - begin) < least_s:
            work()
            rounds += 1
        best = min(best, spent / rounds / frames)
    return best * 1e6


def stages() -> dict[str, tuple[float, float | None]]:
    """CPU per frame of our parts and of the common way to do them."""
    rng = np.random.default_rng(2)
    one = (rng.standard_normal(FRAME_IN) * 0.1).astype(np.float32)
    many = (rng.standard_normal((GROUP, FRAME_IN)) * 0.1).astype(np.float32)
    batch, single = BatchResampler(RATE_IN, 8000, GROUP), Resampler(RATE_IN, 8000)
    vhq = soxr.ResampleStream(RATE_IN, 8000, 1, dtype="int16", quality="VHQ")
    as_int = pcm.float_to_int16(one)

    def ours_batch() -> None:
        g711.mulaw_encode(pcm.float_to_int16(batch.process(many)))

    def ours_single() -> None:
        pcm.encode(single.process(one), "mulaw")

    def theirs() -> None:
        g711.mulaw_encode(vhq.resample_chunk(as_int)).tobytes()

    protocol = Protocol()
    protocol.receive_text(START)
    payload = bytes(range(160))
    five = payload * 5

    def serialise() -> None:
        json.dumps(
            {
                "event": "media",
                "streamSid": STREAM_SID,
                "media": {"payload": base64.b64encode(payload).decode("utf-8")},
            }
        )

    common = per_frame(theirs, 1)
    return {
        f"resample and mu-law, batches of {GROUP}": (per_frame(ours_batch, GROUP), common),
        "resample and mu-law, one call": (per_frame(ours_single, 1), common),
        "base64 and JSON, 100 ms messages": (
            per_frame(lambda: protocol.media(five), 5),
            per_frame(serialise, 1),
        ),
    }


def main(argv: list[str]) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="twilio")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--calls", default="250,500,1000,1250")
    parser.add_argument("--inbound", action="store_true")
    parser.add_argument("--fifo", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args(argv)
    real_time = settle(0, options.fifo)
    print(f"scheduler: {'real-time (SCHED_FIFO)' if real_time else 'the usual one'}, one core a process\n")
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=phones, args=(theirs, options.fifo), daemon=True)
    child.start()
    parts = stages()
    runs = []
    try:
        for count in options.calls.split(","):
            runs.append(asyncio.run(live(int(count), options.seconds, ours, options.inbound)))
    finally:
        ours.send(None)
        child.join(5)
    head = ["calls", "late p50 ms", "late p99 ms", "CPU %", "us a frame", "audio/wall", "calls dry"]
    print(
        table(
            head,
            [
                [
                    str(run["calls"]),
                    run["p50"],
                    run["p99"],
                    run["cpu"] * 100,
                    run["us"],
                    run["pace"],
                    run["dry"],
                ]
                for run in runs
            ],
        )
        + "\n"
    )
    report = Report("twilio")
    for name, (value, peer) in parts.items():
        report.figure(name, value, "us a frame", peers={"soxr VHQ, json.dumps": peer}, headline=True)
    for run in runs:
        report.figure(f"lateness p99, {run['calls']} calls", run["p99"], "ms")
        report.figure(f"whole path, {run['calls']} calls", run["us"], "us a frame")
        report.figure(f"calls that ran dry, {run['calls']} calls", run["dry"], "")
    clean = [run["calls"] for run in runs if run["p99"] <= 5 and not run["dry"] and run["cpu"] < 0.95]
    report.figure("real-time scheduler (1) or the usual one (0)", int(real_time), "")
    report.figure("calls per core by CPU", 0.020 / min(run["us"] for run in runs) * 1e6, "")
    report.goal(
        "live calls on one core with p99 lateness <= 5 ms and nobody dry", max(clean, default=0), ">= 1000"
    )
    return report.finish()
