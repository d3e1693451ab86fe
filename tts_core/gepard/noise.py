"""Counter-based Gumbel noise: what makes a request's audio depend on its own seed and text alone.

Each value is a pure function of (seed, frame index, channel, code), so neither the other rows of a batch, nor
preemption, nor the process it runs in can change a draw. The bits come from splitmix64 (Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), in 64-bit integers that wrap.
"""

from __future__ import annotations

import torch

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed 64-bit, which is what torch has
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """Apply the finaliser of splitmix64."""
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


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
    lane = torch.arange(1, channels * width + 1, device=seed.device, dtype=torch.int64)
    # The seed is mixed before the step is added: seeds and steps that follow each other share no lane.
    key = _mix(_mix(seed * _GAMMA) + step * _GAMMA)
    bits = _mix(key[:, None] + lane * _GAMMA)
    # 52 bits, so that the half can be added exactly and neither 0 nor 1 is ever drawn.
    uniform = (_shift_right(bits, 12).double() + 0.5) * 2.0**-52
    noise: torch.Tensor = -torch.log(-torch.log(uniform))
    return noise.float().view(-1, channels, width)
