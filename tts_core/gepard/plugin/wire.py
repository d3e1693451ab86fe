"""How a request goes into vLLM's engine core and frames come out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tts_core.errors import SettingsError
from tts_core.nanocodec import fsq

from ..frames import NO_CODES, NO_ENTROPY, Entropy, Finish
from ..layout import Layout, unpack

Extra: TypeAlias = dict[str, Any]
"""What the sampler is to know of a request, see ``FrameSampler.join``."""

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


def request_of(
    name: str, ids: list[int], *, layout: Layout, frames: int, salt: str | None, extra: Extra
) -> Any:
    """VLLM's request for ``frames`` frames at most after the prompt ``ids``.

    ``salt`` keeps its cached keys apart from those of equal ids; ``extra`` is what the sampler reads.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    params = SamplingParams(
        temperature=0.0,  # vLLM's own rules stay neutral
        max_tokens=frames,
        logprobs=fsq.GROUPS,
        detokenize=False,
        ignore_eos=True,
        stop_token_ids=[layout.stop, layout.fault],
        extra_args=extra,
    )
    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=ids,
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=salt,
        data_parallel_rank=None,
    )


def read(layout: Layout, outputs: Sequence[Any]) -> tuple[list[int], fsq.Codes, Entropy]:
    """Read EngineCoreOutputs: at each position the sampled id, then the eight that are the frame.

    Returns:
        How many frames each output holds, their codes uint8 ``[n, 32]`` and entropies float32 ``[n]``, all
        of a step at once: a loop over streams would cost more than the frames are worth.

    Raises:
        EngineError: they are no frame.
    """
    tables = [output.new_logprobs for output in outputs if output.new_logprobs is not None]
    if not tables:
        return [0] * len(outputs), NO_CODES, NO_ENTROPY
    ids = np.concatenate([table.logprob_token_ids for table in tables])
    belief = np.concatenate([table.logprobs for table in tables])[:, 0].astype(np.float32)
    framed = ids[:, 0] >= layout.frame
    if len(tables) == len(outputs) and all(len(table.logprobs) == 1 for table in tables):
        counts = framed.astype(int).tolist()
    else:
        before, at, counts = [0, *np.cumsum(framed).tolist()], 0, []
        for output in outputs:
            end = at + (0 if output.new_logprobs is None else len(output.new_logprobs.logprob_token_ids))
            counts.append(before[end] - before[at])
            at = end
    if not framed.all():
        ids, belief = ids[framed], belief[framed]
    return counts, unpack(ids[:, 1:]), belief


def ending(layout: Layout, output: Any) -> tuple[Finish, Literal["", "fault", "abort"]]:
    """How an output that ends its request does so: its finish as in FrameBatch, or its failure.

    The failure is "fault" when the sampler gave the request up, "abort" when vLLM did.
    """
    reason = str(output.finish_reason)
    if reason == "stop" and output.stop_reason == layout.fault:
        return "", "fault"
    if reason == "stop":
        return "stop", ""
    if reason == "length":
        return "length", ""
    return "", "abort"
