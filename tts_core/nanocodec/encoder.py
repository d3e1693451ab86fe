"""The encoder in torch: a reference clip to codes.

It looks both ways and pads by repeating the edge, so a clip is encoded whole and alone: in a padded batch the
last seven frames of the shorter one would change.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from . import weights
from .clip import check_clip
from .config import DOWN_RATES, FSQ_EPS, LEAK, CodecConfig, residual_units
from .fsq import LEVELS, SAMPLES_PER_FRAME, Codes


class Encoder:
    """The NanoCodec encoder.

    Args:
        config: the widths.
        tensors: the ``audio_encoder`` part of a codec file.

    """

    def __init__(self, config: CodecConfig, tensors: weights.Tensors) -> None:
        self.config = config
        self._weights = {
            name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()
        }
        levels = torch.tensor(LEVELS, dtype=torch.float32).unsqueeze(-1)
        self._half = levels // 2
        self._scale = (levels - 1) / 2 * (1 - FSQ_EPS)
        self._offset = torch.where(levels % 2 == 0, 0.5, 0.0)
        self._shift = (self._offset / self._scale).tan()

    @classmethod
    def load(cls, path: Path) -> Encoder:
        """Load from a codec file. Raises EngineError as ``weights.load``."""
        header, tensors = weights.load(path, "audio_encoder")
        return cls(header.config, tensors)

    def encode(self, pcm: NDArray[np.float32]) -> Codes:
        """Encode one clip, padded with zeros to whole frames.

        Args:
            pcm: float32 ``[n]`` at 22.05 kHz, at most 60 s.

        Returns:
            Codes uint8 ``[ceil(n / 1024), 32]``.

        Raises:
            BadRequest: the clip is empty, too long or not finite.

        """
        with torch.inference_mode():
            return self.quantise(self.embed(check_clip(pcm)))

    def embed(self, pcm: NDArray[np.float32]) -> torch.Tensor:
        """The network alone: samples ``[n]`` to ``[32, ceil(n / 1024)]``, not yet quantised."""
        x = F.pad(torch.from_numpy(pcm), (0, -len(pcm) % SAMPLES_PER_FRAME))[None, None]
        x = self._convolve("audio_encoder.pre_conv", x)
        for stage, rate in enumerate(DOWN_RATES):
            chains: list[torch.Tensor] = []
            for unit, _, dilation in residual_units(f"audio_encoder.res_layers.{stage}"):
                y = x if dilation == 1 else chains.pop()
                h = self._convolve(f"{unit}.input_conv", F.leaky_relu(y, LEAK), dilation=dilation)
                chains.append(y + self._convolve(f"{unit}.skip_conv", F.leaky_relu(h, LEAK)))
            x = F.leaky_relu(sum(chains[1:], chains[0]) / len(chains), LEAK)
            x = self._convolve(f"audio_encoder.down_sample_conv_layers.{stage}", x, stride=rate)
        return self._convolve("audio_encoder.post_conv", F.leaky_relu(x, LEAK))[0]

    def quantise(self, embedded: torch.Tensor) -> Codes:
        """``[32, T]`` to codes uint8 ``[T, 32]``: FSQ as in Mentzer et al. 2023, halves to even."""
        bounded = self._scale * (embedded + self._shift).tanh() - self._offset
        codes = bounded.round() + self._half
        digits: Codes = codes.T.contiguous().to(torch.uint8).numpy()
        return digits

    def _convolve(self, name: str, x: torch.Tensor, *, dilation: int = 1, stride: int = 1) -> torch.Tensor:
        weight = self._weights[f"{name}.weight"]
        kernel = weight.shape[-1]
        pad = (kernel - stride + 1) // 2 if stride > 1 else (kernel - 1) * dilation // 2
        x = F.pad(x, (pad, pad), mode="replicate")
        return F.conv1d(x, weight, self._weights[f"{name}.bias"], stride=stride, dilation=dilation)
