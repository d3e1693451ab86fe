"""The Qwen3.5 text model in plain torch, one sequence at a time, all layers with full attention.

The equations are those of ``Qwen3_5TextModel`` in transformers, with which the tests compare it. What is
particular to it: norms multiply by one plus the weight; ``q_proj`` gives, head after head, a query and a
gate; queries and keys are normed before they are rotated; the attention's output passes the gate.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from .config import Backbone


class Cache:
    """Keys and values of one sequence, ``[layers, 2, kv heads, room, head_dim]``; grows by doubling."""

    def __init__(self, backbone: Backbone, room: int, dtype: torch.dtype) -> None:
        self.length = 0
        self._kv = torch.empty(
            backbone.num_hidden_layers,
            2,
            backbone.num_key_value_heads,
            max(1, room),
            backbone.head_dim,
            dtype=dtype,
        )

    def reserve(self, length: int) -> None:
        """Make room for ``length`` positions in all."""
        room = self._kv.shape[3]
        if length > room:
            larger = self._kv.new_empty((*self._kv.shape[:3], max(length, 2 * room), self._kv.shape[4]))
            larger[..., : self.length, :] = self._kv[..., : self.length, :]
            self._kv = larger

    def put(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Add ``[kv heads, n, head_dim]`` behind ``length``; all keys and values of the layer so far."""
        end = self.length + keys.shape[1]
        self._kv[layer, 0, :, self.length : end] = keys
        self._kv[layer, 1, :, self.length : end] = values
        return self._kv[layer, 0, :, :end], self._kv[layer, 1, :, :end]


class Qwen:
    """The backbone.

    Args:
        backbone: its sizes.
        weights: the tensors below ``model.``, without that beginning, all of one number type.
    """

    def __init__(self, backbone: Backbone, weights: Mapping[str, torch.Tensor]) -> None:
        self.backbone = backbone
        self._embed = weights["embed_tokens.weight"]
        self._final = weights["norm.weight"]
        self._layers = [
            {
                name.removeprefix(start).removesuffix(".weight"): tensor
                for name, tensor in weights.items()
                if name.startswith(start)
            }
            for start in (f"layers.{layer}." for layer in range(backbone.num_hidden_layers))
        ]
        steps = torch.arange(0, backbone.rotary_dim, 2, dtype=torch.int64).float() / backbone.rotary_dim
        self._frequencies = 1.0 / (backbone.theta**steps)

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the weights, in which it computes."""
        kind: torch.dtype = self._embed.dtype
        return kind

    def embed(self, ids: tuple[int, ...]) -> torch.Tensor:
        """Rows ``[n, hidden]`` of text ids."""
        return F.embedding(torch.tensor(ids, dtype=torch.int64), self._embed)

    def cache(self, room: int) -> Cache:
        """An empty cache with room for ``room`` positions."""
        return Cache(self.backbone, room, self.dtype)

    def forward(self, rows: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Read ``rows`` ``[n, hidden]`` behind what ``cache`` has; their normed last states, as wide."""
        n, start = rows.shape[0], cache.length
        cache.reserve(start + n)
        angles = torch.arange(start, start + n).float()[:, None] * self._frequencies
        angles = torch.cat((angles, angles), -1)
        turn = angles.cos().to(rows.dtype), angles.sin().to(rows.dtype)
        # Row i sees everything cached and rows up to itself. A single row sees all: no mask is needed.
        mask = None if n == 1 else torch.ones(n, start + n, dtype=torch.bool).tril(start)
        hidden = rows
        for layer, weights in enumerate(self._layers):
            normed = self._norm(hidden, weights["input_layernorm"])
            hidden = hidden + self._attend(normed, layer, cache, turn, mask)
            normed = self._norm(hidden, weights["post_attention_layernorm"])
            gate = F.silu(F.linear(normed, weights["mlp.gate_proj"]))
            up = F.linear(normed, weights["mlp.up_proj"])
            hidden = hidden + F.linear(gate * up, weights["mlp.down_proj"])
        cache.length = start + n
        return self._norm(hidden, self._final)

    def _attend(
        self,
        rows: torch.Tensor,
        layer: int,
        cache: Cache,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        n, width, weights = rows.shape[0], self.backbone.head_dim, self._layers[layer]
        both = F.linear(rows, weights["self_attn.q_proj"]).view(n, -1, 2 * width)
        queries, gate = both.split(width, -1)
        keys = F.linear(rows, weights["self_attn.k_proj"]).view(n, -1, width)
        values = F.linear(rows, weights["self_attn.v_proj"]).view(n, -1, width)
        queries = _rotate(self._norm(queries, weights["self_attn.q_norm"]).transpose(0, 1), *turn)
        keys = _rotate(self._norm(keys, weights["self_attn.k_norm"]).transpose(0, 1), *turn)
        keys, values = cache.put(layer, keys, values.transpose(0, 1))
        seen = F.scaled_dot_product_attention(
            queries[None], keys[None], values[None], attn_mask=mask, scale=width**-0.5, enable_gqa=True
        )
        seen = seen[0].transpose(0, 1).reshape(n, -1) * torch.sigmoid(gate.reshape(n, -1))
        return F.linear(seen, weights["self_attn.o_proj"])

    def _norm(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = rows.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.backbone.rms_norm_eps)
        return (wide * (1.0 + weight.float())).to(rows.dtype)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the first ``cos.shape[-1]`` values of each head, halves paired (NeoX style); the rest stays."""
    turned, rest = heads[..., : cos.shape[-1]], heads[..., cos.shape[-1] :]
    first, second = turned.chunk(2, -1)
    return torch.cat((turned * cos + torch.cat((-second, first), -1) * sin, rest), -1)
