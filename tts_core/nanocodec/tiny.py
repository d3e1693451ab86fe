"""Codecs with random weights in the public ``.nemo`` layout, for tests and try-outs: noise, all the way.

NeMo's ``AudioCodecModel.restore_from`` reads them too. The encoder's last convolution is set so that its
outputs have mean 0 and variance 1 over noise: without that a random encoder gives nearly constant codes, with
it all levels occur.
"""

from __future__ import annotations

import io
import math
import tarfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml

from .config import DOWN_RATES, UP_RATES, CodecConfig, Part, tensors
from .encoder import Encoder
from .fsq import CHANNELS, GROUP_LEVELS, GROUPS, SAMPLE_RATE, SAMPLES_PER_FRAME

Size = Literal["tiny", "full"]

TINY = CodecConfig(encoder_channels=4, decoder_channels=96)
"""The smallest widths that still end, as the real ones do, in an odd number of decoder channels."""

FULL = CodecConfig()

_MODULES = "nemo.collections.tts.modules.audio_codec_modules"
_LOSSES = "nemo.collections.tts.losses.audio_codec_loss"
_GAIN = math.sqrt(3.0)
"""Bound of the weights over 1 / sqrt(inputs): uniform with this bound keeps the variance."""


def nemo_config(config: CodecConfig) -> dict[str, Any]:
    """The ``model_config.yaml`` of a codec, with all that NeMo needs to build the model."""
    return {
        "target": "nemo.collections.tts.models.audio_codec.AudioCodecModel",
        "sample_rate": SAMPLE_RATE,
        "samples_per_frame": SAMPLES_PER_FRAME,
        "loss_resolutions": [[512, 128, 512]],
        "mel_loss_dims": [40],
        "commit_loss_scale": 0.0,
        "feature_loss_type": "absolute",
        "audio_encoder": {
            "_target_": f"{_MODULES}.HiFiGANEncoder",
            "down_sample_rates": list(DOWN_RATES),
            "encoded_dim": CHANNELS,
            "base_channels": config.encoder_channels,
            "activation": "lrelu",
            "pad_mode": "replicate",
        },
        "audio_decoder": {
            "_target_": f"{_MODULES}.CausalHiFiGANDecoder",
            "up_sample_rates": list(UP_RATES),
            "input_dim": CHANNELS,
            "base_channels": config.decoder_channels,
            "activation": "half_snake",
            "output_activation": "clamp",
            "pad_mode": "zeros",
            "n_groups_equal_to_out_channels": True,
        },
        "vector_quantizer": {
            "_target_": f"{_MODULES}.GroupFiniteScalarQuantizer",
            "num_groups": GROUPS,
            "num_levels_per_group": list(GROUP_LEVELS),
        },
        "generator_loss": {"_target_": f"{_LOSSES}.GeneratorSquaredLoss"},
        "discriminator_loss": {"_target_": f"{_LOSSES}.DiscriminatorSquaredLoss"},
    }


def random_tensors(config: CodecConfig, part: Part, seed: int) -> dict[str, torch.Tensor]:
    """Random tensors of a part with folded names, scaled so that signals keep their size through it."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, torch.Tensor] = {}
    for name, shape in tensors(config, part).items():
        noise = torch.rand(shape, generator=generator) * 2 - 1
        if name.endswith(".alpha"):
            found[name] = 1 + noise / 2
        elif name.endswith(".bias"):
            found[name] = noise / 50
        else:
            inputs = 4 if "up_sample" in name else math.prod(shape[1:])
            gain = _GAIN
            if "skip_conv" in name:
                gain /= 5
            if name.startswith("audio_decoder.post_conv"):
                gain /= 16  # about -26 dBFS, as speech is: nothing clips
            found[name] = noise * gain / math.sqrt(inputs)
    return found


def whiten(config: CodecConfig, found: dict[str, torch.Tensor], seed: int) -> None:
    """Set the last convolution of an encoder so that its outputs over noise are spread; changes ``found``."""
    noise = np.random.default_rng(seed).standard_normal(64 * SAMPLES_PER_FRAME) / 5
    encoder = Encoder(config, {name: tensor.numpy() for name, tensor in found.items()})
    with torch.inference_mode():
        embedded = encoder.embed(noise.astype(np.float32))
    mean, spread = embedded.mean(1), embedded.std(1) + 1e-6
    found["audio_encoder.post_conv.weight"] = (
        found["audio_encoder.post_conv.weight"] / spread[:, None, None]
    ).clone()
    bias = found["audio_encoder.post_conv.bias"]
    found["audio_encoder.post_conv.bias"] = ((bias - mean) / spread).clone()


def state_dict(config: CodecConfig, seed: int) -> dict[str, torch.Tensor]:
    """A random state dict with the names of the public checkpoint, weight norm unfolded."""
    encoder = random_tensors(config, "audio_encoder", seed)
    whiten(config, encoder, seed)
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in {**encoder, **random_tensors(config, "audio_decoder", seed + 1)}.items():
        owner, _, kind = name.rpartition(".")
        if kind == "alpha":
            stored[f"{owner}.activation.snake_act.alpha"] = tensor[None, :, None].clone()
        elif kind == "bias":
            stored[f"{owner}.conv.bias"] = tensor
        else:
            norm = tensor.flatten(1).norm(dim=1)[:, None, None]
            stored[f"{owner}.conv.parametrizations.weight.original0"] = norm
            stored[f"{owner}.conv.parametrizations.weight.original1"] = tensor
    return stored


def make_tiny_nemo(
    path: Path, *, seed: int = 0, size: Size = "tiny", config: CodecConfig | None = None, gz: bool = False
) -> Path:
    """Write a ``.nemo`` with random weights.

    Args:
        path: file to write.
        seed: of the weights.
        size: ``tiny`` (3 MB) or ``full`` (250 MB, the shape of the released model).
        config: other widths than those of ``size``.
        gz: compress it, as some released files are.

    Returns:
        ``path``.

    """
    widths = config or (TINY if size == "tiny" else FULL)
    checkpoint = io.BytesIO()
    torch.save(state_dict(widths, seed), checkpoint)
    document = yaml.safe_dump(nemo_config(widths), sort_keys=False).encode()
    with tarfile.open(path, "w:gz" if gz else "w") as archive:
        for name, data in (("model_config.yaml", document), ("model_weights.ckpt", checkpoint.getvalue())):
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
