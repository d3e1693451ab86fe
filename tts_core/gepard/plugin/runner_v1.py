"""Adapter for vLLM's V1 model runner, which the CPU build selects: the sampler is swapped after loading.

The engine argument ``worker_cls`` names one of the two workers here. They hand the runner's comings and
goings to the sampler before each step, and nothing else of vLLM is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.sampler import Sampler
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from ..sampler import FrameSampler, Rows
from .outgoing import outgoing
from .signatures import has, takes

takes(Sampler, "forward", "logits", "sampling_metadata")
takes(Worker, "load_model")
takes(Worker, "execute_model", "scheduler_output")
has(SchedulerOutput, "finished_req_ids", "preempted_req_ids")
has(SamplerOutput, "sampled_token_ids", "logprobs_tensors")


class GepardSampler(Sampler):
    """The frame sampler with the face of the runner's token sampler.

    A request has a slot from its first step until it ends or is preempted; one that comes back is joined
    anew, with its past frames, so that they are checked.
    """

    def __init__(self, runner: Any) -> None:
        super().__init__(logprobs_mode=runner.model_config.logprobs_mode)
        backbone = runner.get_model().model
        self.runner = runner
        self.core = FrameSampler(
            backbone.frame_table, backbone.layout, runner.max_num_reqs, device=runner.device
        )
        self._free = list(range(runner.max_num_reqs))
        self._slots: dict[str, int] = {}
        self._rows: list[str] = []
        self._found = self.core.rows(torch.zeros(0, dtype=torch.int64))

    def forget(self, requests: Iterable[str]) -> None:
        """Free the slots of requests that are over or preempted."""
        for request in requests:
            slot = self._slots.pop(request, None)
            if slot is not None:
                self.core.leave(slot)
                self._free.append(slot)
                self._rows = []

    def _find(self, requests: list[str]) -> Rows:
        """The slots of a batch's rows; work only where the batch has changed."""
        if requests != self._rows:
            for request in requests:
                if request not in self._slots:
                    state = self.runner.requests[request]
                    slot = self._slots[request] = self._free.pop()
                    params = (state.sampling_params and state.sampling_params.extra_args) or {}
                    self.core.join(slot, params, state.prompt_token_ids or (), state.output_token_ids)
            self._rows = list(requests)
            slots = torch.tensor([self._slots[r] for r in requests], device=self.runner.device)
            self._found = self.core.rows(slots)
        return self._found

    def forward(self, logits: torch.Tensor, sampling_metadata: Any, *_: Any, **__: Any) -> SamplerOutput:
        """Sample the batch. vLLM's own profiling calls this without requests."""
        requests, n = self.runner.input_batch.req_ids, len(logits)
        if n == 0 or n != len(requests):
            return SamplerOutput(torch.zeros(n, 1, dtype=torch.int32, device=logits.device), None)
        rows = self._find(requests)
        valid = ~self.runner.discard_request_mask.gpu[:n].bool()
        sent = outgoing(self.core.sample(logits, rows, valid))
        return SamplerOutput(sent.logprob_token_ids[:, :1], sent)


class _Swap:
    """What both workers add to vLLM's."""

    model_runner: Any
    use_v2_model_runner: bool

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        loaded = super().load_model(*args, **kwargs)  # type: ignore[misc]
        if not self.use_v2_model_runner:
            self.model_runner.sampler = GepardSampler(self.model_runner)
        return loaded

    def execute_model(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        sampler = self.model_runner.sampler
        if isinstance(sampler, GepardSampler):
            sampler.forget(scheduler_output.finished_req_ids)
            sampler.forget(scheduler_output.preempted_req_ids or ())
        return super().execute_model(scheduler_output, *args, **kwargs)  # type: ignore[misc]


class CpuWorker(_Swap, CPUWorker):
    """vLLM's CPU worker with the frame sampler."""


class GpuWorker(_Swap, Worker):
    """vLLM's GPU worker with the frame sampler, where the V1 runner is asked for."""
