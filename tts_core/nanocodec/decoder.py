"""The decoder in torch, as a stream: it takes any number of frames at a time and remembers what it must.

Every convolution is causal and keeps its last ``(kernel - 1) * dilation`` inputs, every up-sampler its last
input; all together are the state of a stream, one vector of ``config.state_size`` numbers, zeros at the start
(which are the zeros that the one-shot decoder pads with). So a stream gives the same samples however its
frames are cut, to rounding, and streams with equally many frames waiting can be decoded as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from . import weights
from .config import (
    LEAK,
    SNAKE_EPS,
    UP_RATES,
    CodecConfig,
    decoder_widths,
    residual_units,
    state_size,
    states,
)
from .fsq import Codes, dequantise


class TorchDecoder:
    """A stateful NanoCodec decoder. Fulfils ``backends.Decoder``; not for use from two threads at once.

    Args:
        config: the widths.
        tensors: the ``audio_decoder`` part of a codec file.
        device: ``cpu``, or another that torch has.

    """

    def __init__(self, config: CodecConfig, tensors: weights.Tensors, *, device: str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self._states = states(config)
        self._size = state_size(config)
        self._weights = {
            name: torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
            for name, array in tensors.items()
        }
        for name in [n for n in self._weights if n.endswith(".alpha")]:
            # [C] -> [C, 1], with the reciprocal beside it
            alpha = self._weights[name].unsqueeze(-1)
            self._weights[name] = alpha
            self._weights[f"{name}.reciprocal"] = (alpha + SNAKE_EPS).reciprocal()
        for stage, (rate, width) in enumerate(zip(UP_RATES, decoder_widths(config), strict=True)):
            # [2C, 1, 2r] -> [C, 4, r]: rows are the two inputs of a group now, then the same one frame ago.
            name = f"audio_decoder.up_sample_conv_layers.{stage}.weight"
            pairs = self._weights[name].reshape(width, 2, 2, rate)
            self._weights[name] = pairs.transpose(1, 2).reshape(width, 4, rate).contiguous()

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> TorchDecoder:
        """Load from a codec file. Raises EngineError as ``weights.load``."""
        header, tensors = weights.load(path, "audio_decoder")
        return cls(header.config, tensors, device=device)

    def new_state(self) -> torch.Tensor:
        """State of a stream that begins, float32 ``[S]``."""
        return torch.zeros(self._size, device=self.device)

    def step(
        self, codes: Codes, states: Sequence[torch.Tensor]
    ) -> tuple[NDArray[np.float32], list[torch.Tensor]]:
        """Decode the next ``n`` frames of ``B`` streams.

        Args:
            codes: uint8 ``[B, n, 32]``, n > 0.
            states: the state of each stream, float32 ``[S]``; left as they are.

        Returns:
            Samples float32 ``[B, n * 1024]`` at 22.05 kHz within -1 .. 1, and the new states.

        Raises:
            EngineError: a code out of range.

        """
        values = torch.from_numpy(dequantise(codes)).to(self.device)
        with torch.inference_mode():
            audio, after = self.run(values.transpose(1, 2), torch.stack(tuple(states)))
        return audio.cpu().numpy(), list(after.unbind())

    def whole(self, codes: Codes) -> NDArray[np.float32]:
        """Decode a whole clip: codes ``[T, 32]`` to samples ``[T * 1024]``."""
        if not len(codes):
            return np.zeros(0, np.float32)
        return self.step(codes[None], [self.new_state()])[0][0]

    def run(self, values: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The network: values ``[B, 32, n]`` and states ``[B, S]`` to audio ``[B, n * 1024]`` and states."""
        after: list[torch.Tensor] = []
        x = self._convolve("audio_decoder.pre_conv", values, state, after)
        for stage in range(len(UP_RATES)):
            x = self._snake(f"audio_decoder.activations.{stage}", x)
            x = self._up_sample(f"audio_decoder.up_sample_conv_layers.{stage}", x, state, after)
            x = self._residual(f"audio_decoder.res_layers.{stage}", x, state, after)
        x = self._snake("audio_decoder.post_activation", x)
        x = self._convolve("audio_decoder.post_conv", x, state, after)
        return x.clamp(-1.0, 1.0).flatten(1), torch.cat(after, dim=1)

    def _residual(
        self, layer: str, x: torch.Tensor, state: torch.Tensor, after: list[torch.Tensor]
    ) -> torch.Tensor:
        chains: list[torch.Tensor] = []
        for unit, _, dilation in residual_units(layer):
            y = x if dilation == 1 else chains.pop()
            h = self._snake(f"{unit}.input_activation", y)
            h = self._convolve(f"{unit}.input_conv", h, state, after, dilation)
            h = self._snake(f"{unit}.skip_activation", h)
            chains.append(y + self._convolve(f"{unit}.skip_conv", h, state, after))
        return sum(chains[1:], chains[0]) / len(chains)

    def _continued(
        self, name: str, x: torch.Tensor, state: torch.Tensor, after: list[torch.Tensor]
    ) -> torch.Tensor:
        """``x`` with the inputs before it in front; what must be kept of it goes to ``after``."""
        kept = self._states[name]
        before = state[:, kept.offset : kept.offset + kept.size].unflatten(1, (kept.channels, kept.length))
        x = torch.cat((before, x), dim=-1)
        after.append(x[..., -kept.length :].flatten(1))
        return x

    def _convolve(
        self, name: str, x: torch.Tensor, state: torch.Tensor, after: list[torch.Tensor], dilation: int = 1
    ) -> torch.Tensor:
        x = self._continued(name, x, state, after)
        return F.conv1d(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], dilation=dilation)

    def _up_sample(
        self, name: str, x: torch.Tensor, state: torch.Tensor, after: list[torch.Tensor]
    ) -> torch.Tensor:
        """A transposed convolution, kernel 2r and stride r, a group per output channel, without its tail."""
        x = self._continued(name, x, state, after)
        pairs = x.unflatten(1, (-1, 2))
        taps = torch.cat((pairs[..., 1:], pairs[..., :-1]), dim=2)  # [B, C, 4, n]
        y = torch.matmul(taps.transpose(2, 3), self._weights[f"{name}.weight"])  # [B, C, n, r]
        return y.flatten(2) + self._weights[f"{name}.bias"].unsqueeze(-1)

    def _snake(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """``x + sin^2(a x) / a`` on the first half of the channels, leaky ReLU on the others."""
        alpha = self._weights[f"{name}.alpha"]
        half = alpha.shape[0]
        wave = x[:, :half]
        wave = wave + self._weights[f"{name}.alpha.reciprocal"] * torch.sin(alpha * wave).square()
        return torch.cat((wave, F.leaky_relu(x[:, half:], LEAK)), dim=1)
