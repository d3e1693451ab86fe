"""Soak: clients of all dialects at once for minutes, interruptions and lost connections; nothing may leak.

The gateway as users start it, with the real voice. Every client has digits of its own and says them again and
again, with idle times between; one text in five is interrupted, one in fifty loses its connection. Checked:

- what each client hears is its own: the samples of every whole text are, byte for byte, those that the same
  client heard in a calm (an interrupted text: a beginning of them), and speech recognition reads the
  digits of a sample of them;
- every text ends: spoken, cut, or refused at once in the dialect's words;
- a WebSocket's ping, sent behind each text, is answered within a second;
- the gateway's memory is flat after a warm-up, and at the end nothing is held or counted. No session is kept
  for a client that may come back: each native one would come to hold up to 4 MiB to be sent again.

    python -m tests.bench soak [--clients 200] [--seconds 135]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import re
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np

from telephony.dsp.pcm import decode, encode
from telephony.dsp.resample import Resampler
from tests.bench._talkers import RATE, TALKERS, Said, Socket, Talker, Wyoming
from tests.bench.report import Report
from tests.intelligibility.ears import listen
from tests.peers.process import GatewayProcess

CALM = 10
"""Clients that speak at once before the soak."""
INTERRUPTED = 0.2
LOST = 0.02
WARM_S = 30.0
HEARD = 24
"""Clips that speech recognition reads."""
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VOICE = "heart"


def code_of(number: int) -> str:
    """Five digits that no other client has; no zeros, which recognition counts badly in a row."""
    mixed = (number + 1) * 7919 % 9**5
    return "".join(str(mixed // 9**place % 9 + 1) for place in range(5))


def text_of(number: int) -> str:
    """The text of client ``number``: its code twice, five seconds that are more than is sent ahead."""
    code = ", ".join(DIGITS[int(digit)] for digit in code_of(number))
    return f"Your code is {code}. Once more, your code is {code}."


@dataclass
class Client:
    """One client, and what it has to hear."""

    number: int
    talker: Talker
    alone: bytes = b""


@dataclass
class Tally:
    """What happened."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    rss: list[tuple[float, float]] = field(default_factory=list)
    clips: dict[int, bytes] = field(default_factory=dict)
    sockets: list[Socket] = field(default_factory=list)
    """The clients that ping."""


def judge(client: Client, said: Said, tally: Tally) -> None:
    """Count a text, and compare it with what the client heard alone."""
    tally.outcomes[said.outcome] += 1
    if said.first_s >= 0:
        tally.first.append(said.first_s)
    if said.outcome == "refused":
        tally.refusals[f"{client.talker.name}: {said.code}"] += 1
    whole, name = client.alone, f"{client.talker.name} {client.number}"
    if said.outcome == "done":
        if hashlib.sha256(said.audio).digest() != hashlib.sha256(whole).digest():
            tally.wrong.append(f"{name}: {len(said.audio)} bytes of {len(whole)}")
        tally.clips.setdefault(client.number, said.audio)
    elif not whole.startswith(said.audio):
        tally.wrong.append(f"{name}: the beginning of something else")


async def first(client: Client) -> None:
    """Hear the text once in a calm."""
    said = await client.talker.say(text_of(client.number))
    assert said.outcome == "done", (client.talker.name, said.outcome, said.code)
    client.alone = said.audio


async def live(client: Client, until: float, draw: random.Random, tally: Tally) -> None:
    """Say one's text again and again."""
    talker, text = client.talker, text_of(client.number)
    await asyncio.sleep(draw.uniform(0, 10))
    while time.perf_counter() < until:
        if draw.random() < LOST:
            speaking = asyncio.create_task(talker.say(text))
            await asyncio.sleep(draw.uniform(0, 0.5))
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await talker.reset()
            tally.outcomes["lost"] += 1
        else:
            cut = draw.uniform(0, 0.25) if draw.random() < INTERRUPTED else None
            said = await talker.say(text, cut)
            judge(client, said, tally)
            if said.outcome == "refused":
                await asyncio.sleep(draw.uniform(1, 3))
        await asyncio.sleep(draw.uniform(2, 14))
    await talker.close()


def rss_mb(pid: int) -> float:
    """Memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def gauges(url: str) -> dict[str, float]:
    """The gateway's metrics."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }


def total(left: dict[str, float], name: str) -> float:
    """A metric, over all its labels; one that is not there is a mistake of ours."""
    values = [value for key, value in left.items() if key.partition("{")[0] == name]
    assert values, name
    return sum(values)


async def watch(pid: int, tally: Tally, began: float) -> None:
    """Note the memory every second."""
    while True:
        tally.rss.append((time.perf_counter() - began, rss_mb(pid)))
        await asyncio.sleep(1.0)


async def soak(gateway: GatewayProcess, count: int, seconds: float) -> Tally:
    """Run it."""
    tally = Tally()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        clients = [Client(n, TALKERS[n % len(TALKERS)](gateway.url, http, VOICE)) for n in range(count)]
        for at in range(0, count, CALM):  # what each has to hear from now on, while next to nothing goes on
            await asyncio.gather(*(first(client) for client in clients[at : at + CALM]))
        began = time.perf_counter()
        watching = asyncio.create_task(watch(gateway.process.pid, tally, began))
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(live(client, began + seconds, random.Random(client.number), tally))
        watching.cancel()
    tally.sockets = [client.talker for client in clients if isinstance(client.talker, Socket)]
    return tally


async def heard(tally: Tally) -> float:
    """The share of a sample of clips in which speech recognition finds the client's digits."""
    clips = {}
    numbers = sorted(tally.clips)[:: max(1, len(tally.clips) // HEARD)][:HEARD]
    for number in numbers:
        sound = decode(tally.clips[number], "pcm_s16le")
        down = Resampler(RATE, 8000)
        clips[str(number)] = encode(np.concatenate([down.process(sound), down.flush()]), "mulaw")
    answer = await listen("base", clips)
    right = 0
    for number in numbers:
        heard = re.sub(
            "|".join(DIGITS), lambda word: str(DIGITS.index(word[0])), answer.heard[str(number)].lower()
        )
        right += code_of(number) in re.sub(r"\D", "", heard)
    return right / len(numbers)


def main(argv: list[str]) -> int:
    """Run the bench and report."""
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=135.0)
    args = parser.parse_args(argv)
    began = time.perf_counter()
    Socket.pinged = True
    report = Report("soak")
    report.figure("machine's load before the run", os.getloadavg()[0])
    with GatewayProcess(log_level="warning", resume_s="0", wyoming="127.0.0.1:0") as gateway:
        host, _, port = gateway.told(r"and at tcp://(\S+)").rpartition(":")
        Wyoming.address = (host, int(port))
        tally = asyncio.run(soak(gateway, args.clients, args.seconds))
        time.sleep(5.0)  # longer than anything is kept for a client that is gone
        left = gauges(gateway.url)
    active, sessions = total(left, "voxwire_active_contexts"), total(left, "voxwire_sessions")
    spoken = sum(tally.outcomes[kind] for kind in ("done", "cut"))
    for kind in ("done", "cut", "lost", "refused"):
        report.figure(f"texts {kind}", tally.outcomes[kind])
    for words, times in sorted(tally.refusals.items()):
        report.figure(f"refused by {words}", times)
    for percent in (50, 99, 99.9):
        value = float(np.percentile(tally.first, percent))
        report.figure(f"first audio p{percent:g}", value * 1000, "ms")
    warm = [mb for at, mb in tally.rss if WARM_S <= at < WARM_S + 30] or [tally.rss[0][1]]
    last = [mb for _, mb in tally.rss[-30:]]
    report.figure("memory after warm-up", float(np.median(warm)), "MB")
    report.figure("memory at the end", float(np.median(last)), "MB")
    for line in tally.wrong[:10]:
        print("wrong:", line)
    share = asyncio.run(heard(tally))
    report.goal("texts spoken or cut", spoken, ">= 1")
    report.goal(
        "memory at the end against after warm-up", float(np.median(last) / np.median(warm)), "<= 1.05"
    )
    report.goal("contexts left", active, "== 0")
    report.goal("sessions left", sessions, "== 0")
    report.goal("texts with other samples than in the calm", len(tally.wrong), "== 0")
    report.goal("digits recognised in a sample", share, ">= 0.95")
    report.goal("pings answered", sum(talker.pongs for talker in tally.sockets), ">= 1")
    report.goal("pings of whole texts without an answer", sum(t.silent for t in tally.sockets), "== 0")
    report.goal("slowest answer to a ping, ms", max(t.pong_s for t in tally.sockets) * 1000, "< 1000")
    report.goal("first audio p99.9, ms", float(np.percentile(tally.first, 99.9)) * 1000, "< 2000")
    report.goal("the whole run, minutes", (time.perf_counter() - began) / 60, "<= 5")
    return report.finish()
