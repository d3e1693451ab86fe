"""The decoder on NVIDIA's own modules, for whoever trusts nothing else: slow, and not in the base install.

NeMo has no streaming decoder. So the state of a stream is its last 25 frames of codes, on which, and on no
others, the next samples depend: they are decoded again in front of the new ones and their samples dropped,
which is exact. The modules get the weights of our converted file; NeMo's own reader of files is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from nemo.collections.tts.modules.audio_codec_modules import CausalHiFiGANDecoder
from numpy.typing import NDArray

from . import weights
from .config import LEFT_CONTEXT, UP_RATES, CodecConfig
from .fsq import CHANNELS, SAMPLES_PER_FRAME, Codes, dequantise


class NemoDecoder:
    """NeMo's ``CausalHiFiGANDecoder`` behind ``backends.Decoder``; streams are decoded one by one.

    Args:
        config: the widths.
        tensors: the ``audio_decoder`` part of a codec file.
        device: a device of torch.

    """

    def __init__(self, config: CodecConfig, tensors: weights.Tensors, *, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._network = CausalHiFiGANDecoder(
            input_dim=CHANNELS,
            up_sample_rates=list(UP_RATES),
            base_channels=config.decoder_channels,
            activation="half_snake",
            output_activation="clamp",
            pad_mode="zeros",
            n_groups_equal_to_out_channels=True,
        )
        self._network.load_state_dict(unfolded(tensors), strict=True)
        self._network.eval().to(self._device)

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> NemoDecoder:
        """Load from a codec file. Raises EngineError as ``weights.load``."""
        header, tensors = weights.load(path, "audio_decoder")
        return cls(header.config, tensors, device=device)

    def new_state(self) -> Codes:
        """State of a stream that begins: no frames, uint8 ``[0, 32]``."""
        return np.zeros((0, CHANNELS), np.uint8)

    def step(self, codes: Codes, states: Sequence[Codes]) -> tuple[NDArray[np.float32], list[Codes]]:
        """Decode the next frames of some streams, see ``backends.Decoder``."""
        count = codes.shape[1]
        windows = [np.concatenate((state, new)) for state, new in zip(states, codes, strict=True)]
        audio = [self.whole(window)[-count * SAMPLES_PER_FRAME :] for window in windows]
        return np.stack(audio), [window[-LEFT_CONTEXT:] for window in windows]

    def whole(self, codes: Codes) -> NDArray[np.float32]:
        """Decode a whole clip: codes ``[T, 32]``, T > 0, to samples ``[T * 1024]``."""
        values = torch.from_numpy(dequantise(codes).T[None].copy()).to(self._device)
        length = torch.tensor([len(codes)], device=self._device)
        with torch.inference_mode():
            audio, _ = self._network(inputs=values, input_len=length)
        samples: NDArray[np.float32] = audio[0].cpu().numpy()
        return samples


def unfolded(tensors: weights.Tensors) -> dict[str, torch.Tensor]:
    """Our tensors under the names of NeMo's module, with a weight norm that changes nothing: ``g = |v|``."""
    found: dict[str, torch.Tensor] = {}
    for name, array in tensors.items():
        owner, _, kind = name.removeprefix("audio_decoder.").rpartition(".")
        tensor = torch.from_numpy(array)
        if kind == "alpha":
            found[f"{owner}.activation.snake_act.alpha"] = tensor[None, :, None]
        elif kind == "bias":
            found[f"{owner}.conv.bias"] = tensor
        else:
            stem = f"{owner}.conv.parametrizations.weight.original"
            found[f"{stem}0"] = torch.linalg.vector_norm(tensor, dim=(1, 2), keepdim=True)
            found[f"{stem}1"] = tensor
    return found
