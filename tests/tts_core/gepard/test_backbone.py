"""Our backbone beside transformers' own ``Qwen3_5TextModel``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

from tts_core.gepard.backbone import Qwen
from tts_core.gepard.checkpoint import Checkpoint

TOLERANCE = 1e-5


def peer(checkpoint: Checkpoint, weights: dict[str, torch.Tensor], rotary: float = 1.0) -> Any:
    """Transformers' model with ``weights``."""
    b = checkpoint.config.backbone
    config = Qwen3_5TextConfig(
        vocab_size=b.vocab_size,
        hidden_size=b.hidden_size,
        intermediate_size=b.intermediate_size,
        num_hidden_layers=b.num_hidden_layers,
        num_attention_heads=b.num_attention_heads,
        num_key_value_heads=b.num_key_value_heads,
        head_dim=b.head_dim,
        rms_norm_eps=b.rms_norm_eps,
        max_position_embeddings=b.max_position_embeddings,
        layer_types=["full_attention"] * b.num_hidden_layers,
        partial_rotary_factor=rotary,
        rope_parameters={"rope_type": "default", "rope_theta": b.theta, "partial_rotary_factor": rotary},
    )
    config._attn_implementation = "eager"
    model = Qwen3_5TextModel(config).eval()
    missing = model.load_state_dict(weights, strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys
    return model


@pytest.fixture(scope="module")
def weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return checkpoint.tensors("model.")


@torch.inference_mode()
@pytest.mark.parametrize("rotary", [1.0, 0.5])
def test_equals_transformers(checkpoint: Checkpoint, weights: dict[str, torch.Tensor], rotary: float) -> None:
    b = checkpoint.config.backbone
    ours = Qwen(replace(b, rotary_dim=int(b.head_dim * rotary)), weights)
    rows = torch.randn(150, b.hidden_size, generator=torch.Generator().manual_seed(1))
    theirs = peer(checkpoint, weights, rotary)(inputs_embeds=rows[None], use_cache=False).last_hidden_state[0]
    got = ours.forward(rows, ours.cache(1))
    assert theirs.std() > 0.5
    assert (got - theirs).abs().max() < TOLERANCE


@torch.inference_mode()
def test_equals_transformers_step_by_step(checkpoint: Checkpoint, weights: dict[str, torch.Tensor]) -> None:
    """With a cache that must grow, and a prompt in pieces, against their one pass over everything."""
    ours = Qwen(checkpoint.config.backbone, weights)
    rows = ours.embed(tuple(range(60)))
    theirs = peer(checkpoint, weights)(input_ids=torch.arange(60)[None], use_cache=False).last_hidden_state[0]
    cache = ours.cache(4)
    parts = [ours.forward(part, cache) for part in (rows[:7], rows[7:20], *rows[20:].split(1))]
    assert cache.length == 60
    assert (torch.cat(parts) - theirs).abs().max() < TOLERANCE


@torch.inference_mode()
def test_in_bfloat16_it_stays_close(checkpoint: Checkpoint, weights: dict[str, torch.Tensor]) -> None:
    exact = Qwen(checkpoint.config.backbone, weights)
    rough = Qwen(checkpoint.config.backbone, {n: t.bfloat16() for n, t in weights.items()})
    rows = exact.embed(tuple(range(30)))
    got = rough.forward(rows.bfloat16(), rough.cache(30))
    want = exact.forward(rows, exact.cache(30))
    assert got.dtype == torch.bfloat16
    assert torch.cosine_similarity(got.float(), want, dim=-1).min() > 0.99
