"""Requests that differ in everything, and what the plain loop makes of them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import numpy as np

from tts_core.errors import EngineError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest, SpeakerPrefix
from tts_core.gepard.prompt import uncond_prompt
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import CFG_MODES, Sampling
from tts_core.gepard.vllm_model import VllmModel
from tts_core.nanocodec import fsq

TEXT_IDS = 490
"""Ids below are plain text in a tiny checkpoint."""


@dataclass
class Said:  # noqa: PLW1641 - compared, never a key
    """What a request gave."""

    codes: fsq.Codes
    entropy: np.ndarray[tuple[int], np.dtype[np.float32]]
    finish: str
    batches: int = 0
    error: str = ""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Said)
            and np.array_equal(self.codes, other.codes)
            and bool(np.abs(self.entropy - other.entropy).max(initial=0) < 1e-3)
            and (self.finish, self.error) == (other.finish, other.error)
        )


def voice(seed: int, hidden: int = 64, rows: int = 8) -> SpeakerPrefix:
    return SpeakerPrefix.of(np.random.default_rng(seed).normal(size=(rows, hidden)).astype(np.float32))


def jobs(count: int = 16) -> list[FrameRequest]:
    """Greedy requests of 3 to 140 tokens and 40 to 140 frames, with four voices or none."""
    rnd = random.Random(3)
    voices = [None, *(voice(seed) for seed in range(4))]
    made: list[FrameRequest] = []
    for i in range(count):
        ids = tuple(rnd.randrange(TEXT_IDS) for _ in range(rnd.randint(3, 70)))
        sampling = Sampling(
            temperature=0.0,
            max_frames=rnd.randint(40, 140),
            repetition_penalty=(1.0, 1.3)[i % 2],
            repetition_window=(8, 32, 0)[i // 2 % 3],
            stop_threshold=1.0 if i % 3 else 0.5,
        )
        made.append(FrameRequest(f"job{i}", ids, voices[i % 5], sampling))
    if count > 3:  # two of one voice whose prompts begin alike
        made[3] = replace(made[3], ids=made[2].ids + made[3].ids, prefix=made[2].prefix)
    return made


def drawn(count: int = 16) -> list[FrameRequest]:
    """The same texts, drawn: temperature, top-k, seed and penalty of each its own."""
    rnd = random.Random(5)
    return [
        replace(
            job,
            sampling=Sampling(
                temperature=rnd.choice([0.3, 0.8, 1.2]),
                top_k=rnd.choice([0, 2, 4]),
                seed=1000 + i,
                repetition_penalty=rnd.choice([1.0, 1.2]),
                max_frames=min(job.sampling.max_frames, 60),
                stop_threshold=job.sampling.stop_threshold,
            ),
        )
        for i, job in enumerate(jobs(count))
    ]


def guided(checkpoint: Checkpoint) -> list[FrameRequest]:
    """Eight guided requests: both kinds of second branch, all frames or the first 20."""
    made = []
    for i, job in enumerate(jobs(8)):
        mode = CFG_MODES[i % 2]
        sampling = replace(
            job.sampling,
            max_frames=min(job.sampling.max_frames, 60),
            cfg_scale=2.5,
            cfg_frames=20 if i % 4 > 1 else None,
            cfg_mode=mode,
            temperature=0.7 if i == 5 else 0.0,
        )
        made.append(replace(job, sampling=sampling, uncond=uncond_prompt(checkpoint.config, mode)))
    return made


def plain(model: ReferenceModel, request: FrameRequest) -> Said:
    batches = list(model.frames(request))
    return Said(
        np.concatenate([batch.codes for batch in batches]),
        np.concatenate([batch.entropy for batch in batches]),
        batches[-1].finish,
    )


async def say(model: VllmModel, request: FrameRequest, delay: float = 0.0, *, rest: float = 0.0) -> Said:
    """Run one request to its end, resting after every batch; an EngineError is part of the answer."""
    await asyncio.sleep(delay)
    codes = [np.zeros((0, fsq.CHANNELS), np.uint8)]
    entropy = [np.zeros(0, np.float32)]
    finish, error, batches = "", "", 0
    try:
        async for batch in model.generate(request):
            codes.append(batch.codes)
            entropy.append(batch.entropy)
            finish, batches = batch.finish, batches + 1
            if rest:
                await asyncio.sleep(rest)
    except EngineError as failure:
        error = failure.code
    return Said(np.concatenate(codes), np.concatenate(entropy), finish, batches, error)


async def crowd(model: VllmModel, asked: list[FrameRequest], name: str, spread_s: float = 1.5) -> list[Said]:
    """Run requests side by side, each beginning at a moment of its own."""
    rnd = random.Random(len(asked))
    return list(
        await asyncio.gather(
            *(say(model, replace(job, id=f"{name}-{job.id}"), rnd.random() * spread_s) for job in asked)
        )
    )


async def leave(model: VllmModel, request: FrameRequest, after: int) -> int:
    """A client that goes away after some frames; returns how many it had got."""
    got = 0
    frames = model.generate(request)
    async for batch in frames:
        got += len(batch.codes)
        if got >= after:
            break
    await frames.aclose()
    return got


def same(said: list[Said], wanted: list[Said]) -> int:
    """How many are equal, code for code; says on standard output where the others part."""
    equal = 0
    for i, (a, b) in enumerate(zip(said, wanted, strict=True)):
        if a == b:
            equal += 1
            continue
        n = min(len(a.codes), len(b.codes))
        apart = np.flatnonzero((a.codes[:n] != b.codes[:n]).any(1))
        print(
            f"request {i}: first different frame {apart[0] if len(apart) else n}, lengths {len(a.codes)} and "
            f"{len(b.codes)}, {a.finish or a.error} and {b.finish or b.error}",
            flush=True,
        )
    return equal
