"""The plain loop: one request, one frame after another, every rule written out.

It is the oracle that the vLLM engine is compared with, code for code, and serves small machines by itself.
Rules and order are those of the published runner (GEPARD technical report, arXiv 2609.04222, and its
inference code); the draw is Gumbel-max with noise that counts (``noise``), so that a seed says the same
everywhere. Each head is handled alone and plainly: clarity before speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from tts_core.errors import EngineError
from tts_core.nanocodec import fsq

from .backbone import Cache, Qwen
from .checkpoint import Checkpoint
from .config import GepardConfig, dtype_of
from .frames import Finish, FrameBatch, FrameRequest, check_request
from .noise import gumbel
from .sampling import Sampling

_Head = NDArray[np.float32]
_WIDTH = max(fsq.LEVELS)


class ReferenceModel:
    """The model. One thread at a time; requests may be interleaved, each has its own cache.

    Args:
        config: of the checkpoint.
        weights: its tensors by name, all of one number type.

    ``stop_logit`` is what the stop head last said.
    """

    def __init__(self, config: GepardConfig, weights: dict[str, torch.Tensor]) -> None:
        self.config = config
        start = "model."
        self.backbone = Qwen(
            config.backbone, {n.removeprefix(start): t for n, t in weights.items() if n.startswith(start)}
        )
        channels = range(fsq.CHANNELS)
        self._tables = [weights[f"audio_embeddings.{k}.weight"] for k in channels]
        self._project = [
            weights[f"audio_embed_proj.{i}.{part}"] for i in (0, 2) for part in ("weight", "bias")
        ]
        self._scale = weights["audio_embed_scale"]
        self._heads = torch.cat([weights[f"codebook_heads.{k}.weight"] for k in channels])
        self._biases = torch.cat([weights[f"codebook_heads.{k}.bias"] for k in channels])
        self._stop = weights["stop_head.weight"], weights["stop_head.bias"]
        self.stop_logit = -math.inf

    @classmethod
    def load(cls, checkpoint: Checkpoint, dtype: str = "float32") -> ReferenceModel:
        """Load the weights of ``checkpoint`` as ``dtype`` (2.1 GB in float32 for the published one).

        Raises:
            SettingsError: another type than float32, bfloat16, float16; or the file cannot be read.
        """
        kind = getattr(torch, dtype_of(dtype))
        weights: dict[str, torch.Tensor] = {}
        for prefix in ("model.", "audio_", "codebook_heads.", "stop_head."):
            weights |= {prefix + name: t.to(kind) for name, t in checkpoint.tensors(prefix).items()}
        return cls(checkpoint.config, weights)

    def frames(self, request: FrameRequest) -> Iterator[FrameBatch]:
        """Give one batch of one frame per step; the last one names the end.

        The first frame comes from the last position of the prompt, without a look at the stop head. Every
        further step reads the frame before; if the stop head, of the branch with text, is then surer than
        the threshold, the request is over and the step gives no frame. Guidance past its last guided frame
        costs nothing: the second branch is not read any more.

        Raises:
            BadRequest: token ids or a prefix that are not of this model.
            TextTooLong: prompt and frames are longer than the model's window.
            EngineError: the model gave values that are no numbers.
        """
        check_request(request, self.config)
        return self._run(request)

    def _run(self, request: FrameRequest) -> Iterator[FrameBatch]:
        sampling = request.sampling
        cond = _Branch(self, request, request.ids)
        uncond = None
        if request.uncond is not None and sampling.guides(0):
            uncond = _Branch(self, request, request.uncond)
        drawn: list[NDArray[np.int64]] = []
        finish: Finish = ""
        while not finish:
            # Nothing is yielded in there: the mode is the thread's, not the generator's.
            with torch.inference_mode():
                heads = self._step(cond, uncond, drawn, sampling)
            if heads is None:
                yield FrameBatch(np.zeros((0, fsq.CHANNELS), np.uint8), np.zeros(0, np.float32), "stop")
                return
            codes = draw(heads, drawn, sampling)
            drawn.append(codes)
            finish = "length" if len(drawn) >= sampling.max_frames else ""
            yield FrameBatch(codes.astype(np.uint8)[None], np.array([entropy(heads)], np.float32), finish)

    def _step(
        self, cond: _Branch, uncond: _Branch | None, drawn: list[NDArray[np.int64]], sampling: Sampling
    ) -> list[_Head] | None:
        """Read the last frame; the logits of the next one, or None where the stop head ends it."""
        guided = uncond is not None and sampling.guides(len(drawn))
        if drawn:
            row = self.embed_frame(drawn[-1])
            cond.read(row)
            if self._stops(cond.hidden, sampling.stop_threshold):
                return None
            if uncond is not None and guided:
                uncond.read(row)
        heads = self._logits(cond.hidden)
        if uncond is not None and guided:
            scale = np.float32(sampling.cfg_scale)
            others = self._logits(uncond.hidden)
            heads = [u + scale * (c - u) for c, u in zip(heads, others, strict=True)]
        return heads

    def embed_frame(self, codes: Sequence[int] | NDArray[Any]) -> torch.Tensor:
        """The row ``[1, hidden]`` by which the model reads a frame of 32 codes."""
        row = torch.cat([table[int(code)] for table, code in zip(self._tables, codes, strict=True)])[None]
        first, first_bias, second, second_bias = self._project
        row = F.linear(F.gelu(F.linear(row, first, first_bias)), second, second_bias)
        return F.layer_norm(row, row.shape[-1:]) * self._scale

    def _logits(self, hidden: torch.Tensor) -> list[_Head]:
        """Logits of each head, float32, from a hidden state ``[1, hidden]``."""
        flat: _Head = F.linear(hidden, self._heads, self._biases)[0].float().numpy()
        if not np.isfinite(flat).all():
            raise EngineError("the model gave values that are not numbers")
        return np.split(flat, np.cumsum(fsq.LEVELS)[:-1])

    def _stops(self, hidden: torch.Tensor, threshold: float) -> bool:
        logit = F.linear(hidden, *self._stop)[0, 0].float()
        self.stop_logit = float(logit)
        if math.isnan(self.stop_logit):
            raise EngineError("the model gave values that are not numbers")
        return bool(torch.sigmoid(logit) > threshold)


@dataclass(init=False)
class _Branch:
    """One sequence of a request: its cache, and the state ``[1, hidden]`` of its last position."""

    hidden: torch.Tensor
    cache: Cache

    def __init__(self, model: ReferenceModel, request: FrameRequest, ids: tuple[int, ...]) -> None:
        self._backbone = model.backbone
        with torch.inference_mode():
            rows = [self._backbone.embed(ids)]
            if request.prefix is not None:
                rows.insert(0, torch.tensor(request.prefix.rows).to(self._backbone.dtype))
            if request.context is not None:
                rows.extend(model.embed_frame(frame) for frame in request.context)
            prompt = torch.cat(rows)
            self.cache = self._backbone.cache(len(prompt) + min(request.sampling.max_frames, 64))
            self.read(prompt)

    def read(self, rows: torch.Tensor) -> None:
        self.hidden = self._backbone.forward(rows, self.cache)[-1:]


def draw(heads: Sequence[_Head], drawn: Sequence[NDArray[np.int64]], sampling: Sampling) -> NDArray[np.int64]:
    """Draw the next frame: int64 ``[32]``.

    Args:
        heads: logits of each head after guidance.
        drawn: the frames before it; how many there are is also the number of the frame for the noise.
        sampling: the rules.
    """
    window = sampling.repetition_window
    recent = drawn[-window:] if window else drawn
    noise = None
    if not sampling.greedy:
        step = torch.tensor([len(drawn)])
        noise = gumbel(torch.tensor([sampling.seed]), step, fsq.CHANNELS, _WIDTH)[0].numpy()
    codes = np.empty(len(heads), np.int64)
    for channel, head in enumerate(heads):
        logits = head.copy()
        if sampling.repetition_penalty != 1.0:
            penalty = np.float32(sampling.repetition_penalty)
            for code in {int(frame[channel]) for frame in recent}:
                logits[code] = logits[code] / penalty if logits[code] > 0 else logits[code] * penalty
        if noise is not None:
            logits = logits / np.float32(sampling.temperature)
            if sampling.top_k:
                kth = np.sort(logits)[-min(sampling.top_k, len(logits))]
                logits = np.where(logits < kth, np.float32(-np.inf), logits)
            logits = logits + noise[channel, : len(logits)]
        codes[channel] = int(logits.argmax())
    return codes


def entropy(heads: Sequence[_Head]) -> float:
    """Mean over heads of the entropy of their belief, each as a share of its most, ``log L``: 0 to 1."""
    shares = []
    for head in heads:
        wide = head.astype(np.float64) - head.max()
        belief = np.exp(wide) / np.exp(wide).sum()
        known = belief[belief > 0]
        shares.append(float(-(known * np.log(known)).sum()) / math.log(len(head)))
    return sum(shares) / len(shares)
