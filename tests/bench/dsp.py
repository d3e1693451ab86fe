"""Resampling and mu-law for the phone: streams per core and added delay, beside soxr and pipecat.

A stream is 20 ms frames at 22.05 or 24 kHz that become 160 bytes of 8 kHz mu-law. Streams per core are the
real time of a frame over the CPU time of one frame, on a single thread: the best of several rounds, as other
work on the machine only ever adds. The lag is the audio fed and not yet given after each 20 ms feed, the same
for everyone. soxr and our gather form work on one stream at a time, as pipecat does; the batched form takes a
frame of 128 streams at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telephony.dsp.g711 import mulaw_encode
from telephony.dsp.pcm import encode, float_to_int16
from telephony.dsp.resample import FRAME_MS, BatchResampler, Resampler
from tests.bench.report import Report
from tests.envs import ensure

RATES = (22050, 24000)
OUT_RATE = 8000
BATCH = 128
LAG_FRAMES = 1000
ROUNDS = 7
PEER_DEADLINE_S = 300.0
# Read by the BLAS of numpy when it loads: one thread, or "per core" would mean nothing.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PEER = Path(__file__).parents[1] / "peers" / "pipecat_twilio.py"

Step = Callable[[int], int]


def noise(*shape: int) -> NDArray[np.float32]:
    """Return noise at -14 dBFS, float32."""
    return (np.random.default_rng(0).standard_normal(shape) * 0.2).astype(np.float32)


def ours_batched(rate: int) -> Step:
    """Return a step that takes frame ``k`` of every stream and returns the samples made for one of them."""
    resampler = BatchResampler(rate, OUT_RATE, BATCH)
    frames = noise(20, BATCH, resampler.n_in)

    def step(k: int) -> int:
        codes = mulaw_encode(float_to_int16(resampler.process(frames[k % len(frames)])))
        # The first samples after a reset are the filter's run-up, before the audio begins.
        return int(codes.shape[1]) - (resampler.delay if k == 0 else 0)

    return step


def ours_gather(rate: int, frames_at_once: int = 1) -> Step:
    """Return a step of one stream in the gather form, in chunks of so many frames."""
    resampler = Resampler(rate, OUT_RATE)
    frames = noise(50, frames_at_once * rate * FRAME_MS // 1000)
    return lambda k: len(encode(resampler.process(frames[k % len(frames)]), "mulaw"))


def soxr_stream(rate: int, quality: str) -> Step:
    """Return a step of one soxr stream on int16, its fastest form, with our mu-law table behind it."""
    import soxr

    stream = soxr.ResampleStream(rate, OUT_RATE, 1, dtype="int16", quality=quality)
    frames = float_to_int16(noise(50, rate * FRAME_MS // 1000))

    def step(k: int) -> int:
        return len(mulaw_encode(stream.resample_chunk(frames[k % len(frames)])))

    return step


def streams_per_core(step: Step, frames: int = 1) -> float:
    """Return how many streams one core carries if it does nothing else; a step makes ``frames`` frames."""
    count = max(100, 2000 // frames)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for k in range(1, count + 1):
            step(k)
        best = min(best, time.process_time() - start)
    return FRAME_MS / 1000 / (best / count / frames)


def lag_ms(step: Step) -> tuple[float, float, float]:
    """Return mean, least and most milliseconds withheld after a feed, from a fresh stream on."""
    given, held = 0, []
    for k in range(LAG_FRAMES):
        given += step(k)
        held.append((k + 1) * FRAME_MS - given * 1000 / OUT_RATE)
    return sum(held) / len(held), min(held), max(held)


def pipecat() -> dict[str, Any]:
    """Return the figures of pipecat's serializer, measured now in its own environment."""
    command = [str(ensure("pipecat")), str(PEER), *map(str, RATES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the pipecat peer failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(argv: list[str]) -> int:
    """Run the bench; it takes no arguments."""
    if argv:
        print("the dsp bench takes no arguments", file=sys.stderr)
        return 2
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        # numpy is loaded by now and will not look again: start over.
        os.execve(sys.executable, [sys.executable, "-m", "tests.bench", "dsp"], os.environ | ONE_THREAD)
    report = Report("dsp")
    theirs = pipecat()
    name = f"pipecat {theirs['version']}"
    batched, ratios = [], []
    for rate in RATES:
        peer = theirs["rates"][str(rate)]
        label = f"{rate / 1000:g} -> 8 kHz"
        batched.append(streams_per_core(ours_batched(rate), BATCH))
        soxr_streams = {f"soxr {q}": streams_per_core(soxr_stream(rate, q)) for q in ("HQ", "VHQ")}
        lags = {f"soxr {q}": lag_ms(soxr_stream(rate, q)) for q in ("HQ", "VHQ")}
        lags[name] = tuple(peer["lag_ms"])
        ours = lag_ms(ours_batched(rate))
        ratios.append(lags[name][0] / ours[0])
        report.figure(
            f"{label}: streams per core, batched by {BATCH}",
            batched[-1],
            peers=soxr_streams | {name: FRAME_MS * 1000 / peer["resample_us"]},
            headline=True,
        )
        report.figure(
            f"{label}: streams per core, one at a time, 20 ms chunks",
            streams_per_core(ours_gather(rate)),
            peers=soxr_streams | {name: FRAME_MS * 1000 / peer["resample_us"]},
        )
        report.figure(
            f"{label}: streams per core, one at a time, 1 s chunks",
            streams_per_core(ours_gather(rate, 50), 50),
        )
        report.figure(
            f"{label}: mean lag, batched",
            ours[0],
            "ms",
            peers={who: lag[0] for who, lag in lags.items()},
            headline=True,
        )
        report.figure(
            f"{label}: most lag, batched", ours[2], "ms", peers={w: lag[2] for w, lag in lags.items()}
        )
        report.figure(f"{label}: mean lag, one at a time", lag_ms(ours_gather(rate))[0], "ms")
    report.goal("streams per core, batched", min(batched), ">= 5000")
    report.goal("pipecat's mean lag over ours", min(ratios), ">= 30")
    return report.finish()
