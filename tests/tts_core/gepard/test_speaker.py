"""The compressor beside one that is written with torch's own attention module and plain sums."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tts_core.gepard.cases import random_codes
from tts_core.errors import BadRequest, EngineError, SettingsError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.speaker import MAX_FRAMES, Speaker, load_speaker
from tts_core.gepard.tiny import make_tiny
from tts_core.nanocodec import fsq


@pytest.fixture(scope="module")
def speaker(checkpoint: Checkpoint) -> Speaker:
    return load_speaker(checkpoint)


class Peer:
    """The compressor in float64."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.w = {name: t.double() for name, t in checkpoint.tensors("ref_compressor.").items()}
        self.width = checkpoint.config.hidden_size

    def norm(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        norm = torch.nn.RMSNorm(self.width, eps=1e-6, dtype=torch.float64)
        norm.weight.data = self.w[name + ".weight"]
        return norm(rows)

    def attend(self, name: str, queries: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
        module = torch.nn.MultiheadAttention(self.width, 8, bias=False, batch_first=True, dtype=torch.float64)
        parts = [self.w[f"{name}.{part}_proj.weight"] for part in "qkv"]
        module.in_proj_weight.data = torch.cat(parts)
        module.out_proj.weight.data = self.w[f"{name}.out_proj.weight"]
        return module(queries[None], over[None], over[None], need_weights=False)[0][0]

    @torch.no_grad()
    def prefix(self, codes: fsq.Codes) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        w = self.w
        features = torch.zeros(len(codes), self.width, dtype=torch.float64)
        for p, frame in enumerate(codes):
            values = torch.tensor(
                [(int(c) - levels // 2) / (levels // 2) for c, levels in zip(frame, fsq.LEVELS, strict=True)],
                dtype=torch.float64,
            )
            features[p] = w["input_proj.weight"] @ values + w["input_proj.bias"]
            for i in range(self.width // 2):
                angle = p * 10000 ** (-2 * i / self.width)
                features[p, 2 * i] += math.sin(angle)
                features[p, 2 * i + 1] += math.cos(angle)
        q = w["queries"]
        for block in ("blocks.0.", "blocks.1."):
            h = self.norm(q, block + "norm_self")
            q = q + self.attend(block + "self_attn", h, h)
            q = q + self.attend(block + "cross_attn", self.norm(q, block + "norm_cross"), features)
            h = self.norm(q, block + "norm_ffn")
            gate, up = (h @ w[f"{block}ffn.{part}_proj.weight"].T for part in ("gate", "up"))
            q = q + (torch.nn.functional.silu(gate) * up) @ w[f"{block}ffn.down_proj.weight"].T
        return (w["output_scale"] * self.norm(q, "final_norm")).numpy()


@pytest.mark.parametrize("frames", [1, 2, 65, 323])
def test_equals_an_independent_one(checkpoint: Checkpoint, speaker: Speaker, frames: int) -> None:
    codes = random_codes(frames, seed=frames)
    got = speaker.prefix(codes)
    assert got.dtype == np.float32 and got.shape == (8, checkpoint.config.hidden_size)
    assert np.abs(got - Peer(checkpoint).prefix(codes)).max() < 1e-5


def test_depends_on_the_clip_and_its_order(speaker: Speaker) -> None:
    codes = random_codes(64)
    rows = speaker.prefix(codes)
    assert np.array_equal(rows, speaker.prefix(codes.copy()))
    assert np.abs(rows - speaker.prefix(codes[::-1])).max() > 1e-3
    assert np.abs(rows - speaker.null_prefix).max() > 1e-3


def test_the_null_prefix_is_the_file_s(checkpoint: Checkpoint, speaker: Speaker) -> None:
    stored = checkpoint.tensors("null_prefix")[""].numpy()
    assert np.array_equal(speaker.null_prefix, stored)
    with pytest.raises(ValueError, match="read-only"):
        speaker.null_prefix[0, 0] = 1.0


def test_references_that_are_none(speaker: Speaker) -> None:
    with pytest.raises(BadRequest):
        speaker.prefix(random_codes(0).reshape(0, 32))
    with pytest.raises(BadRequest):
        speaker.prefix(random_codes(MAX_FRAMES + 1))
    wrong = random_codes(10)
    wrong[3, 1] = 7
    with pytest.raises(EngineError):
        speaker.prefix(wrong)
    with pytest.raises(EngineError):
        speaker.prefix(np.zeros((10, 8), np.uint8))


def test_a_model_without_speaker_prefix(tmp_path: Path) -> None:
    plain = Checkpoint.open(make_tiny(tmp_path, cloning=False))
    assert plain.config.prefix_rows == 0
    with pytest.raises(SettingsError, match="cannot clone"):
        load_speaker(plain)
