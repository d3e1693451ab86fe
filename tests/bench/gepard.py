"""GEPARD at full size on this CPU: ms a step at 1, 4, 16 and 64 streams on vLLM, beside the plain loop.

Random weights of the published sizes (513 million numbers), which cost the same. Each stream reads 48 text
tokens and draws as the product does where nothing is asked for. A step gives every stream one frame, 46.4 ms
of sound; only steps in which all streams took part are counted. The plain loop serves one stream. "Forward"
is the model and its heads alone, timed in the worker; what a step takes more is sampling and scheduling. The
codec is left out, and both compute on all cores; ``--threads`` gives them fewer, as the gateway does, which
leaves a core to the codec. Alone on the machine, or with one core free for others: threads that wait for each
other make any load look many times worse. Takes about eight minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.report import Report
from tests.envs import MODEL_ENV, ROOT
from tts_core.gepard.frames import FrameRequest
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec.fsq import SAMPLE_RATE, SAMPLES_PER_FRAME

FRAME_MS = SAMPLES_PER_FRAME / SAMPLE_RATE * 1000
FRAMES = {1: 48, 4: 48, 16: 120, 64: 48}
LOOP_FRAMES = 48
TEXT_TOKENS = 48
SETTLED = 4
"""Frames at the start and the end of a stream that are not counted."""


def request(name: str, frames: int, seed: int = 0) -> FrameRequest:
    """Return a request of fixed length that never stops by itself, drawn as the product does it unasked."""
    ids = tuple(100 + (7 * seed + i) % 300 for i in range(TEXT_TOKENS))
    sampling = Sampling(seed=seed, max_frames=frames, stop_threshold=1.0)
    return FrameRequest(name, ids, None, sampling)


def loop_ms(checkpoint: Any, dtype: str, frames: int, threads: int | None = None) -> float:
    """Return the plain loop's median ms a frame, on so many threads."""
    import torch

    from tts_core.gepard.reference import ReferenceModel

    if threads is not None:
        torch.set_num_threads(threads)
    model = ReferenceModel.load(checkpoint, dtype)
    for _ in model.frames(request("warm", 4)):
        pass
    at = [time.perf_counter() for _ in model.frames(request("loop", frames))]
    return float(np.median(np.diff(at[SETTLED:]))) * 1000


async def streams(model: Any, count: int, frames: int) -> list[list[float]]:
    """Run ``count`` streams at once; return when each frame of each came."""

    async def one(seed: int) -> list[float]:
        at: list[float] = []
        async for batch in model.generate(request(f"{count}-{seed}", frames, seed)):
            at += [time.perf_counter()] * len(batch.codes)
        return at

    return await asyncio.gather(*(one(seed) for seed in range(count)))


async def engine_ms(model: Any, count: int, frames: int) -> tuple[float, float, float]:
    """Return three medians of ``count`` streams: ms of a step for readers and of its forward; the overhead.

    The overhead is what a step takes in the worker from one forward's begin to the next one's, over what
    that forward took, less 1: of each step by itself, as a machine's clock can change from step to step.
    """
    await model.ask("gepard_clock")
    arrivals = await streams(model, count, frames)
    calls: list[tuple[int, float, float]] = await model.ask("gepard_clock")
    begin = max(at[min(SETTLED, frames - 2)] for at in arrivals)
    end = min(at[-1] for at in arrivals)
    seen = [(b - a) * 1000 for at in arrivals for a, b in itertools.pairwise(at) if begin <= a and b <= end]
    whole = [(b - a, end - a) for (n, a, end), (_, b, _) in itertools.pairwise(calls) if n == count]
    forward = statistics.median(end for _, end in whole) * 1000
    return statistics.median(seen), forward, statistics.median(period / end - 1 for period, end in whole)


async def measure(
    report: Report,
    checkpoint: Any,
    dtype: str,
    *,
    compiled: bool,
    counts: list[int],
    threads: int | None = None,
) -> None:
    """Measure one number type and fill the report; bfloat16 carries the goals."""
    from tts_core.gepard.vllm_model import VllmModel

    loop = loop_ms(checkpoint, dtype, LOOP_FRAMES, threads)
    model = VllmModel(
        checkpoint,
        dtype=dtype,
        max_streams=max(counts),
        max_frames=max(FRAMES.values()),
        max_context=0,
        compiled=compiled,
        threads=threads,
        first_timeout_s=120.0,
        step_timeout_s=60.0,
        arguments={
            "worker_extension_cls": "tests.bench._timed.TimedExtension",
            "enable_prefix_caching": False,
        },
    )
    began = time.perf_counter()
    await model.start()
    report.figure(f"{dtype}: start", time.perf_counter() - began, "s")
    # The model has all cores: this process, which only reads, does not take one from it in the middle of a
    # step. In service the model leaves a core to the gateway.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        await model.ask("gepard_clock")
        await streams(model, 2, 8)
        for count in counts:
            step, forward, overhead = await engine_ms(model, count, FRAMES[count])
            speedup = loop * count / step
            report.figure(
                f"{dtype}: a step of {count}", step, "ms", peers={"plain loop": loop}, headline=True
            )
            report.figure(f"{dtype}: throughput of {count}", speedup, "x loop", peers={"plain loop": 1.0})
            report.figure(f"{dtype}: real-time factor of {count}", step / FRAME_MS, "")
            report.figure(f"{dtype}: forward of {count}", forward, "ms")
            report.figure(f"{dtype}: overhead over forward of {count}", overhead * 100, "%")
            if dtype == "bfloat16":
                if count == 4:
                    report.goal("throughput of 4 streams, x loop", speedup, ">= 4")
                    report.goal("real-time factor of 4 streams", step / FRAME_MS, "<= 1")
                if count == 16:
                    report.goal("throughput of 16 streams, x loop", speedup, ">= 9")
                    report.goal("overhead over forward of 16 streams, %", overhead * 100, "<= 10")
    finally:
        await model.close()


def main(argv: list[str]) -> int:
    """Run the bench: ``[--eager] [--size tiny] [--dtype bfloat16|float32] [--threads N]``."""
    options = argparse.ArgumentParser(prog="python -m tests.bench gepard")
    options.add_argument("--eager", action="store_true", help="do not compile the model")
    options.add_argument("--size", choices=("tiny", "full"), default="full", help="tiny: to try the bench")
    options.add_argument("--dtype", choices=("bfloat16", "float32"), action="append")
    options.add_argument("--threads", type=int, help="of the model and of the plain loop; all cores without")
    asked = options.parse_args(argv)
    if find_spec("vllm") is None:
        python = str(ROOT / MODEL_ENV / "bin" / "python")
        os.execv(python, [python, "-m", "tests.bench", "gepard", *argv])
    from tts_core.gepard.checkpoint import Checkpoint
    from tts_core.gepard.tiny import make_tiny

    report = Report("gepard")
    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny(Path(folder) / "model", size=asked.size, dtype="bfloat16")
        checkpoint = Checkpoint.open(path)
        for dtype in asked.dtype or ("bfloat16", "float32"):
            asyncio.run(
                measure(
                    report,
                    checkpoint,
                    dtype,
                    compiled=not asked.eager,
                    counts=list(FRAMES),
                    threads=asked.threads,
                )
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
