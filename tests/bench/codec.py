"""NanoCodec on one core: ms of CPU per frame, stateful on ONNX Runtime, beside torch, a window, and NeMo.

The codec has the released one's size and random weights, which cost the same. Each step is timed alone on one
thread, in CPU time, as the least of several rounds in which the contenders take turns: other work on the
machine only ever adds. A frame is 46.4 ms of sound. The exact window decodes 25 frames again for their effect
on the new ones, with the same torch code; NeMo, in its own environment, decodes clips of that many frames
whole, which is the least that it could do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.report import Report
from tests.envs import ROOT, ensure
from tts_core.nanocodec.fsq import LEVELS, SAMPLE_RATE, SAMPLES_PER_FRAME, Codes

CHUNKS = (1, 2, 4, 8, 16)
BATCH = 8
BATCH_CHUNKS = (1, 4)
ROUNDS = 5
WINDOW_ROUNDS = 3
FRAME_MS = SAMPLES_PER_FRAME / SAMPLE_RATE * 1000
CLIP_S = 2
PEER = Path(__file__).parents[1] / "peers" / "nemo_speed.py"
PEER_DEADLINE_S = 600.0
# Read by the libraries of numpy, torch and ONNX Runtime when they load.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Step = Callable[[], object]


def codes(*shape: int) -> Codes:
    """Return random codes ``[*shape, 32]``."""
    random = np.random.default_rng(0).random((*shape, len(LEVELS)))
    found: Codes = (random * np.array(LEVELS)).astype(np.uint8)
    return found


def least(steps: dict[str, tuple[Step, int]]) -> dict[str, float]:
    """Return the least CPU ms of each step, all taking turns; each says for how many rounds it takes part."""
    best: dict[str, float] = {}
    for step, _ in steps.values():
        step()
    for turn in range(max(rounds for _, rounds in steps.values())):
        for name, (step, rounds) in steps.items():
            if turn >= rounds:
                continue
            start = time.process_time()
            step()
            took = (time.process_time() - start) * 1000
            best[name] = min(best.get(name, took), took)
    return best


def stateful(decoder: Any, batch: int, chunk: int) -> Step:
    """Return a step of ``batch`` streams by ``chunk`` frames, each going on where the last one ended."""
    frames = codes(batch, chunk)
    states = [decoder.new_state() for _ in range(batch)]

    def step() -> None:
        _, states[:] = decoder.step(frames, states)

    return step


def nemo(model: Path) -> dict[str, Any]:
    """Return the figures of NeMo's decoder, measured now in its own environment."""
    command = [str(ensure("nemo")), str(PEER), str(model), *map(str, CHUNKS)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PEER_DEADLINE_S,
        check=False,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise RuntimeError(f"the NeMo peer failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(model: Path) -> Report:
    """Measure a codec file and fill the report."""
    import torch

    from tts_core.nanocodec.config import LEFT_CONTEXT, state_size
    from tts_core.nanocodec.decoder import TorchDecoder
    from tts_core.nanocodec.encoder import Encoder
    from tts_core.nanocodec.onnx import OnnxDecoder

    torch.set_num_threads(1)
    report = Report("codec")
    theirs = nemo(model)
    nemo_name = f"NeMo {theirs['version']}, whole"
    onnx, plain = OnnxDecoder.load(model), TorchDecoder.load(model)
    ours: dict[int, float] = {}
    ratios: dict[int, float] = {}
    for chunk in CHUNKS:
        window = codes(LEFT_CONTEXT + chunk)
        took = least(
            {
                "onnx": (stateful(onnx, 1, chunk), ROUNDS),
                "torch": (stateful(plain, 1, chunk), ROUNDS),
                "window": (lambda window=window: plain.whole(window), WINDOW_ROUNDS),  # type: ignore[misc]
            }
        )
        per_frame = {name: ms / chunk for name, ms in took.items()}
        ours[chunk] = per_frame["onnx"]
        ratios[chunk] = per_frame["torch"] / per_frame["window"]
        report.figure(
            f"CPU per frame, chunks of {chunk}",
            per_frame["onnx"],
            "ms",
            peers={
                "stateful torch": per_frame["torch"],
                f"window of {LEFT_CONTEXT}, torch": per_frame["window"],
                nemo_name: theirs["ms"][str(chunk)] / chunk,
            },
            headline=True,
        )
    for chunk in BATCH_CHUNKS:
        took = least(
            {
                "onnx": (stateful(onnx, BATCH, chunk), WINDOW_ROUNDS),
                "torch": (stateful(plain, BATCH, chunk), WINDOW_ROUNDS),
            }
        )
        report.figure(
            f"CPU per frame, {BATCH} streams by {chunk}",
            took["onnx"] / chunk / BATCH,
            "ms",
            peers={"stateful torch": took["torch"] / chunk / BATCH},
        )
    encoder = Encoder.load(model)
    clip = (np.random.default_rng(0).standard_normal(CLIP_S * SAMPLE_RATE) / 10).astype(np.float32)
    took = least({"encode": (lambda: encoder.encode(clip), WINDOW_ROUNDS)})
    report.figure("CPU per second of a reference", took["encode"] / CLIP_S, "ms")
    report.figure("state of a stream", state_size(onnx.config) * 4 / 1024, "KiB")
    report.figure("real-time streams per core, chunks of 1", FRAME_MS / ours[1])
    report.goal("chunk of 1 over the exact window, both torch", ratios[1], "<= 0.1")
    report.goal("real-time streams per core, chunks of 4", FRAME_MS / ours[4], ">= 1.2")
    return report


def main(argv: list[str]) -> int:
    """Run the bench; it takes no arguments."""
    if argv:
        print("the codec bench takes no arguments", file=sys.stderr)
        return 2
    stack = find_spec("torch") is not None
    if not stack or any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        # The libraries that count threads are loaded by now and will not look again: start over.
        python = sys.executable if stack else str(ensure("gepard"))
        os.execve(python, [python, "-m", "tests.bench", "codec"], os.environ | ONE_THREAD)
    from tts_core.nanocodec.convert import convert
    from tts_core.nanocodec.tiny import make_tiny_nemo

    with tempfile.TemporaryDirectory() as folder:
        path = make_tiny_nemo(Path(folder) / "codec.nemo", size="full")
        return measure(convert(path, Path(folder) / "codec.safetensors").path).finish()
