"""GEPARD at full size on one GPU: 1 to 256 streams at once, frames without the codec; under ten minutes.

Random weights of the published sizes; every stream reads 48 text tokens and speaks 215 frames (10 s), all
begin at the same moment. TTFA is the time to a stream's first frame, without the codec (its first chunk is
one frame). RTF: a stream's time from first to last frame over the sound in it. xRT: sound of all streams over
the wall time. Continuous: streams whose every frame was there when a listener who began to play 100 ms after
the first one needed it. Run it with the interpreter of an environment that has vllm for CUDA.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.gepard import FRAME_MS, streams
from tests.bench.report import Report

COUNTS = (1, 8, 32, 64, 128, 256)
FRAMES = 215
LEAD_S = 0.1


def has_gpu() -> bool:
    """Whether this machine has a GPU that this interpreter's torch can use."""
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def judge(began: float, arrivals: list[list[float]]) -> dict[str, float]:
    """Return the figures of streams that were all asked for at ``began``, from when their frames came."""
    first = [at[0] - began for at in arrivals]
    sound = FRAME_MS / 1000 * len(arrivals[0])
    due = np.arange(len(arrivals[0])) * FRAME_MS / 1000 + LEAD_S
    whole = [bool((np.array(at) - at[0] <= due).all()) for at in arrivals]
    return {
        "TTFA p50": statistics.median(first) * 1000,
        "TTFA p95": float(np.percentile(first, 95)) * 1000,
        "RTF": statistics.median((at[-1] - at[0]) / sound for at in arrivals),
        "xRT": len(arrivals) * sound / (max(at[-1] for at in arrivals) - began),
        "continuous": statistics.mean(whole) * 100,
    }


async def measure(report: Report, checkpoint: Any, counts: tuple[int, ...], frames: int) -> None:
    """Run one engine through all counts."""
    from tts_core.gepard.vllm_model import VllmModel

    units = {"TTFA p50": "ms", "TTFA p95": "ms", "RTF": "", "xRT": "x", "continuous": "%"}
    model = VllmModel(
        checkpoint,
        max_streams=max(counts),
        max_frames=frames,
        max_context=0,
        arguments={"enable_prefix_caching": False},
    )
    began = time.perf_counter()
    await model.start()
    report.figure("start", time.perf_counter() - began, "s")
    try:
        await streams(model, min(8, max(counts)), 16)
        for count in counts:
            began = time.perf_counter()
            for name, value in judge(began, await streams(model, count, frames)).items():
                report.figure(f"{count} streams: {name}", value, units[name])
        report.figure("model runner", (await model.stats())["runner"])
    finally:
        await model.close()


def main(argv: list[str]) -> int:
    """Run the bench; ``--try`` runs a tiny model on whatever there is, to see that the bench works."""
    options = argparse.ArgumentParser(prog="python -m tests.bench gpu")
    options.add_argument("--try", dest="tried", action="store_true", help="a tiny model on any device")
    asked = options.parse_args(argv)
    report = Report("gpu")
    if not asked.tried and not has_gpu():
        print("no GPU that this interpreter's torch can use: nothing was measured")
        print(report.line(), flush=True)
        return 0
    if find_spec("vllm") is None:
        from tests.envs import MODEL_ENV, ROOT

        python = str(ROOT / MODEL_ENV / "bin" / "python")
        os.execv(python, [python, "-m", "tests.bench", "gpu", *argv])
    from tts_core.gepard.checkpoint import Checkpoint
    from tts_core.gepard.tiny import make_tiny

    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny(Path(folder) / "model", size="tiny" if asked.tried else "full", dtype="bfloat16")
        counts, frames = ((1, 4), 24) if asked.tried else (COUNTS, FRAMES)
        asyncio.run(measure(report, Checkpoint.open(path), counts, frames))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
