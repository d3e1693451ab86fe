"""Reference speech to a speaker prefix: the checkpoint's compressor of codec codes.

A few learned queries look at each other and at the codes of a clip, twice over (a Q-Former: Li et al. 2023,
"BLIP-2", arXiv 2301.12597); what they hold then is the prefix. It depends on the clip alone, so it is made
once per voice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.nn import functional as F

from tts_core.errors import BadRequest, EngineError, SettingsError
from tts_core.nanocodec import fsq

from .checkpoint import Checkpoint
from .frames import Rows

MAX_FRAMES = 1292
"""Longest reference: 60 s. Training clips had 3 to 15 s."""

_EPS = 1e-6


class Speaker:
    """The compressor. Safe for threads.

    Args:
        checkpoint: whose weights it has; it computes in float32.

    Raises:
        SettingsError: the checkpoint has no speaker prefix.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        cloning = checkpoint.config.cloning
        if cloning is None:
            raise SettingsError("this checkpoint cannot clone voices: it has no speaker prefix")
        self._cloning = cloning
        self._weights = {
            name.removesuffix(".weight"): tensor.float()
            for name, tensor in checkpoint.tensors("ref_compressor.").items()
        }
        self._blocks = [
            {
                name.removeprefix(start): tensor
                for name, tensor in self._weights.items()
                if name.startswith(start)
            }
            for start in (f"blocks.{block}." for block in range(cloning.layers))
        ]
        self._null: Rows = checkpoint.tensors("null_prefix")[""].float().numpy()
        self._null.flags.writeable = False

    @property
    def null_prefix(self) -> Rows:
        """What the model learned to read where no speaker is named: float32 ``[K, hidden]``, read-only."""
        return self._null

    @torch.inference_mode()
    def prefix(self, codes: ArrayLike) -> Rows:
        """Make the prefix of a clip.

        Args:
            codes: ``[T, 32]``, the codes of the clip as the codec's encoder gives them, 46.44 ms each.

        Returns:
            float32 ``[K, hidden]``.

        Raises:
            BadRequest: no frame, or more than ``MAX_FRAMES``.
            EngineError: codes out of range, or the result is no number.
        """
        values = fsq.dequantise(codes)
        if values.ndim != 2 or not 0 < len(values) <= MAX_FRAMES:
            raise BadRequest("a reference must have between one frame and 60 seconds", field="reference")
        weights = self._weights
        features = F.linear(torch.from_numpy(values), weights["input_proj"], weights["input_proj.bias"])
        features = features + positions(*features.shape)
        queries = weights["queries"]
        for block in self._blocks:
            normed = _norm(queries, block["norm_self"])
            queries = queries + self._attend(block, "self_attn", normed, normed)
            queries = queries + self._attend(
                block, "cross_attn", _norm(queries, block["norm_cross"]), features
            )
            normed = _norm(queries, block["norm_ffn"])
            gated = F.silu(F.linear(normed, block["ffn.gate_proj"])) * F.linear(normed, block["ffn.up_proj"])
            queries = queries + F.linear(gated, block["ffn.down_proj"])
        rows: Rows = (weights["output_scale"] * _norm(queries, weights["final_norm"])).numpy()
        if not np.isfinite(rows).all():
            raise EngineError("the reference gave a voice that is no number")
        return rows

    def _attend(
        self, block: Mapping[str, torch.Tensor], name: str, queries: torch.Tensor, over: torch.Tensor
    ) -> torch.Tensor:
        def split(rows: torch.Tensor, part: str) -> torch.Tensor:
            projected = F.linear(rows, block[f"{name}.{part}_proj"])
            return projected.view(len(rows), self._cloning.heads, -1).transpose(0, 1)

        seen: Any = F.scaled_dot_product_attention(split(queries, "q"), split(over, "k"), split(over, "v"))
        return F.linear(seen.transpose(0, 1).reshape(len(queries), -1), block[f"{name}.out_proj"])


def load_speaker(checkpoint: Checkpoint) -> Speaker:
    """Load the compressor of ``checkpoint``; 170 MB for the published one.

    Raises:
        SettingsError: the checkpoint has no speaker prefix.
    """
    return Speaker(checkpoint)


def positions(count: int, width: int) -> torch.Tensor:
    """Sinusoids float32 ``[count, width]``, sines at even places (Vaswani et al. 2017, arXiv 1706.03762)."""
    rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    angles = torch.arange(count).float()[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), -1).view(count, width)


def _norm(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + _EPS) * weight
