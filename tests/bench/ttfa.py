"""Time to first audio: from the first delta of a text to the first audible mu-law sample at the client.

The gateway as a process, beside two servers that run the Piper voice (``piper-tts-server``,
``wyoming-piper``), all warm and connected, idle but for the one request, taking turns in random order. Texts
of 1, 12 and 60 words come in pieces, all at once, and 60 words also at the pace of a language model. Leading
silence counts: a player without any reserve plays what arrives, and the time is that of the first 10 ms
above -40 dBFS (RMS) in it.

The engine's own time is that of ``EmbeddedEngine.synthesize`` in this process, with nothing before or after
it, for the very segment that the gateway speaks first, by the same measure.

    python -m tests.bench ttfa [--rounds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing

import aiohttp
import numpy as np

from gateway.native.frames import unpack
from telephony.dsp.pcm import decode, encode
from telephony.dsp.resample import Resampler
from tests.bench.report import Report
from tests.peers.piper import PiperTtsServer, WyomingPiper
from tests.peers.process import GatewayProcess
from tts_core.embedded import EmbeddedEngine
from tts_core.engine import Samples, SpeechRequest
from tts_core.text.normaliser import normalise_text
from tts_core.text.segmenter import TextFrontEnd

# Both long ones begin alike: different first sounds are heard at different times after the first sample.
TEXTS = {
    1: "Okay.",
    12: "I can help you with that appointment right now if you like.",
    60: (
        "I can help you with that appointment right now if you like. Our office is open from Monday to "
        "Friday, from eight in the morning until six in the evening. To speak with a nurse, please say nurse "
        "at any time. For questions about a bill, have your account number ready, and one of us will call "
        "you very soon."
    ),
}
PACE = 20.0
"""Words a second of a fast language model."""

PEER_EVERY = 3
"""The peers speak 60 words in every third round only: each takes them many seconds."""

OURS, ENGINE, HTTP, WYOMING = "Voxwire", "engine alone", "piper-tts-server", "wyoming-piper"
RATE = 8000
ENOUGH_S = 1.0
"""Audio after which our own are stopped; far more than any leading silence."""

Speak = Callable[[list[str], float], AsyncIterator[Samples]]
"""Deltas and the pause between them (s) to 8 kHz float samples as the client gets them."""


def deltas(text: str) -> list[str]:
    """Words with the blank before them, as tokens come."""
    return re.findall(r"\s*\S+", text)


def audible(pcm: Samples) -> int | None:
    """First sample of 8 kHz audio a listener hears: the middle of the first 10 ms with an RMS of 0.01.

    The rule of coval-ai/benchmarks (``metrics/ttfa.py``): 10 ms frames each 1 ms, mean removed, threshold
    0.01 of full scale.
    """
    half, hop = RATE // 200, RATE // 1000
    x = np.pad(pcm - pcm.mean(), half).astype(np.float64)
    power = np.concatenate([[0.0], np.cumsum(np.square(x))])
    rms = np.sqrt((power[2 * half :] - power[: -2 * half]) / (2 * half))[::hop]
    loud = np.flatnonzero(rms >= 0.01)
    return int(loud[0]) * hop if len(loud) else None


async def measure(speak: Speak, text: str, pause_s: float = 0.0) -> float:
    """Seconds from the first delta to the first audible sample, played as it arrives."""
    began = time.perf_counter()
    starts: list[tuple[int, float]] = []  # first sample of a chunk, and when a player plays it
    parts: list[Samples] = []
    total, end = 0, 0.0
    async with aclosing(speak(deltas(text), pause_s)) as audio:  # type: ignore[type-var]
        async for pcm in audio:
            if not len(pcm):
                continue
            at = max(time.perf_counter(), end)
            starts.append((total, at))
            end = at + len(pcm) / RATE
            total += len(pcm)
            parts.append(pcm)
    first = audible(np.concatenate(parts))
    assert first is not None, "nothing to hear"
    sample, at = next((s, t) for s, t in reversed(starts) if s <= first)
    return at + (first - sample) / RATE - began


def over_the_phone(rate: int) -> Callable[[Samples], Samples]:
    """What a client does to send PCM to a phone: 8 kHz and mu-law, and back to samples for the measure."""
    resampler = Resampler(rate, RATE)
    return lambda pcm: decode(encode(resampler.process(pcm), "mulaw"), "mulaw")


class Arms:
    """The four ways to speak, each as a ``Speak``."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        engine: EmbeddedEngine,
        http: PiperTtsServer,
        wyoming: WyomingPiper,
    ) -> None:
        self._socket, self._engine, self._http, self._wyoming = socket, engine, http, wyoming
        self._turn = 0

    async def ours(self, pieces: list[str], pause_s: float) -> AsyncIterator[Samples]:
        """One context on an open socket; cancelled after a second of audio."""
        ws = self._socket
        self._turn += 1
        context = f"turn-{self._turn}"
        fmt = {"encoding": "mulaw", "sample_rate": RATE}

        async def send() -> None:
            await ws.send_json({"type": "open", "context": context, "format": fmt, "text": pieces[0]})
            for piece in pieces[1:]:
                if pause_s:
                    await asyncio.sleep(pause_s)
                await ws.send_json({"type": "text", "context": context, "text": piece})
            await ws.send_json({"type": "end", "context": context})

        sending = asyncio.create_task(send())
        samples = 0
        async for message in ws:
            if message.type is aiohttp.WSMsgType.BINARY:
                payload = unpack(message.data).payload
                yield decode(payload, "mulaw")
                before, samples = samples, samples + len(payload)
                if before < ENOUGH_S * RATE <= samples:
                    if pause_s:
                        sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
                    await ws.send_json({"type": "cancel", "context": context})
                continue
            event = message.json()
            assert event["type"] != "error", event
            if event["type"] in ("done", "cancelled"):
                break
        else:
            raise AssertionError(f"the gateway closed the socket: {ws.close_code}")
        await asyncio.gather(sending, return_exceptions=True)

    async def engine(self, pieces: list[str], pause_s: float) -> AsyncIterator[Samples]:
        """The engine alone on the segment that the gateway speaks first."""
        phone = over_the_phone(self._engine.info.native_rate)
        request = SpeechRequest("bench", first_segment("".join(pieces)), "heart")
        samples = 0
        async with aclosing(self._engine.synthesize(request)) as chunks:
            async for chunk in chunks:
                yield phone(chunk.pcm)
                samples += len(chunk.pcm)
                if samples >= ENOUGH_S * self._engine.info.native_rate:
                    break

    async def http(self, pieces: list[str], pause_s: float) -> AsyncIterator[Samples]:
        """A server that takes the whole text: it has to be waited for."""
        if pause_s:
            await asyncio.sleep(pause_s * (len(pieces) - 1))
        phone = over_the_phone(self._http.rate)
        async for data in self._http.speak(pieces):
            yield phone(decode(data, "pcm_s16le"))

    async def wyoming(self, pieces: list[str], pause_s: float) -> AsyncIterator[Samples]:
        """A server that takes text in pieces."""
        phone = over_the_phone(self._wyoming.rate)
        async for data in self._wyoming.speak(pieces, pause_s=pause_s):
            yield phone(decode(data, "pcm_s16le"))


def first_segment(text: str) -> str:
    """What the gateway gives the engine first for this text."""
    front = TextFrontEnd()
    return normalise_text((front.feed(text) + front.end())[0].text)


async def run(rounds: int) -> dict[tuple[str, int, bool], list[float]]:
    """All times in seconds by arm, words and whether the text was paced."""
    times: dict[tuple[str, int, bool], list[float]] = {}
    engine = EmbeddedEngine()
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(messages_per_s="10000"))
        await engine.start()
        stack.push_async_callback(engine.close)
        http = await stack.enter_async_context(PiperTtsServer())
        wyoming = await stack.enter_async_context(WyomingPiper())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        ws = await stack.enter_async_context(session.ws_connect(gateway.ws + "/v1/stream?api_key=bench"))
        await ws.send_json({"type": "hello", "version": 1})
        assert (await ws.receive_json())["type"] == "hello"
        arms = Arms(ws, engine, http, wyoming)
        speaks: dict[str, Speak] = {
            OURS: arms.ours,
            ENGINE: arms.engine,
            HTTP: arms.http,
            WYOMING: arms.wyoming,
        }
        order = random.Random(7)
        for turn in range(-1, rounds):  # the first warms up and is not counted
            todo = [(name, words, False) for name in speaks for words in TEXTS]
            todo += [(name, 60, True) for name in (OURS, HTTP, WYOMING)]
            order.shuffle(todo)
            for name, words, paced in todo:
                if words == 60 and name in (HTTP, WYOMING) and turn % PEER_EVERY:
                    continue
                took = await measure(speaks[name], TEXTS[words], 1 / PACE if paced else 0.0)
                if turn >= 0:
                    times.setdefault((name, words, paced), []).append(took)
    return times


def main(argv: list[str]) -> int:
    """Run the bench and report."""
    parser = argparse.ArgumentParser(prog="ttfa")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args(argv)
    load = os.getloadavg()[0]
    times = asyncio.run(run(max(1, args.rounds)))
    report = Report("ttfa")

    def ms(name: str, words: int, paced: bool, percent: int) -> float | None:
        values = times.get((name, words, paced))
        return float(np.percentile(values, percent)) * 1000 if values else None

    rows = [(words, False) for words in TEXTS] + [(60, True)]
    for words, paced in rows:
        label = f"{words} word{'s' * (words > 1)}" + (f" at {PACE:g} a second" if paced else "")
        for percent in (50, 95):
            report.figure(
                f"{label}, p{percent}",
                ms(OURS, words, paced, percent),
                "ms",
                peers={name: ms(name, words, paced, percent) for name in (ENGINE, HTTP, WYOMING)},
                headline=percent == 50,
            )
    report.figure("machine's load before the run", load)
    twelve = float(np.median(times[OURS, 12, False]))
    report.goal(
        "12 words: p50 over the engine's own", twelve / float(np.median(times[ENGINE, 12, False])), "<= 1.5"
    )
    report.goal(
        "p50 of 60 words over that of 12", float(np.median(times[OURS, 60, False])) / twelve, "<= 1.3"
    )
    return report.finish()
