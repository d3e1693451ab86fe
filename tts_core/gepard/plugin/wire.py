"""How a request goes into vLLM and frames come out of it, as its client sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tts_core.errors import SettingsError
from tts_core.nanocodec import fsq

from ..frames import Finish
from ..layout import Layout, unpack

WORKERS = {
    "vllm.v1.worker.cpu_worker.CPUWorker": f"{__package__}.runner_v1.CpuWorker",
    "vllm.v1.worker.gpu_worker.Worker": f"{__package__}.runner_v1.GpuWorker",
}
"""The worker to name for the V1 model runner in place of the one that vLLM chose for its platform."""

SCHEDULERS = {
    False: f"{__package__}.pair_scheduler.PairScheduler",
    True: f"{__package__}.pair_scheduler.AsyncPairScheduler",
}
"""The scheduler to name for guided requests, by whether scheduling is asynchronous."""


def adapt(config: Any, *, guidance: bool) -> None:
    """Put our classes into a VllmConfig where vLLM's choice of runner and scheduler calls for them.

    Raises:
        SettingsError: a platform whose worker we do not know.
    """
    if not config.use_v2_model_runner:
        chosen = config.parallel_config.worker_cls
        if chosen not in WORKERS:
            raise SettingsError("the gepard engine does not know this platform's vllm worker")
        config.parallel_config.worker_cls = WORKERS[chosen]
    if guidance:
        config.scheduler_config.scheduler_cls = SCHEDULERS[config.scheduler_config.async_scheduling]


def prompt_of(ids: Sequence[int], salt: str | None) -> dict[str, Any]:
    """VLLM's form of a prompt. ``salt`` keeps its cached keys apart from those of equal ids."""
    prompt: dict[str, Any] = {"type": "token", "prompt_token_ids": list(ids)}
    if salt is not None:
        prompt["cache_salt"] = salt
    return prompt


def params_of(layout: Layout, frames: int, extra: dict[str, Any]) -> Any:
    """VLLM's SamplingParams of a request of ``frames`` frames at most; ours are ``extra``."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        temperature=0.0,  # vLLM's own rules stay neutral
        max_tokens=frames,
        logprobs=8,
        flat_logprobs=True,
        detokenize=False,
        ignore_eos=True,
        stop_token_ids=[layout.stop, layout.fault],
        output_kind=RequestOutputKind.DELTA,
        extra_args=extra,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one of vLLM's outputs holds.

    ``codes`` uint8 ``[n, 32]`` and ``entropy`` float32 ``[n]`` of its frames; ``finish`` as in FrameBatch;
    ``failure`` is "fault" when the sampler gave the request up, "abort" when vLLM did.
    """

    codes: fsq.Codes
    entropy: np.ndarray[Any, np.dtype[np.float32]]
    finish: Finish = ""
    failure: Literal["", "fault", "abort"] = ""


def read(layout: Layout, output: Any) -> Part:
    """Read a CompletionOutput: at each position the sampled id, then the eight that are the frame.

    Raises:
        EngineError: they are no frame.
    """
    rows: list[list[int]] = []
    entropy: list[float] = []
    flat = output.logprobs
    if flat is not None:
        for token, start, end in zip(output.token_ids, flat.start_indices, flat.end_indices, strict=True):
            if token >= layout.frame:
                rows.append(flat.token_ids[start + 1 : end])
                entropy.append(flat.logprobs[start])
    codes, belief = unpack(rows), np.array(entropy, np.float32)
    reason = output.finish_reason
    if reason is None:
        return Part(codes, belief)
    if reason == "stop" and output.stop_reason == layout.fault:
        return Part(codes, belief, failure="fault")
    if reason in ("stop", "length"):
        return Part(codes, belief, reason)
    return Part(codes, belief, failure="abort")
