"""Counter-based Gumbel noise: what makes a request's audio depend on its own seed and text alone.

Each value is a pure function of (seed, frame index, channel, code), so neither the other rows of a batch, nor
preemption, nor the process it runs in can change a draw. The bits come from splitmix64 (Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), in 64-bit integers that wrap.
"""

from __future__ import annotations

from functools import lru_cache

import torch

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed 64-bit, which is what torch has
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """Apply the finaliser of splitmix64 to ``x``, in place: a step makes many of these numbers."""
    x ^= _shift_right(x, 30)
    x *= _MIX_1
    x ^= _shift_right(x, 27)
    x *= _MIX_2
    x ^= _shift_right(x, 31)
    return x


@lru_cache(maxsize=8)
def _lanes(channels: int, width: int, device: torch.device) -> torch.Tensor:
    """What sets the draws of a frame apart: int64 ``[width * channels]``, channel by channel."""
    lanes: torch.Tensor = torch.arange(1, channels * width + 1, device=device, dtype=torch.int64) * _GAMMA
    return lanes.view(channels, width).T.reshape(-1)


@lru_cache(maxsize=8)
def _half(device: torch.device) -> torch.Tensor:
    """Half of the 52nd bit: what noise of whole bits lacks to be neither 0 nor 1. A double."""
    return torch.tensor(2.0**-53, dtype=torch.float64, device=device)


def keys(seed: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """What a frame's noise is made from, by its request's ``seed`` and its index ``step``: int64, as these.

    The two are broadcast. Of a request's frames they can be made at once, long before the frames are.
    """
    # The seed is mixed before the step is added: seeds and steps that follow each other share no lane.
    return _mix(_mix(seed * _GAMMA) + step * _GAMMA)


def lowering(key: torch.Tensor, channels: int = 32, width: int = 8) -> torch.Tensor:
    """Gumbel noise of frames by their ``keys`` int64 ``[n]``, times -1: to be taken off what is drawn from.

    Returns:
        float32 ``[n, width, channels]``, finite, from -36.8 to 3.7.
    """
    bits = _mix(key[:, None] + _lanes(channels, width, key.device))
    # 52 bits, so that the half can be added exactly and neither 0 nor 1 is ever drawn.
    noise = torch.add(_half(key.device), _shift_right(bits, 12), alpha=2.0**-52)
    return noise.log_().neg_().log_().float().view(-1, width, channels)


def gumbel(seed: torch.Tensor, step: torch.Tensor, channels: int = 32, width: int = 8) -> torch.Tensor:
    """Give standard Gumbel noise for every code of every channel.

    Args:
        seed: int64 ``[n]``, any value.
        step: int64 ``[n]``, the index of the frame within its request.
        channels: how many channels a frame has.
        width: how many codes the widest channel has.

    Returns:
        float32 ``[n, channels, width]`` on the device of ``seed``; finite, from -3.7 to 36.8.
    """
    return lowering(keys(seed, step), channels, width).neg_().mT.contiguous()
