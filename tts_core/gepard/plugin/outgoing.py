"""How a step's frames leave the engine: as its "likeliest tokens", vLLM's one stock tensor per token."""

from __future__ import annotations

from functools import lru_cache

import torch
from vllm.v1.outputs import LogprobsTensors

from ..sampler import Drawn
from .signatures import has

has(LogprobsTensors, "logprob_token_ids", "logprobs", "selected_token_ranks")


@lru_cache(maxsize=8)
def _ranks(count: int, device: torch.device) -> torch.Tensor:
    """Ranks that nobody reads: int32 ``[count]``."""
    return torch.ones(count, dtype=torch.int32, device=device)


def outgoing(drawn: Drawn) -> LogprobsTensors:
    """Ids int32 ``[n, 9]``: the sampled one and the eight of the frame; each logprob is the entropy."""
    ids = torch.cat([drawn.tokens[:, None], drawn.frames], 1).to(torch.int32)
    return LogprobsTensors(ids, drawn.entropy[:, None].expand(ids.shape), _ranks(len(ids), ids.device))
