"""How a step's frames leave the engine: as its "likeliest tokens", vLLM's one stock tensor per token."""

from __future__ import annotations

import torch
from vllm.v1.outputs import LogprobsTensors

from ..sampler import Drawn
from .signatures import has

has(LogprobsTensors, "logprob_token_ids", "logprobs", "selected_token_ranks")


def outgoing(drawn: Drawn) -> LogprobsTensors:
    """Ids int32 ``[n, 9]``: the sampled one and the eight of the frame; the first logprob is the entropy."""
    ids = torch.cat([drawn.tokens[:, None], drawn.frames], 1).to(torch.int32)
    floats = torch.zeros(ids.shape, device=ids.device)
    floats[:, 0] = drawn.entropy
    return LogprobsTensors(ids, floats, torch.ones(len(ids), dtype=torch.int32, device=ids.device))
