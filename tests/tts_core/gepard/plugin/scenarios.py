"""Engines and what they are put through; run with CHECKPOINT FOLDER NAME...

In a process of its own, so that two can run side by side, each with its engines on one core. Facts go to
FOLDER/NAME.json; the tests judge them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.tts_core.gepard.plugin.jobs import (
    Said,
    crowd,
    drawn,
    guided,
    jobs,
    leave,
    plain,
    same,
    say,
    voice,
)
from tests.tts_core.gepard.plugin.overlapped import TELLING
from tts_core.errors import BadRequest, EngineCrashed, EngineError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import Sampling
from tts_core.gepard.vllm_model import VllmModel

Facts = dict[str, Any]

TIGHT = {"num_gpu_blocks_override": 18, "block_size": 32, "max_num_batched_tokens": 64}
"""Room in the KV cache for three or four of the sixteen requests."""


class Overlapped(VllmModel):
    """One whose scheduling is asynchronous."""

    entry = "tests.tts_core.gepard.plugin.overlapped:main"


class Bench:
    """A checkpoint, and what the plain loop makes of it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = Checkpoint.open(checkpoint)
        self.reference = ReferenceModel.load(self.checkpoint)
        self.jobs = jobs()
        self.wanted = [plain(self.reference, job) for job in self.jobs]
        self.pairs = guided(self.checkpoint)

    @cached_property
    def wanted_pairs(self) -> list[Said]:
        return [plain(self.reference, job) for job in self.pairs]

    @contextlib.asynccontextmanager
    async def engine(
        self, facts: Facts, *, kind: type[VllmModel] = VllmModel, **options: Any
    ) -> AsyncIterator[VllmModel]:
        settings: dict[str, Any] = {
            "dtype": "float32",
            "compiled": False,
            "threads": 1,
            "max_streams": 32,
            "max_frames": 140,
            "first_timeout_s": 120.0,
            "step_timeout_s": 60.0,
            **options,
        }
        model = kind(self.checkpoint, **settings)
        began = time.monotonic()
        await model.start()
        facts["start_s"] = round(time.monotonic() - began, 1)
        try:
            yield model
            if model.alive:
                facts["stats"] = await model.stats()
        finally:
            await model.close()
        facts["alive_after_close"] = model.alive

    async def parity(self, model: VllmModel, name: str, spread_s: float = 1.0) -> Facts:
        """The sixteen requests side by side, with three clients that leave in the middle."""
        leavers = [
            replace(
                self.jobs[i],
                id=f"{name}-leaver{i}",
                sampling=Sampling(temperature=0.9, seed=i, max_frames=140, stop_threshold=1.0),
            )
            for i in (1, 4, 9)
        ]
        said, left = await asyncio.gather(
            crowd(model, self.jobs, name, spread_s),
            asyncio.gather(*(leave(model, job, 7) for job in leavers)),
        )
        return {
            "identical": same(said, self.wanted),
            "frames": sum(len(one.codes) for one in said),
            "batches": sum(one.batches for one in said),
            "left_after": left,
            "finishes": sorted({one.finish for one in said}),
        }


async def base(bench: Bench) -> Facts:
    """The stock scheduler with a prefix cache and a ring that is full all the time."""
    facts: Facts = {}
    options: dict[str, Any] = {"frame_rows": 1024, "voices": 32, "arguments": {"block_size": 32}}
    async with bench.engine(facts, **options) as model:
        facts["first"] = await bench.parity(model, "first")
        facts["again"] = await bench.parity(model, "again")  # its prompts lie in the prefix cache
        seeds = drawn()
        alone = [await say(model, replace(job, id=f"alone-{job.id}")) for job in seeds]
        facts["seeds_alone_as_in_a_crowd"] = same(await crowd(model, seeds, "seeds"), alone)
        facts["seeds_as_the_reference"] = same(alone, [plain(bench.reference, job) for job in seeds])
        other = replace(seeds[0], id="other", sampling=replace(seeds[0].sampling, seed=7))
        facts["another_seed_differs"] = not np.array_equal((await say(model, other)).codes, alone[0].codes)
        many = [replace(job, id=f"{job.id}-{turn}") for turn in range(4) for job in bench.jobs]
        facts["sixty_four"] = same(await crowd(model, many, "many", 0.5), bench.wanted * 4)
        slow = await say(model, replace(bench.jobs[1], id="slow"), rest=0.1)
        facts["slow_reader"] = {"identical": same([slow], bench.wanted[1:2]), "batches": slow.batches}
        facts["voices"] = await voices(bench, model)
        facts["context"] = await context(bench, model)
        facts["refused"] = await refused(bench, model)
        facts["abort"] = await abort(bench, model)
        facts["before_the_end"] = await model.stats()
        facts["killed"] = await killed(bench, model)
    return facts


async def voices(bench: Bench, model: VllmModel) -> Facts:
    """More voices than places: each takes the rows of another, whose keys may still be cached."""
    job = replace(bench.jobs[2], sampling=Sampling(temperature=0.0, max_frames=12))
    asked = [replace(job, id=f"voice{i}", prefix=voice(100 + i)) for i in range(40)]
    wanted = [plain(bench.reference, one) for one in asked]
    said = [await say(model, one) for one in asked]
    again = [await say(model, replace(one, id=f"{one.id}-again")) for one in asked]
    together = await crowd(model, asked[:30], "together", 0.2)
    return {
        "in_turn": same(said, wanted),
        "again": same(again, wanted),
        "together": same(together, wanted[:30]),
        "kept": (await model.stats())["voices"],
        "different": len({one.codes.tobytes() for one in said}),
    }


async def context(bench: Bench, model: VllmModel) -> Facts:
    """Go on from the first 20 frames of a request: as if it had not been cut."""
    asked = [job for job, said in zip(bench.jobs, bench.wanted, strict=True) if len(said.codes) >= 40]
    asked = [
        replace(job, sampling=Sampling(temperature=0.0, max_frames=40, stop_threshold=1.0))
        for job in asked[:4]
    ]
    whole = [await say(model, replace(job, id=f"whole-{job.id}")) for job in asked]
    rest = [
        await say(
            model,
            replace(
                job,
                id=f"rest-{job.id}",
                context=one.codes[:20],
                sampling=replace(job.sampling, max_frames=20),
            ),
        )
        for job, one in zip(asked, whole, strict=True)
    ]
    equal = [bool(np.array_equal(a.codes, b.codes[20:])) for a, b in zip(rest, whole, strict=True)]
    return {"asked": len(asked), "identical": sum(equal)}


async def refused(bench: Bench, model: VllmModel) -> list[str]:
    """Requests that do not fit; the field that each is refused for."""
    job = bench.jobs[0]
    fields = []
    for wrong in (
        replace(job, sampling=Sampling(max_frames=141)),
        replace(job, ids=(5,) * 400),
        replace(job, ids=(5, 512)),
        replace(job, ids=(5, model.layout.frame)),
        replace(job, prefix=voice(0, hidden=32)),
        replace(job, uncond=(1, 2), sampling=Sampling(cfg_scale=2.0, max_frames=10)),
        replace(job, context=np.zeros((65, 32), np.uint8)),
    ):
        try:
            await say(model, wrong)
            fields.append("")
        except BadRequest as error:
            fields.append(error.field or "")
    return fields


async def abort(bench: Bench, model: VllmModel) -> Facts:
    """A client leaves, another is cancelled: what the engine still does for them."""
    endless = Sampling(temperature=1.0, max_frames=140, stop_threshold=1.0)
    before = await model.stats()
    got = await leave(model, replace(bench.jobs[0], id="gone", sampling=endless), 10)
    after = await model.stats()
    task = asyncio.create_task(say(model, replace(bench.jobs[0], id="cancelled", sampling=endless)))
    while model.running == 0:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    quiet = await model.stats()
    await asyncio.sleep(0.3)
    return {
        "steps_too_many": after["steps"] - before["steps"] - got,
        "steps_after_cancelling": (await model.stats())["steps"] - quiet["steps"],
        "running": model.running,
    }


async def killed(bench: Bench, model: VllmModel) -> Facts:
    """The engine dies in the middle; every request says so, and a new start serves again."""
    endless = Sampling(temperature=1.0, max_frames=140, stop_threshold=1.0)
    tasks = [
        asyncio.create_task(say(model, replace(job, id=f"dying-{job.id}", sampling=endless)))
        for job in bench.jobs[:4]
    ]
    while model.running < 4:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert model.pid is not None
    os.kill(model.pid, signal.SIGKILL)
    said = await asyncio.wait_for(asyncio.gather(*tasks), 60)
    facts: Facts = {"errors": [one.error for one in said], "alive": model.alive, "running": model.running}
    try:
        await say(model, replace(bench.jobs[0], id="late"))
        await anext(model.generate(replace(bench.jobs[0], id="later")))
        facts["late"] = "served"
    except EngineCrashed as error:
        facts["late"] = error.code
    await model.start()
    facts["alive_again"] = model.alive
    facts["identical_again"] = same(await crowd(model, bench.jobs[:6], "restarted"), bench.wanted[:6])
    tasks = [
        asyncio.create_task(say(model, replace(job, id=f"closing-{job.id}", sampling=endless)))
        for job in bench.jobs[:3]
    ]
    await asyncio.sleep(0.2)
    await model.close()
    facts["closed"] = [one.error for one in await asyncio.wait_for(asyncio.gather(*tasks), 30)]
    return facts


async def preempted(bench: Bench) -> Facts:
    """A KV cache far too small, prompts in pieces of at most 32 tokens, no prefix cache.

    Requests are thrown out and read again from their handles.
    """
    facts: Facts = {}
    arguments = {**TIGHT, "max_num_batched_tokens": 32, "enable_prefix_caching": False}
    async with bench.engine(facts, keeps_kv=False, arguments=arguments) as model:
        facts["first"] = await bench.parity(model, "first", 0.2)
        facts["again"] = await bench.parity(model, "again", 0.2)
    return facts


async def stale(bench: Bench) -> Facts:
    """A KV cache and a ring that are too small: some requests lose their frames."""
    facts: Facts = {}
    options: dict[str, Any] = {"keeps_kv": False, "frame_rows": 256, "arguments": TIGHT}
    async with bench.engine(facts, **options) as model:
        said = await crowd(model, bench.jobs, "stale", 0.1)
        whole = [a == b for a, b in zip(said, bench.wanted, strict=True)]
        facts["identical"] = sum(whole)
        facts["errors"] = sum(one.error == EngineError.code for one in said)
        # What a request said before it was told is right as well.
        facts["wrong_frames"] = sum(
            not np.array_equal(a.codes, b.codes[: len(a.codes)])
            for a, b in zip(said, bench.wanted, strict=True)
        )
        facts["later"] = same([await say(model, replace(bench.jobs[1], id="later"))], bench.wanted[1:2])
    return facts


async def pairs(bench: Bench) -> Facts:
    """Guided requests between plain ones."""
    facts: Facts = {}
    async with bench.engine(facts, guidance=True, arguments={"block_size": 32}) as model:
        for name in ("first", "again"):
            said, others = await asyncio.gather(
                crowd(model, bench.pairs, f"{name}-pair"), crowd(model, bench.jobs[8:], name)
            )
            facts[name] = {
                "pairs": same(said, bench.wanted_pairs),
                "plain": same(others, bench.wanted[8:]),
                "unguided": sum(
                    np.array_equal(a.codes, b.codes[: len(a.codes)])
                    for a, b in zip(said, bench.wanted[:8], strict=True)
                ),
            }
        endless = Sampling(temperature=1.0, max_frames=140, stop_threshold=1.0, cfg_scale=2.0)
        left = [replace(job, id=f"left-{job.id}", sampling=endless) for job in bench.pairs[:4]]
        facts["left_after"] = await asyncio.gather(*(leave(model, job, 5) for job in left))
        await asyncio.sleep(0.5)
        before = await model.stats()
        await asyncio.sleep(0.5)
        facts["steps_after_leaving"] = (await model.stats())["steps"] - before["steps"]
        crowded = [replace(job, id=f"{job.id}-{turn}") for turn in range(5) for job in bench.pairs]
        facts["forty"] = same(await crowd(model, crowded, "many", 0.2), bench.wanted_pairs * 5)
    return facts


async def compiled(bench: Bench) -> Facts:
    """Compiled by Inductor."""
    facts: Facts = {}
    async with bench.engine(facts, compiled=True, start_timeout_s=550.0) as model:
        facts["first"] = await bench.parity(model, "first")
        facts["again"] = await bench.parity(model, "again")
    return facts


async def v2(bench: Bench) -> Facts:
    """Model Runner V2: plain requests, drawn ones, context and pairs on one engine."""
    facts: Facts = {}
    options: dict[str, Any] = {"guidance": True, "frame_rows": 1024, "arguments": {"block_size": 32}}
    async with bench.engine(facts, **options) as model:
        facts["first"] = await bench.parity(model, "first")
        seeds = [replace(job, sampling=replace(job.sampling, max_frames=20)) for job in drawn(8)]
        facts["seeds_as_the_reference"] = same(
            await crowd(model, seeds, "seeds", 0.3), [plain(bench.reference, job) for job in seeds]
        )
        facts["context"] = await context(bench, model)
        facts["pairs"] = same(await crowd(model, bench.pairs, "pairs", 0.5), bench.wanted_pairs)
    return facts


async def v2_preempted(bench: Bench) -> Facts:
    """Model Runner V2, put under pressure like V1."""
    facts: Facts = {}
    arguments = {**TIGHT, "max_num_batched_tokens": 32, "enable_prefix_caching": False}
    async with bench.engine(facts, keeps_kv=False, arguments=arguments) as model:
        facts["first"] = await bench.parity(model, "first", 0.2)
    return facts


async def v2_async(bench: Bench) -> Facts:
    """Model Runner V2 with two batches in flight, and a KV cache that is too small."""
    facts: Facts = {}
    arguments = {**TIGHT, "worker_extension_cls": TELLING}
    async with bench.engine(facts, kind=Overlapped, keeps_kv=False, arguments=arguments) as model:
        facts["scheduler"] = await model.ask("gepard_scheduler")
        facts["first"] = await bench.parity(model, "first", 0.2)
    return facts


async def v2_async_pairs(bench: Bench) -> Facts:
    """Model Runner V2 with two batches in flight, room for all, and pairs."""
    facts: Facts = {}
    arguments = {"block_size": 32, "worker_extension_cls": TELLING}
    async with bench.engine(facts, kind=Overlapped, guidance=True, arguments=arguments) as model:
        facts["scheduler"] = await model.ask("gepard_scheduler")
        facts["first"] = await bench.parity(model, "first")
        facts["pairs"] = same(await crowd(model, bench.pairs, "pairs", 0.5), bench.wanted_pairs)
    return facts


SCENARIOS: dict[str, Callable[[Bench], Coroutine[Any, Any, Facts]]] = {
    "base": base,
    "preempted": preempted,
    "stale": stale,
    "pairs": pairs,
    "compiled": compiled,
    "v2": v2,
    "v2_preempted": v2_preempted,
    "v2_async": v2_async,
    "v2_async_pairs": v2_async_pairs,
}


def die_with(parent: int) -> None:
    """End this process group when the tests are gone, however they went."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    checkpoint, folder, *names = sys.argv[1:]
    threading.Thread(target=die_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    bench = Bench(Path(checkpoint))
    for name in names:
        facts = asyncio.run(SCENARIOS[name](bench))
        part = Path(folder, f"{name}.part")
        part.write_text(json.dumps(facts, default=float))
        part.rename(part.with_suffix(".json"))


if __name__ == "__main__":
    main()
