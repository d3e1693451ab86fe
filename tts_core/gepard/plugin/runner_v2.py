"""Adapter for vLLM's Model Runner V2, by the hooks that it offers to models: nothing of it is patched.

The runner asks the model for its per-request state (``get_model_state_cls``) and that for a sampler
(``custom_sampler``). Its slots are the sampler's slots, and the map from rows to slots is on the device
already: a step does nothing per request in Python.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from ..sampler import FrameSampler
from .outgoing import outgoing
from .signatures import has, takes

takes(DefaultModelState, "__init__", "vllm_config", "model", "encoder_cache", "device")
takes(DefaultModelState, "add_request", "req_index", "new_req_data")
takes(DefaultModelState, "remove_request", "req_id")
takes(DefaultModelState, "custom_sampler", "sampler")
has(NewRequestData, "req_id", "prompt_token_ids", "sampling_params", "prefill_token_ids")
has(InputBatch, "num_reqs", "idx_mapping", "seq_lens")
has(SamplerOutput, "sampled_token_ids", "logprobs_tensors", "num_nans", "num_sampled", "num_rejected")


class GepardModelState(DefaultModelState):
    """What the sampler must know of each request, kept in step with the runner's slots."""

    def __init__(self, vllm_config: Any, model: Any, encoder_cache: Any, device: torch.device) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        backbone = model.model
        self.core = FrameSampler(backbone.frame_table, backbone.layout, self.max_num_reqs, device)
        self._slots: dict[str, int] = {}

    def add_request(self, req_index: int, new_req_data: NewRequestData) -> None:
        """A request begins, or comes back after a preemption: then its past frames stand in its prefill."""
        super().add_request(req_index, new_req_data)
        params = new_req_data.sampling_params
        ids = new_req_data.prefill_token_ids or []
        prompt = new_req_data.prompt_len
        self._slots[new_req_data.req_id] = req_index
        self.core.join(req_index, (params and params.extra_args) or {}, ids[:prompt], ids[prompt:])

    def remove_request(self, req_id: str) -> None:
        """A request is over or preempted."""
        super().remove_request(req_id)
        slot = self._slots.pop(req_id, None)
        if slot is not None:
            self.core.leave(slot)

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """Put the frame sampler in the place of the token sampler."""
        return GepardSampler(self.core, sampler), None


class GepardSampler:
    """The frame sampler with the face of the runner's token sampler."""

    compute_nans = False

    def __init__(self, core: FrameSampler, base: Any) -> None:
        self.core, self.req_states, self.sampling_states = core, base.req_states, base.sampling_states
        # The runner counts sampled ids in a table as wide as the vocabulary unless this is None; handles
        # lie beyond it.
        self.penalties_state = SimpleNamespace(output_bin_counts=None)

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        """Nothing: the model state has it."""

    def apply_staged_writes(self) -> None:
        """Nothing: the sampler does so when it samples."""

    def get_logprobs_dims(self, *_: Any, **__: Any) -> None:
        """Only asked where samplers of several ranks are gathered."""
        return

    def __call__(self, logits: torch.Tensor, input_batch: InputBatch) -> SamplerOutput:
        """Sample the batch; rows whose prompt is not read to its end give no token."""
        n = input_batch.num_reqs
        slots = input_batch.idx_mapping[:n].long()
        valid = input_batch.seq_lens[:n] >= self.req_states.prefill_len.gpu[slots]
        drawn = self.core.sample(logits[:n], self.core.rows(slots), valid)
        sampled = valid.to(torch.int32)
        return SamplerOutput(
            sampled_token_ids=drawn.tokens[:, None],
            logprobs_tensors=outgoing(drawn),
            num_nans=None,
            num_sampled=sampled,
            num_rejected=torch.zeros_like(sampled),
        )
