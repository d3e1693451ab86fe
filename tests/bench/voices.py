"""Stored voices on a real Redis: what opening one adds to the first audio, enrolling one, and their size.

A voice is the 16 KiB of a GEPARD prefix. *Warm Redis*: kept in Redis, not in this process, consent looked up.
*Warm process*: opened a moment ago. *Enrolment* is everything around the model, which is left out here:
consent, limits, lease, seal, audit. *Found again* is the same clip once more. One caller at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

from sessions.consent import ConsentTerms, How, Reach
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.voice_desk import VoiceDesk
from sessions.voice_limits import VoiceLimits
from tests.bench.report import Report
from tests.peers.redis import RedisServer

VOICES = 1000
SIZE = 16_384
ROUNDS = 1000
TERMS = ConsentTerms("person", Reach.PERMANENT, ("calls",), ("*",), How.LICENSED, "0" * 64)
LIMITS = VoiceLimits(enrolments_per_hour=10**6, permanent_voices=10**6)


async def timed(step: Callable[[int], Awaitable[object]], rounds: int) -> tuple[float, float]:
    """Run ``step(i)`` one after the other; return the median and the 99th percentile in ms."""
    took = []
    for i in range(rounds):
        start = time.perf_counter()
        await step(i)
        took.append((time.perf_counter() - start) * 1000)
    return float(np.median(took)), float(np.percentile(took, 99))


async def measure(server: RedisServer) -> Report:
    """Fill a store and read from it."""
    report = Report("voices")
    store = RedisStore(server.url, deadline=5.0)
    await store.start()
    desk = VoiceDesk(store, DeploymentSecret(os.urandom(32)), size=SIZE, limits=LIMITS)
    await desk.start()
    consent = (await desk.consents.create("acme", TERMS)).id
    prefix = np.random.default_rng(0).standard_normal(SIZE // 2).astype("<f2").tobytes()

    async def model() -> bytes:
        return prefix

    async def enrol(i: int) -> object:
        digest = hashlib.sha256(b"%d" % i).hexdigest()
        return await desk.enrolment.enrol("acme", None, digest, "m" * 64, consent, model, name=f"voice {i}")

    with server.client() as client:
        before = client.info("memory")["used_memory"]
        figures = {"enrolment": await timed(enrol, 50)}
        figures["enrolment, found again"] = await timed(enrol, 50)
        for _ in range(VOICES - 100):
            await desk.voices.put("acme", None, os.urandom(SIZE), None, revision="m" * 64)
        used = (client.info("memory")["used_memory"] - before) / 1e6
    ids = [e.id for e in await desk.catalogue.list("acme") if e.consent]

    async def cold(i: int) -> object:
        desk.voices.cache.clear()
        return await desk.voices.conditioning("acme", ids[i % len(ids)], revision="m" * 64)

    async def warm(i: int) -> object:
        return await desk.voices.conditioning("acme", ids[0], revision="m" * 64)

    figures["warm Redis"] = await timed(cold, ROUNDS)
    await warm(0)
    figures["warm process"] = await timed(warm, ROUNDS)
    figures["list of 1,000"] = await timed(lambda _: desk.catalogue.list("acme"), 10)
    figures["deletion with receipt"] = await timed(
        lambda i: desk.deletions.delete("acme", ids[i], wait=5), 50
    )
    for name, (median, high) in figures.items():
        report.figure(f"{name}, p50", median, "ms")
        report.figure(f"{name}, p99", high, "ms")
    report.figure("Redis for 1,000 voices", used, "MB")
    report.goal("warm Redis, p50", figures["warm Redis"][0], "<= 3")
    report.goal("warm Redis, p99", figures["warm Redis"][1], "<= 3")
    report.goal("Redis for 1,000 voices", used, "<= 40")
    await desk.close()
    await store.close()
    return report


def main(argv: list[str]) -> int:
    """Run the bench; it takes no arguments."""
    if argv:
        print("the voices bench takes no arguments", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            return asyncio.run(measure(server)).finish()
        finally:
            server.kill()
