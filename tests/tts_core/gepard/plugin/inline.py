"""The stepper and vLLM under it in this one process, put through a few requests; run with CHECKPOINT OUT.

Where the scenarios show that the whole is right, this lets each part of the plugin be looked at from inside:
facts about the model, the adapter, the scheduler and the worker's calls go to OUT as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}

import numpy as np
import torch

from tests.tts_core.gepard.plugin.jobs import guided, jobs, plain, voice
from tts_core.errors import EngineError, VoxwireError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import NO_CODES, NO_ENTROPY, FrameBatch, FrameRequest, SpeakerPrefix
from tts_core.gepard.layout import Layout
from tts_core.gepard.plugin import register
from tts_core.gepard.plugin.stepper import load
from tts_core.gepard.plugin.wire import ending, read, request_of
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec import fsq

Facts = dict[str, Any]
ROLES = ("leader", "follower")


class Inline:
    """A stepper of eight streams, with pairs; and vLLM's core, as the stepper has it."""

    def __init__(self, directory: Path) -> None:
        sizes = {
            "dtype": "float32", "max_streams": 8, "max_frames": 60, "max_context": 32, "voices": 8,
            "guidance": True, "kv_bytes": None, "frame_rows": 1024,
        }  # fmt: skip
        self.stepper = load(
            {
                "directory": str(directory),
                "plan": sizes,
                "compiled": False,
                "keeps_kv": True,
                "arguments": {"block_size": 32},
            }
        )
        self.core = self.stepper.core
        self.layout: Layout = self.stepper._layout
        self.numbers: dict[int, str] = {}

    def call(self, method: str, *args: Any) -> Any:
        return self.stepper.call(method, args)

    @property
    def runner(self) -> Any:
        return self.core.engine_core.model_executor.driver_worker.worker.model_runner

    @property
    def scheduler(self) -> Any:
        return self.core.engine_core.scheduler

    def send(self, request: FrameRequest) -> int:
        """Begin a request by its name; its number."""
        ident = len(self.numbers) + 1
        self.numbers[ident] = request.id
        self.stepper.begin(ident, request)
        return ident

    def run(self, steps: int = 2000) -> dict[str, list[FrameBatch]]:
        """Step until nothing is left, or so often; what each request gave. A failure is its error's words."""
        got: dict[str, list[FrameBatch]] = {}
        while self.stepper.busy and steps:
            given, at = self.stepper.step(), 0
            for ident, count, finish in given.parts:
                mine, at = slice(at, at + count), at + count
                batch = FrameBatch(given.codes[mine], given.entropy[mine], finish)
                got.setdefault(self.numbers[ident], []).append(batch)
            assert at == len(given.codes) == len(given.entropy)
            for ident, error in given.failures:
                failed: Any = error.code
                batch = FrameBatch(NO_CODES, NO_ENTROPY, failed)
                got.setdefault(self.numbers[ident], []).append(batch)
            steps -= 1
        return got

    def half(self, name: str, request: FrameRequest, pair: str, role: str, ids: Any = None) -> str:
        """Hand vLLM half of a pair by itself, as no stepper does."""
        extra = {**request.sampling.as_extra_args(), "pair": pair, "role": role}
        frames = request.sampling.max_frames
        made = request_of(
            name, list(ids or request.ids), layout=self.layout, frames=frames, salt=None, extra=extra
        )
        self.core.add_request(made)
        return name

    def halves(self, steps: int = 2000) -> dict[str, list[FrameBatch]]:
        """The same as ``run`` for halves; a failure by what the wire calls it."""
        got: dict[str, list[FrameBatch]] = {}
        while self.stepper.busy and steps:
            outputs = self.core.get_output().outputs
            counts, codes, entropy = read(self.layout, outputs)
            at = 0
            for output, count in zip(outputs, counts, strict=True):
                how: Any = "" if output.finish_reason is None else "".join(ending(self.layout, output))
                mine, at = slice(at, at + count), at + count
                got.setdefault(output.request_id, []).append(FrameBatch(codes[mine], entropy[mine], how))
            steps -= 1
        return got


def codes_of(parts: Sequence[FrameBatch]) -> fsq.Codes:
    return np.concatenate([part.codes for part in parts])


def requests(inline: Inline, model: ReferenceModel) -> Facts:
    """Eight requests side by side."""
    asked = [replace(job, sampling=replace(job.sampling, max_frames=30)) for job in jobs(8)]
    wanted = [plain(model, job) for job in asked]
    for job in asked:
        inline.send(job)
    got = inline.run()
    return {
        "identical": sum(
            np.array_equal(codes_of(got[job.id]), want.codes) and got[job.id][-1].finish == want.finish
            for job, want in zip(asked, wanted, strict=True)
        ),
        "entropy": max(
            float(np.abs(np.concatenate([p.entropy for p in got[job.id]]) - want.entropy).max())
            for job, want in zip(asked, wanted, strict=True)
        ),
    }


def continued(inline: Inline, model: ReferenceModel) -> Facts:
    """A request with frames of before, put there by the worker."""
    job = replace(jobs(2)[1], sampling=Sampling(temperature=0.0, max_frames=12, stop_threshold=1.0))
    whole = plain(model, job)
    rest = replace(job, id="rest", context=whole.codes[:6], sampling=replace(job.sampling, max_frames=6))
    inline.send(rest)
    inline.stepper.cancel(inline.send(replace(rest, id="stale")))
    first = inline.run()
    # The ring turns once between the request and its first step: what was put there is gone.
    inline.send(replace(rest, id="lost"))
    inline.call("gepard_put_frames", np.zeros((inline.layout.frame_rows, 32), np.uint8).tobytes())
    lost = inline.run()
    return {
        "identical": np.array_equal(codes_of(first["rest"]), whole.codes[6:]) and "stale" not in first,
        "lost": [len(codes_of(lost["lost"])), lost["lost"][-1].finish],
        "faults": inline.call("stats")["faults"],
    }


def voiced(inline: Inline, model: ReferenceModel) -> Facts:
    """More voices than places, one after the other; then more at once than there are."""
    job = replace(jobs(1)[0], sampling=Sampling(temperature=0.0, max_frames=3))
    asked = [replace(job, id=f"voice{i}", prefix=voice(50 + i)) for i in range(9)]
    identical = 0
    for one in asked:
        inline.send(one)
        identical += np.array_equal(codes_of(inline.run()[one.id]), plain(model, one).codes)
    held = [inline.send(replace(one, id=f"held-{one.id}")) for one in asked[:8]]
    refused = _refused(lambda: inline.send(asked[8]))
    forged = SpeakerPrefix(asked[0].prefix.fingerprint, voice(99).rows) if asked[0].prefix else None
    for wrong in (forged, voice(1, hidden=32), voice(1, rows=4)):
        refused += _refused(partial(inline.send, replace(job, prefix=wrong)))
    for ident in held:
        inline.stepper.cancel(ident)
    inline.send(asked[8])  # there is room again
    identical += np.array_equal(codes_of(inline.run()["voice8"]), plain(model, asked[8]).codes)
    kept = inline.call("stats")["voices"]
    return {"identical": identical, "refused": refused, "kept": kept, "erased": _forgotten(inline, asked)}


def _forgotten(inline: Inline, asked: list[FrameRequest]) -> list[bool]:
    """Whether the rows of a deleted voice are zero: idle, while it speaks, and after that."""

    def rows(slot: int) -> Any:
        backbone = inline.runner.get_model().model
        count = backbone.layout.prefix_rows
        return backbone.voice_table[slot * count : (slot + 1) * count]

    def forget(request: FrameRequest) -> int:
        assert request.prefix is not None
        place = inline.stepper._voices._places[request.prefix.fingerprint]
        inline.call("forget", request.prefix.fingerprint)
        return place.slot

    idle, speaking = asked[8], asked[7]
    zero = [not rows(forget(idle)).any()]
    ident = inline.send(replace(speaking, id="speaks-on"))
    slot = forget(speaking)
    zero.append(bool(not rows(slot).any()))
    inline.run()
    assert ident
    zero.append(bool(not rows(slot).any()))
    inline.call("forget", "nobody's")
    return [bool(each) for each in zero]


def _refused(send: Callable[[], Any]) -> list[str]:
    try:
        send()
    except VoxwireError as error:
        return [error.code]
    return []


def paired(inline: Inline, checkpoint: Checkpoint, model: ReferenceModel) -> Facts:
    """Guided requests, one that goes away, halves that stay alone."""
    asked = [replace(job, sampling=replace(job.sampling, max_frames=25)) for job in guided(checkpoint)[:4]]
    wanted = [plain(model, job) for job in asked]
    for job in asked:
        inline.send(job)
    held = inline.scheduler.get_num_unfinished_requests()
    got = inline.run()
    facts: Facts = {
        "held": held,
        "identical": sum(
            np.array_equal(codes_of(got[job.id]), want.codes) for job, want in zip(asked, wanted, strict=True)
        ),
    }
    short = replace(asked[0], prefix=None, sampling=replace(asked[0].sampling, max_frames=9))
    for role, ids in (("leader", short.ids), ("follower", short.uncond)):
        inline.half(f"both-{role}", short, "w", role, ids)
    both = inline.halves()
    facts["same_frames"] = np.array_equal(codes_of(both["both-leader"]), codes_of(both["both-follower"]))
    # A half alone is held, not run, and can be aborted; a pair that waits as well.
    alone = inline.half("alone", short, "x", "leader")
    facts["alone"] = sum(map(len, inline.halves(3).values()))
    inline.core.abort_requests([alone])
    inline.core.abort_requests([inline.half(f"waits-{role}", short, "y", role) for role in ROLES])
    facts["left"] = inline.scheduler.get_num_unfinished_requests()
    # The other half is lost in the middle: what is left ends with a fault.
    names = [inline.half(f"torn-{role}", short, "z", role) for role in ROLES]
    inline.halves(5)
    inline.core.abort_requests(names[1:])
    facts["torn"] = inline.halves()["torn-leader"][-1].finish
    # More pairs than rows: they wait in line, and a plain request behind them does not pass.
    for i in range(12):
        inline.send(replace(asked[0], id=f"many{i}"))
    inline.send(replace(jobs(1)[0], id="behind"))
    got = inline.run(1)
    facts["at_once"] = len(inline.scheduler.running)
    for name, parts in inline.run().items():
        got.setdefault(name, []).extend(parts)
    facts["many"] = sum(np.array_equal(codes_of(got[f"many{i}"]), wanted[0].codes) for i in range(12))
    return facts


def embedded(inline: Inline, model: ReferenceModel) -> Facts:
    """The model's input embeddings, by kind of id."""
    ours = inline.runner.get_model()
    layout = inline.layout
    codes = np.array([[level - 1 for level in fsq.LEVELS], [0] * 32], np.uint8)
    handles = inline.call("gepard_put_frames", codes.tobytes())
    rows = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    inline.call("gepard_set_voice", 7, rows.tobytes())
    with torch.inference_mode():
        got = ours.embed_input_ids(torch.tensor([3, *layout.voice_ids(7), *handles, 3]))
        text = model.backbone.embed((3,))[0]
        frames = torch.cat([model.embed_frame(frame) for frame in codes])
        logits = ours.compute_logits(got)
    return {
        "text": bool(torch.equal(got[0], text)) and bool(torch.equal(got[-1], text)),
        "voice": bool(torch.equal(got[1:9], torch.from_numpy(rows))),
        "frames": float((got[9:11] - frames).abs().max()),
        "logits": list(logits.shape),
        "missing": _unloaded(ours, []),
        "unknown": _unloaded(ours, [("model.layers.0.extra.weight", torch.zeros(1))]),
    }


def _unloaded(model: Any, weights: list[tuple[str, torch.Tensor]]) -> str:
    try:
        model.load_weights(weights)
    except EngineError as error:
        return error.message
    return ""


def main() -> None:
    checkpoint, out = Checkpoint.open(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    register()
    register()
    model = ReferenceModel.load(checkpoint)
    inline = Inline(checkpoint.directory)
    facts: Facts = {
        "scheduler": type(inline.scheduler).__name__,
        "unknown": _refused(lambda: inline.call("x")),
    }
    facts["requests"] = requests(inline, model)
    facts["context"] = continued(inline, model)
    facts["voices"] = voiced(inline, model)
    facts["pairs"] = paired(inline, checkpoint, model)
    facts["embedded"] = embedded(inline, model)
    facts["stats"] = inline.call("stats")
    facts["free"] = inline.stepper._plan.rows - len(inline.scheduler.running)
    out.write_text(json.dumps(facts, default=float))


if __name__ == "__main__":
    main()
