"""The codec as the papers have it, straight from a checkpoint: whole clips, no state, nothing folded.

Written to be read beside the architecture, and slow: what the product does in other ways is compared with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from tts_core.nanocodec.fsq import LEVELS, Codes

Stored = dict[str, torch.Tensor]


def weight(stored: Stored, name: str) -> torch.Tensor:
    norm = stored[f"{name}.conv.parametrizations.weight.original0"]
    direction = stored[f"{name}.conv.parametrizations.weight.original1"]
    return direction * norm / direction.norm(dim=(1, 2), keepdim=True)


def half_snake(stored: Stored, name: str, x: torch.Tensor) -> torch.Tensor:
    alpha = stored[f"{name}.activation.snake_act.alpha"]
    half = alpha.shape[1]
    wave = x[:, :half] + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x[:, :half]).pow(2)
    return torch.cat([wave, F.leaky_relu(x[:, half:])], dim=1)


def causal(stored: Stored, name: str, x: torch.Tensor, dilation: int = 1) -> torch.Tensor:
    w = weight(stored, name)
    x = F.pad(x, ((w.shape[-1] - 1) * dilation, 0))
    return F.conv1d(x, w, stored[f"{name}.conv.bias"], dilation=dilation)


def centred(stored: Stored, name: str, x: torch.Tensor, dilation: int = 1, stride: int = 1) -> torch.Tensor:
    w = weight(stored, name)
    kernel = w.shape[-1]
    pad = (kernel * dilation - dilation) // 2 if stride == 1 else (kernel - stride + 1) // 2
    x = F.pad(x, (pad, pad), mode="replicate")
    return F.conv1d(x, w, stored[f"{name}.conv.bias"], dilation=dilation, stride=stride)


def decode(stored: Stored, codes: Codes) -> Any:
    """Codes ``[T, 32]`` to samples ``[T * 1024]``."""
    half = torch.tensor(LEVELS) // 2
    x = ((torch.from_numpy(codes.astype(np.int64)) - half) / half).T[None]
    x = causal(stored, "audio_decoder.pre_conv", x)
    for stage, rate in enumerate((8, 8, 4, 2, 2)):
        x = half_snake(stored, f"audio_decoder.activations.{stage}", x)
        name = f"audio_decoder.up_sample_conv_layers.{stage}"
        w = weight(stored, name)
        groups = x.shape[1] // 2
        x = F.conv_transpose1d(x, w, stored[f"{name}.conv.bias"], stride=rate, groups=groups)[..., :-rate]
        chains = []
        for chain in range(3):
            y = x
            for unit, dilation in enumerate((1, 3, 5)):
                block = f"audio_decoder.res_layers.{stage}.res_blocks.{chain}.res_blocks.{unit}"
                h = causal(
                    stored,
                    f"{block}.input_conv",
                    half_snake(stored, f"{block}.input_activation", y),
                    dilation,
                )
                y = y + causal(
                    stored, f"{block}.skip_conv", half_snake(stored, f"{block}.skip_activation", h)
                )
            chains.append(y)
        x = torch.stack(chains).mean(0)
    x = causal(stored, "audio_decoder.post_conv", half_snake(stored, "audio_decoder.post_activation", x))
    return x.clamp(-1, 1)[0, 0].numpy()


def embed(stored: Stored, pcm: NDArray[np.float32]) -> torch.Tensor:
    """Samples, a whole number of frames, to ``[32, T]``."""
    x = centred(stored, "audio_encoder.pre_conv", torch.from_numpy(pcm)[None, None])
    for stage, rate in enumerate((2, 2, 4, 8, 8)):
        chains = []
        for chain in range(3):
            y = x
            for unit, dilation in enumerate((1, 3, 5)):
                block = f"audio_encoder.res_layers.{stage}.res_blocks.{chain}.res_blocks.{unit}"
                h = centred(stored, f"{block}.input_conv", F.leaky_relu(y), dilation)
                y = y + centred(stored, f"{block}.skip_conv", F.leaky_relu(h))
            chains.append(y)
        x = F.leaky_relu(torch.stack(chains).mean(0))
        x = centred(stored, f"audio_encoder.down_sample_conv_layers.{stage}", x, stride=rate)
    return centred(stored, "audio_encoder.post_conv", F.leaky_relu(x))[0]


def quantise(embedded: torch.Tensor) -> Any:
    """``[32, T]`` to codes ``[T, 32]``, channel by channel."""
    rows = []
    for channel, levels in enumerate(LEVELS):
        scale = (levels - 1) / 2 * (1 - 1e-3)
        offset = 0.5 if levels % 2 == 0 else 0.0
        shift = np.tan(offset / scale)
        bounded = scale * torch.tanh(embedded[channel] + shift) - offset
        rows.append(bounded.round() + levels // 2)
    return torch.stack(rows, dim=1).to(torch.uint8).numpy()
