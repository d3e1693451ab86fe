"""Pacing in real time over loopback sockets: the wheel, beside a coroutine per stream and a plain sleep.

Each design sends 20 ms of mu-law per stream and period to listeners in another process for some seconds.
First undisturbed: drift of the audio against the wall clock, lateness against absolute deadlines, CPU. Then
with stalls of the event loop of 10, 25 and 150 ms: how long a listener heard nothing. All listeners hold
40 ms before they play, at the start and whenever they ran dry, as a phone's jitter buffer does.

    python -m tests.bench pacing [--seconds 10] [--streams 1,100,500] [--fifo]

``--fifo`` asks for the real-time scheduler, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import time
from array import array
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import numpy as np

from telephony.playout import Playout
from telephony.profile import TWILIO, Profile
from telephony.wheel import TimerWheel
from tests.bench.report import Report, table

PERIOD = 0.020
FRAME = b"\x55" * 160
JITTER_BUFFER = 0.040
STALLS = (0.010, 0.025, 0.150)
DISTURBED_S = 4.0  # the stalls happen in the last seconds


class Listener(asyncio.Protocol):
    """One phone: plays what comes and counts how long it was dry."""

    def __init__(self, listeners: list[Listener]) -> None:
        self.bytes = 0
        self.starved = 0.0
        self.end = 0.0
        listeners.append(self)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self.bytes:
            self.end = now + JITTER_BUFFER
        elif now > self.end:
            self.starved += now - self.end + JITTER_BUFFER
            self.end = now + JITTER_BUFFER
        self.bytes += len(data)
        self.end += len(data) / 8000


def real_time(fifo: bool) -> None:
    """Ask for the real-time scheduler."""
    if fifo:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def listen(pipe: Connection, fifo: bool) -> None:
    """Run the listeners: tell the port, then at each request what they heard."""
    real_time(fifo)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listeners: list[Listener] = []
        server = await loop.create_server(lambda: Listener(listeners), "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        while await loop.run_in_executor(None, pipe.recv):
            pipe.send([(listener.bytes, listener.starved) for listener in listeners])
            listeners.clear()
        server.close()

    asyncio.run(main())


class Run:
    """What one design did with a number of streams."""

    def __init__(self) -> None:
        self.lateness = array("d")
        self.drift = 0.0
        self.cpu = 0.0
        self.starved_ms = 0.0

    def late(self, percentile: float) -> float:
        return float(np.percentile(np.frombuffer(self.lateness), percentile) * 1000)


class Wire:
    """One connection; keeps when audio left. Also the sink of a playout."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.steady_from = 0.0
        self.steady_until = 0.0
        self.times = array("d")  # of the messages of the steady state
        self.sizes = array("d")

    def media(self, payload: bytes) -> None:
        self.transport.write(payload)
        now = time.monotonic()
        if self.steady_from <= now < self.steady_until:
            self.times.append(now)
            self.sizes.append(len(payload))

    def mark(self, name: str) -> None:
        raise AssertionError("no marks here")

    def clear(self) -> None:
        raise AssertionError("no interruptions here")

    @property
    def drift(self) -> float:
        """Audio against the wall clock, less one: the slope of all messages, as one may be 20 ms off."""
        audio = np.cumsum(np.frombuffer(self.sizes)) / 8000
        times = np.frombuffer(self.times) - self.times[0]
        return float(np.polyfit(times[1:], audio[:-1], 1)[0] - 1)


class Streams:
    """Connections to the listeners and the clock of one run."""

    def __init__(self, wires: list[Wire], seconds: float) -> None:
        self.wires = wires
        self.begin = time.monotonic()
        self.quiet_until = self.begin + seconds - DISTURBED_S
        self.until = self.begin + seconds
        self.run = Run()
        for wire in wires:
            wire.steady_from = self.begin + 1.0
            wire.steady_until = self.quiet_until

    @property
    def running(self) -> bool:
        return time.monotonic() < self.until

    def note(self, late: float, ticks: int = 1) -> None:
        if time.monotonic() < self.quiet_until:
            for _ in range(ticks):
                self.run.lateness.append(late)


Design = Callable[[Streams], Awaitable[None]]


def wheel(profile: Profile) -> Design:
    async def design(streams: Streams) -> None:
        turning = TimerWheel(on_lateness=streams.note)
        playouts = [Playout(profile, time.monotonic, wire) for wire in streams.wires]
        chunk = FRAME * 50
        for playout in playouts:
            playout.play(chunk * 2)
        handles = [turning.add(playout.tick) for playout in playouts]
        turning.start()
        while streams.running:
            for index, playout in enumerate(playouts):
                if playout.room_bytes() >= len(chunk):
                    playout.play(chunk)
                if index % 50 == 49:
                    await asyncio.sleep(0)
            await asyncio.sleep(0.1)
        for handle in handles:
            handle.cancel()
        turning.close()

    return design


async def coroutine_per_stream(streams: Streams) -> None:
    async def speak(wire: Wire, offset: float) -> None:
        due = streams.begin + offset
        while streams.running:
            wire.media(FRAME)
            streams.note(time.monotonic() - due)
            due += PERIOD
            await asyncio.sleep(due - time.monotonic())

    count = len(streams.wires)
    await asyncio.gather(*(speak(wire, PERIOD * index / count) for index, wire in enumerate(streams.wires)))


async def plain_sleep(streams: Streams) -> None:
    async def speak(wire: Wire) -> None:
        due = streams.begin
        while streams.running:
            wire.media(FRAME)
            streams.note(time.monotonic() - due)
            due += PERIOD
            await asyncio.sleep(PERIOD)

    await asyncio.gather(*(speak(wire) for wire in streams.wires))


STRICT = Profile("strict", owns_clock=True, has_marks=False, has_clear=False)
DESIGNS: dict[str, Design] = {
    "wheel, 300 ms lead": wheel(TWILIO),
    "wheel, strict 20 ms": wheel(STRICT),
    "coroutine per stream": coroutine_per_stream,
    "sleep(0.02)": plain_sleep,
}


async def stalls(streams: Streams) -> None:
    """Block the loop, as careless code does."""
    for index, length in enumerate(STALLS):
        await asyncio.sleep(max(0.0, streams.quiet_until + 0.5 + index - time.monotonic()))
        time.sleep(length)  # noqa: ASYNC251 - that is the point


async def measure(design: Design, count: int, seconds: float, port: int, pipe: Connection) -> Run:
    loop = asyncio.get_running_loop()
    wires = []
    for _ in range(count):
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        wires.append(Wire(transport))
    streams = Streams(wires, seconds)
    disturb = asyncio.create_task(stalls(streams))
    speaking = asyncio.ensure_future(design(streams))
    await asyncio.sleep(1.0)
    # From here on every design is in its steady state.
    wall, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(streams.quiet_until - time.monotonic())
    run = streams.run
    run.cpu = (time.process_time() - cpu) / (time.monotonic() - wall)
    run.drift = max((wire.drift for wire in wires), key=abs)
    await speaking
    await disturb
    for wire in wires:
        wire.transport.close()
    await asyncio.sleep(0.3)
    pipe.send(True)
    heard = await loop.run_in_executor(None, pipe.recv)
    run.starved_ms = sum(starved for _, starved in heard) / count * 1000
    return run


FIGURES: tuple[tuple[str, str, Callable[[Run], float]], ...] = (
    ("worst wall/audio drift", "%", lambda run: run.drift * 100),
    ("lateness p50", "ms", lambda run: run.late(50)),
    ("lateness p99", "ms", lambda run: run.late(99)),
    ("listener dry under stalls", "ms", lambda run: run.starved_ms),
    ("CPU", "% of a core", lambda run: run.cpu * 100),
)


def main(argv: list[str]) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="pacing")
    parser.add_argument("--seconds", type=float, default=10.0, help="per design and number of streams, > 6")
    parser.add_argument("--streams", default="1,100,500")
    parser.add_argument("--fifo", action="store_true")
    options = parser.parse_args(argv)
    real_time(options.fifo)
    counts = [int(count) for count in options.streams.split(",")]
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=listen, args=(theirs, options.fifo), daemon=True)
    child.start()
    port = ours.recv()
    runs: dict[tuple[str, int], Run] = {}
    try:
        for count in counts:
            for name, design in DESIGNS.items():
                runs[name, count] = asyncio.run(measure(design, count, options.seconds, port, ours))
    finally:
        ours.send(False)
        child.join(5)
    head = ["design", "streams", "worst drift %", "late p50 ms", "late p99 ms", "starved ms", "CPU %"]
    rows = [
        [name, count, run.drift * 100, run.late(50), run.late(99), run.starved_ms, run.cpu * 100]
        for (name, count), run in runs.items()
    ]
    print(table(head, rows) + "\n")
    report = Report("pacing")
    lead = "wheel, 300 ms lead"
    for count in counts:
        for label, unit, value in FIGURES:
            peers = {name: value(runs[name, count]) for name in DESIGNS if name != lead}
            report.figure(
                f"{label}, {count} streams",
                value(runs[lead, count]),
                unit,
                peers=peers,
                headline=count == counts[-1] and label != "worst wall/audio drift",
            )
    most = runs[lead, counts[-1]]
    report.goal(f"worst wall/audio drift, {counts[-1]} streams, %", abs(most.drift) * 100, "<= 0.1")
    report.goal(f"listener dry under stalls, {counts[-1]} streams, ms", most.starved_ms, "<= 0")
    report.goal(f"lateness p99, {counts[-1]} streams, ms", most.late(99), "<= 5")
    return report.finish()
