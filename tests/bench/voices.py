"""Voices on a real Redis: what one of a tenant's own adds to the first audio, enrolling one, and their size.

A voice is the 16 KiB of a GEPARD prefix. *Warm Redis*: kept in Redis, not in this process, consent looked up.
*Warm process*: opened a moment ago. *Enrolment* is everything around the model, which is left out here:
consent, limits, lease, seal, audit. *Found again* is the same clip once more. One caller at a time.

Then through the gateway, with the test engine, which speaks at once, so that what is left is ours: from
``open`` on the native socket to the first frame, in turn with a built-in voice, with an own one that is warm
in the process, and with one that is warm in Redis; and from the first byte of ``POST /v1/voices`` with a
five-second recording to its answer, decoder and judgement included. Both sides run in this one process.

*Cold enrolment* is what a voice adds to the first audio that is spoken with as soon as it is made: the same
way, from the first byte of the recording to the first frame, with GEPARD's own work in it (NanoCodec's
encoder and the compressor, float32 in processes of their own, on random weights of ``--size``), less the
first frame of a built-in voice. The very first one, which also starts those processes, is told apart. What a
model needs to read a new prefix is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from sessions.consent import ConsentTerms, How, Reach
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.voice_desk import VoiceDesk
from sessions.voice_limits import VoiceLimits
from tests.bench.report import Report
from tests.envs import MODEL_ENV, ROOT
from tests.peers.clips import clip
from tests.peers.gateway import Running, open_gateway
from tests.peers.native import NativeClient, native_client
from tests.peers.redis import RedisServer
from tests.peers.rest import voice_client
from tests.tone import PITCH, ToneEngine
from tts_core.engine import Samples
from tts_core.gepard.enroller import Enroller
from tts_core.gepard.prefixes import pack
from tts_core.nanocodec.service import CodecService

VOICES = 1000
CLIPS = 12
TURNS = 300
SIZE = 16_384
ROUNDS = 1000
TERMS = ConsentTerms("person", Reach.PERMANENT, ("calls",), ("*",), How.LICENSED, "0" * 64)
KEY = "bench-key-0123456789"
KEYS = f"caller[speak+voice:read+voice:enrol]:{KEY}"
COLD = {"tiny": 40, "full": 12}
"""Voices that are made cold; of so few the 99th percentile is the slowest."""
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


async def run(server: RedisServer, folder: Path, size: Literal["tiny", "full"]) -> Report:
    """All parts."""
    report = await measure(server)
    await through_the_gateway(server, folder / "data", report)
    await with_the_model(server, folder, size, report)
    return report


async def open_bench(
    stack: contextlib.AsyncExitStack, server: RedisServer, folder: Path, engine: ToneEngine
) -> Running:
    """A gateway whose one tenant may make as many voices as it likes."""
    return await open_gateway(
        stack,
        folder,
        engine=engine,
        redis_url=server.url,
        secret="s" * 40,
        api_keys=KEYS,
        voices_per_hour=100_000,
    )


async def first_audio(ws: NativeClient, context: str, voice: str) -> None:
    """Open a context, wait for its first frame."""
    await ws.send("open", context, voice=voice, text="One.", end=True, run_ahead_ms=60_000)
    while context not in ws.transcript.turns or not ws.transcript.turns[context].frames:
        await ws.next()


class ModelVoices(ToneEngine):
    """Speaks tones, and makes voices as GEPARD does."""

    def __init__(self, codec: CodecService, enroller: Enroller, numbers: int) -> None:
        super().__init__(word_s=0.02, work_s=0.0, can_clone=True)
        # Another model: what the tone engine made of a recording is not to be found again.
        self.info = replace(self.info, revision="gepard", voice_bytes=2 * numbers)
        self._codec, self._enroller = codec, enroller
        self.encoding: list[float] = []
        self.compressing: list[float] = []

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """What ``FrameEngine.enroll`` does, timed."""
        began = time.perf_counter()
        codes = await self._codec.encode(reference)
        encoded = time.perf_counter()
        rows = await self._enroller.prefix(codes)
        self.encoding.append((encoded - began) * 1000)
        self.compressing.append((time.perf_counter() - encoded) * 1000)
        return pack(rows)

    @staticmethod
    def pitch(conditioning: bytes | None) -> float:
        """The same for all: a prefix says nothing to a tone."""
        return PITCH


async def with_the_model(
    server: RedisServer, folder: Path, size: Literal["tiny", "full"], report: Report
) -> None:
    """Make a voice by a model's own means and speak with it at once."""
    from tts_core.gepard.tiny import make_tiny
    from tts_core.nanocodec.tiny import make_tiny_nemo

    path = await asyncio.to_thread(make_tiny, folder / "model", size=size, dtype="bfloat16")
    await asyncio.to_thread(make_tiny_nemo, path / "codec.nemo", size=size)
    codec, enroller = CodecService(path / "codec.nemo"), Enroller(path)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(codec.close)
        stack.push_async_callback(enroller.close)
        await codec.start()
        null = await enroller.null_prefix()
        await enroller.close()
        enroller = Enroller(path)  # its process is not there yet, as after a while without a voice
        stack.push_async_callback(enroller.close)
        engine = ModelVoices(codec, enroller, null.size)
        gateway = await open_bench(stack, server, folder / "model-data", engine)
        rest = await stack.enter_async_context(voice_client(gateway.url, KEY))
        ws = await stack.enter_async_context(native_client(gateway, headers={"X-API-Key": KEY}))
        consent = await rest.consent()
        wavs = [clip(300 + 10 * i) for i in range(COLD[size] + 1)]

        async def built_in(i: int) -> None:
            await first_audio(ws, f"built-in {i}", "tone")

        async def cold(i: int) -> None:
            made = await rest.enrol(wavs[i], consent=consent)
            assert not made["reused"]
            await first_audio(ws, f"cold {i}", made["id"])

        plain, _ = await timed(built_in, 20)
        first, _ = await timed(cold, 1)
        median, high = await timed(lambda i: cold(i + 1), COLD[size])
    of = f"cold enrolment ({size} model)"
    report.figure(f"added to the first audio, {of}, p50", median - plain, "ms")
    report.figure(f"added to the first audio, {of}, p99", high - plain, "ms")
    report.figure(f"added to the first audio, {of}, the very first", first - plain, "ms")
    for name, times in (("encoder", engine.encoding[1:]), ("compressor", engine.compressing[1:])):
        report.figure(f"of these, {name}, p50", float(np.median(times)), "ms")
        report.figure(f"of these, {name}, p99", float(np.percentile(times, 99)), "ms")


async def through_the_gateway(server: RedisServer, folder: Path, report: Report) -> None:
    """Enrol over HTTP and speak over the native socket."""
    async with contextlib.AsyncExitStack() as stack:
        engine = ToneEngine(word_s=0.02, work_s=0.0, can_clone=True)
        gateway = await open_bench(stack, server, folder, engine)
        rest = await stack.enter_async_context(voice_client(gateway.url, KEY))
        consent = await rest.consent()
        made: list[str] = []

        async def enrol(data: bytes) -> None:
            made.append((await rest.enrol(data, consent=consent))["id"])

        wavs = [clip(300 + 20 * i) for i in range(CLIPS)]
        opus = [encoded(clip(310 + 20 * i)) for i in range(CLIPS)]
        cold = {
            "a WAV": await timed(lambda i: enrol(wavs[i]), CLIPS),
            "the same WAV again": await timed(lambda i: enrol(wavs[i]), CLIPS),
            "an Opus file": await timed(lambda i: enrol(opus[i]), CLIPS),
        }
        for name, (median, high) in cold.items():
            report.figure(f"POST /v1/voices, {name}, p50", median, "ms")
            report.figure(f"POST /v1/voices, {name}, p99", high, "ms")
        ws = await stack.enter_async_context(native_client(gateway, headers={"X-API-Key": KEY}))
        took: dict[str, list[float]] = {"built-in voice": [], "warm process": [], "warm Redis": []}
        for i in range(TURNS):
            for name, times in took.items():
                if name == "warm Redis":
                    gateway.services.voices.cache.clear()
                voice = "tone" if name == "built-in voice" else made[0]
                context = f"{name} {i}"
                start = time.perf_counter()
                await first_audio(ws, context, voice)
                times.append((time.perf_counter() - start) * 1000)
                await ws.ended(context)
        for percent in (50, 99):
            value = {name: float(np.percentile(times, percent)) for name, times in took.items()}
            report.figure(f"first audio, built-in voice, p{percent}", value["built-in voice"], "ms")
            for name in ("warm process", "warm Redis"):
                added = value[name] - value["built-in voice"]
                report.figure(f"added to the first audio, {name}, p{percent}", added, "ms")
                if (name, percent) == ("warm Redis", 50):
                    report.goal("added to the first audio, warm Redis, p50", added, "<= 3")


def encoded(data: bytes) -> bytes:
    """A recording as Opus in Ogg."""
    command = ["ffmpeg", "-v", "error", "-i", "pipe:0", "-c:a", "libopus", "-f", "ogg", "pipe:1"]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=30).stdout


def main(argv: list[str]) -> int:
    """Run the bench; in the model's environment, which has what a voice is made with."""
    options = argparse.ArgumentParser(prog="python -m tests.bench voices")
    options.add_argument("--size", choices=("tiny", "full"), default="tiny", help="of the model")
    asked = options.parse_args(argv)
    if find_spec("torch") is None:
        python = str(ROOT / MODEL_ENV / "bin" / "python")
        os.execv(python, [python, "-m", "tests.bench", "voices", *argv])
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            return asyncio.run(run(server, Path(folder), asked.size)).finish()
        finally:
            server.kill()
