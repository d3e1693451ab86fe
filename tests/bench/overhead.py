"""What each dialect costs: the gateway's processor time for a second of audio, and delay before the first.

The gateway runs as a process of its own with an engine that costs next to nothing (a tone, in the same
process), so that what is measured is the gateway: text front end, scheduling, conversion, framing, sockets.
It hands audio over in pieces of 0.4 s, which is what the embedded one's are on average. Its own share is
measured apart, in this process, and left out. First 1 client, text by text; then 100 clients that listen in
real time, each with pauses of its own. They are told a sentence at a time, which begins most often and is the
hardest on the first audio, and then an agent's turn of three sentences at a time. What a text costs by itself
(a connection or a context that comes and goes) is a larger part of the sentence; a dialect's processor time
is that of the turn, and the sentence's stands beside it. This process and the gateway have a core each, where
there are two.

    python -m tests.bench overhead [--only cartesia,deepgram] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import numpy as np

from tests.bench._talkers import BASE64, TALKERS, Talker, Wyoming
from tests.bench.overload import cpu_s, pin
from tests.bench.report import Report
from tests.tone import RATE, ToneEngine
from tts_core.engine import SpeechRequest

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Your order number is four two one five, and it ships on Thursday morning."
TURN = (
    f"{TEXT} We will send you a message as soon as it leaves our warehouse. "
    "Is there anything else that I can help you with today?"
)
ONE = 40
CROWD = 100
READY_S = 60.0


@contextmanager
def gateway() -> Iterator[tuple[str, int]]:
    """A gateway with the tone engine in a process of its own: its address and process id."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench._tone_gateway"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            url, host, port = child.stdout.readline().split()
            Wyoming.address = (host, int(port))
            yield url, child.pid
        finally:
            child.terminate()


async def engine_alone() -> tuple[float, float]:
    """The engine in this process: seconds to its first chunk, processor seconds for a second of audio."""
    engine = ToneEngine(slots=200, work_s=0.0, chunk_s=0.4)
    first: list[float] = []
    samples = 0
    used = time.process_time()
    for n in range(ONE):
        began = time.perf_counter()
        async for chunk in engine.synthesize(SpeechRequest(str(n), TEXT, "tone")):
            if chunk.start_sample == 0:
                first.append(time.perf_counter() - began)
            samples += len(chunk.pcm)
    return float(np.median(first)), (time.process_time() - used) / (samples / RATE)


async def one(talker: Talker) -> tuple[list[float], float]:
    """One client, text after text: seconds to the first audio of each, and seconds of audio."""
    await talker.open()
    first: list[float] = []
    audio = 0
    for n in range(ONE + 3):
        said = await talker.say(TEXT)
        assert said.outcome == "done", (talker.name, said.outcome, said.code)
        if n >= 3:
            first.append(said.first_s)
            audio += len(said.audio)
    await talker.close()
    return first, audio / 2 / RATE


async def crowd(
    kind: type[Talker], url: str, http: aiohttp.ClientSession, seconds: float, text: str = TEXT
) -> tuple[list[float], float]:
    """CROWD clients at once, each listening in real time: first audio of each text, and seconds of audio."""
    first: list[float] = []
    audio = 0

    async def client(seed: int) -> None:
        nonlocal audio
        draw = random.Random(seed)
        talker = kind(url, http, "tone")
        await talker.open()
        await asyncio.sleep(draw.uniform(0, 3.0))
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            said = await talker.say(text)
            assert said.outcome == "done", (talker.name, said.outcome, said.code)
            first.append(said.first_s)
            audio += len(said.audio)
            # Heard to its end before the next is said.
            await asyncio.sleep(
                max(0.0, len(said.audio) / 2 / RATE - (time.perf_counter() - began)) + draw.uniform(0, 0.5)
            )
        await talker.close()

    async with asyncio.TaskGroup() as group:
        for seed in range(CROWD):
            group.create_task(client(seed))
    return first, audio / 2 / RATE


async def measure(report: Report, kinds: list[type[Talker]], seconds: float) -> None:
    """Fill the report."""
    pin(os.getpid(), 1)
    engine_first, engine_cpu = await engine_alone()
    report.figure("engine alone: first chunk", engine_first * 1000, "ms")
    report.figure("engine alone: processor", engine_cpu * 1000, "ms/s")
    worst_cpu = worst_one = worst_crowd = 0.0
    with gateway() as (url, pid):
        pin(pid, 0)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            for kind in kinds:
                name = kind.name
                first, _ = await one(kind(url, http, "tone"))
                alone = (float(np.median(first)) - engine_first) * 1000
                report.figure(f"{name}: 1 client, added to the first audio p50", alone, "ms")
                cost: list[float] = []
                for text in (TURN, TEXT):
                    # The engine's share just before and after: a machine's clock may change in between.
                    engine = (await engine_alone())[1]
                    before = cpu_s(pid)
                    first, audio = await crowd(kind, url, http, seconds, text)
                    used = (cpu_s(pid) - before) / audio
                    engine = (engine + (await engine_alone())[1]) / 2
                    cost.append((used - engine) * 1000)
                late = (float(np.percentile(first, 99)) - engine_first) * 1000
                report.figure(f"{name}: {CROWD} clients, added to the first audio p99", late, "ms")
                report.figure(f"{name}: gateway's processor a second of audio", cost[0], "ms/s")
                report.figure(f"{name}: the same, a sentence at a time", cost[1], "ms/s")
                worst_one, worst_crowd = max(worst_one, alone), max(worst_crowd, late)
                if name in BASE64:
                    worst_cpu = max(worst_cpu, cost[0])
    if any(kind.name in BASE64 for kind in kinds):
        report.goal(
            "worst base64 dialect, processor ms per second of audio, whole turns", worst_cpu, "<= 1.5"
        )
    report.goal("worst dialect, added to the first audio p50 with 1 client, ms", worst_one, "<= 5")
    report.goal(f"worst dialect, added to the first audio p99 with {CROWD} clients, ms", worst_crowd, "<= 15")


def main(argv: list[str]) -> int:
    """Run the bench and report."""
    parser = argparse.ArgumentParser(prog="overhead")
    parser.add_argument("--only", help="names of dialects, with commas between them")
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args(argv)
    wanted = None if args.only is None else set(args.only.split(","))
    kinds = [kind for kind in TALKERS if wanted is None or kind.name in wanted]
    report = Report("overhead")
    report.figure("machine's load before the run", os.getloadavg()[0])
    gc.disable()
    asyncio.run(measure(report, kinds, args.seconds))
    return report.finish()
