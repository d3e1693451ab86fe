"""vLLM's engine, worker and all in this one process, put through a few requests; run with CHECKPOINT OUT.

Where the scenarios show that the whole is right, this lets each part of the plugin be looked at from inside:
facts about the model, the adapter, the scheduler and the worker's calls go to OUT as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}

import numpy as np
import torch

from tests.tts_core.gepard.plugin.jobs import guided, jobs, plain
from tts_core.errors import EngineError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest
from tts_core.gepard.plugin import register
from tts_core.gepard.plugin.serving import engine_arguments, make_plan, write_folder
from tts_core.gepard.plugin.wire import Part, adapt, params_of, prompt_of, read
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec import fsq

Facts = dict[str, Any]


class Inline:
    """A synchronous engine of eight streams, with pairs."""

    def __init__(self, checkpoint: Checkpoint, folder: Path, **arguments: Any) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self.plan = make_plan(
            checkpoint.config, dtype="float32", max_streams=8, max_frames=60, max_context=32, voices=8,
            guidance=True, kv_bytes=None, frame_rows=1024,
        )  # fmt: skip
        self.layout = self.plan.layout
        write_folder(folder, checkpoint.config, self.plan, checkpoint.directory / "model.safetensors")
        values = engine_arguments(folder, self.plan, cpu=True, compiled=False)
        config = EngineArgs(
            **{**values, "block_size": 32, "distributed_executor_backend": "uni", **arguments}
        ).create_engine_config()
        adapt(config, guidance=True)
        self.config = config
        self.engine = LLMEngine.from_vllm_config(config, disable_log_stats=True)
        self.voices: dict[str, int] = {}

    def call(self, method: str, *args: Any) -> Any:
        return self.engine.collective_rpc(method, args=args)[0]

    @property
    def runner(self) -> Any:
        return self.engine.model_executor.driver_worker.worker.model_runner

    @property
    def scheduler(self) -> Any:
        return self.engine.engine_core.engine_core.scheduler

    def send(self, request: FrameRequest, *, pair: dict[str, Any] | None = None, ids: Any = None) -> str:
        before: tuple[int, ...] = ()
        salt = None
        if request.prefix is not None:
            salt = request.prefix.fingerprint
            if salt not in self.voices:
                self.voices[salt] = len(self.voices)
                self.call("gepard_set_voice", self.voices[salt], request.prefix.rows.tobytes())
            before = self.layout.voice_ids(self.voices[salt])
        after = [] if request.context is None else self.call("gepard_put_frames", request.context.tobytes())
        extra = {**request.sampling.as_extra_args(), **(pair or {})}
        prompt = prompt_of([*before, *(ids or request.ids), *after], salt)
        params = params_of(self.layout, request.sampling.max_frames, extra)
        self.engine.add_request(request.id, prompt, params)
        return request.id

    def run(self, steps: int = 2000) -> dict[str, list[Part]]:
        """Step until nothing is left, or so often; what each request gave."""
        got: dict[str, list[Part]] = {}
        while self.engine.has_unfinished_requests() and steps:
            for output in self.engine.step():
                got.setdefault(output.request_id, []).append(read(self.layout, output.outputs[0]))
            steps -= 1
        return got


def codes_of(parts: list[Part]) -> fsq.Codes:
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
    stale = replace(rest, id="stale")
    name = inline.send(stale)
    inline.engine.abort_request([name])
    first = inline.run()
    # The ring turns once: what was put there is gone, and the model says so.
    handles = inline.call("gepard_put_frames", whole.codes[:6].tobytes())
    inline.call("gepard_put_frames", np.zeros((inline.layout.frame_rows, 32), np.uint8).tobytes())
    inline.send(replace(job, id="lost", context=None), ids=[*job.ids, *handles])
    lost = inline.run()
    return {
        "identical": np.array_equal(codes_of(first["rest"]), whole.codes[6:]),
        "lost": [len(codes_of(lost["lost"])), lost["lost"][-1].failure],
    }


def paired(inline: Inline, checkpoint: Checkpoint, model: ReferenceModel) -> Facts:
    """Guided requests, one that goes away, halves that stay alone."""
    asked = [replace(job, sampling=replace(job.sampling, max_frames=25)) for job in guided(checkpoint)[:4]]
    wanted = [plain(model, job) for job in asked]
    for job in asked:
        both = {"pair": job.id}
        frames = min(25, job.sampling.cfg_frames or 25)
        follower = replace(job, id=f"{job.id}-u", sampling=replace(job.sampling, max_frames=frames))
        inline.send(follower, pair={**both, "role": "follower"}, ids=job.uncond)
        inline.send(job, pair={**both, "role": "leader"})
    held = inline.engine.get_num_unfinished_requests()
    got = inline.run()
    facts: Facts = {
        "held": held,
        "identical": sum(
            np.array_equal(codes_of(got[job.id]), want.codes) for job, want in zip(asked, wanted, strict=True)
        ),
        "same_frames": sum(
            np.array_equal(codes_of(got[f"{job.id}-u"]), codes_of(got[job.id])[:20]) for job in asked[2:]
        ),
    }
    # A half alone is held, not run, and can be aborted; a pair that waits as well.
    alone = inline.send(replace(asked[0], id="alone"), pair={"pair": "x", "role": "leader"})
    facts["alone"] = sum(map(len, inline.run(3).values()))
    inline.engine.abort_request([alone])
    names = [
        inline.send(replace(asked[0], id=f"waits-{role}"), pair={"pair": "y", "role": role})
        for role in ("leader", "follower")
    ]
    inline.engine.abort_request(names)
    facts["left"] = inline.scheduler.get_num_unfinished_requests()
    # The other half is lost in the middle: what is left ends with a fault.
    names = [
        inline.send(replace(asked[0], id=f"torn-{role}"), pair={"pair": "z", "role": role})
        for role in ("leader", "follower")
    ]
    inline.run(5)
    inline.engine.abort_request(names[1:])
    torn = inline.run()
    facts["torn"] = torn["torn-leader"][-1].failure
    # More pairs than rows: they wait in line, and a plain request behind them does not pass.
    for i in range(12):
        for role in ("leader", "follower"):
            job = replace(asked[0], id=f"many{i}-{role}")
            inline.send(
                job, pair={"pair": f"many{i}", "role": role}, ids=job.uncond if role == "follower" else None
            )
    inline.send(replace(jobs(1)[0], id="behind"))
    got = inline.run(1)
    facts["at_once"] = len(inline.scheduler.running)
    for name, parts in inline.run().items():
        got.setdefault(name, []).extend(parts)
    facts["many"] = sum(np.array_equal(codes_of(got[f"many{i}-leader"]), wanted[0].codes) for i in range(12))
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
        "missing": _refused(ours, []),
        "unknown": _refused(ours, [("model.layers.0.extra.weight", torch.zeros(1))]),
    }


def _refused(model: Any, weights: list[tuple[str, torch.Tensor]]) -> str:
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
    facts: Facts = {}
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(checkpoint, Path(folder))
        facts["scheduler"] = type(inline.scheduler).__name__
        facts["requests"] = requests(inline, model)
        facts["context"] = continued(inline, model)
        facts["pairs"] = paired(inline, checkpoint, model)
        facts["embedded"] = embedded(inline, model)
        facts["stats"] = inline.call("gepard_stats")
        facts["free"] = inline.plan.rows - len(inline.scheduler.running)
    out.write_text(json.dumps(facts, default=float))


if __name__ == "__main__":
    main()
