"""The shape of the codec: what may vary, the tensors that follow from it, and the decoder's state.

The architecture is the one of ``nvidia/nemo-nano-codec-22khz-1.89kbps-21.5fps``: a HiFi-GAN encoder that
looks both ways, grouped FSQ, and a strictly causal HiFi-GAN decoder. Only the widths are open, so that tests
can use a small one; every other value that a file states must be the known one, as another would decode to
noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import EngineError
from .fsq import CHANNELS, GROUP_LEVELS, GROUPS, SAMPLE_RATE, SAMPLES_PER_FRAME

Part = Literal["audio_decoder", "audio_encoder"]
Shape = tuple[int, ...]

DOWN_RATES = (2, 2, 4, 8, 8)
UP_RATES = (8, 8, 4, 2, 2)
KERNELS = (3, 7, 11)
DILATIONS = (1, 3, 5)
IN_KERNEL = 7
DECODER_OUT_KERNEL = 3
ENCODER_OUT_KERNEL = 7
LEAK = 0.01
"""Slope of every leaky ReLU (torch's default)."""
SNAKE_EPS = 1e-9
"""Added to a snake's frequency before it divides."""
FSQ_EPS = 1e-3
LEFT_CONTEXT = 25
"""Frames before a frame that its samples depend on; with them a stateless window is exact."""

# What a file may say in the three sections: all that the constructors in NeMo accept, at the known values.
_RESIDUAL = {"resblock_kernel_sizes": KERNELS, "resblock_dilation_sizes": DILATIONS}
_ENCODER: dict[str, object] = {
    "encoded_dim": CHANNELS,
    "down_sample_rates": DOWN_RATES,
    "in_kernel_size": IN_KERNEL,
    "out_kernel_size": ENCODER_OUT_KERNEL,
    "activation": "lrelu",
    "pad_mode": "replicate",
    **_RESIDUAL,
}
_DECODER: dict[str, object] = {
    "input_dim": CHANNELS,
    "up_sample_rates": UP_RATES,
    "in_kernel_size": IN_KERNEL,
    "out_kernel_size": DECODER_OUT_KERNEL,
    "activation": "half_snake",
    "output_activation": "clamp",
    "pad_mode": "zeros",
    "n_groups_equal_to_out_channels": True,
    **_RESIDUAL,
}
_QUANTIZER: dict[str, object] = {
    "num_groups": GROUPS,
    "num_levels_per_group": GROUP_LEVELS,
    "eps": FSQ_EPS,
}
# Must be stated: the default of the constructor is another value.
_REQUIRED = {
    "audio_encoder": {"encoded_dim", "down_sample_rates", "pad_mode"},
    "audio_decoder": {"input_dim", "up_sample_rates", "activation", "output_activation"},
    "vector_quantizer": {"num_groups", "num_levels_per_group"},
}


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Widths of a codec; the defaults are the released model.

    Args:
        encoder_channels: channels after the encoder's first convolution; they double at each of 5 stages.
        decoder_channels: channels after the decoder's first convolution; they halve at each of 5 stages.

    Raises:
        EngineError: widths that the architecture cannot have.

    """

    encoder_channels: int = 24
    decoder_channels: int = 864

    def __post_init__(self) -> None:
        if not _is_int(self.encoder_channels) or not 1 <= self.encoder_channels <= 256:
            raise EngineError("the codec's encoder must have 1 to 256 channels")
        if not _is_int(self.decoder_channels) or not 64 <= self.decoder_channels <= 4096:
            raise EngineError("the codec's decoder must have 64 to 4096 channels")
        if self.decoder_channels % 32:
            raise EngineError("the channels of the codec's decoder must halve five times")

    @classmethod
    def from_nemo(cls, document: object) -> CodecConfig:
        """Read the ``model_config.yaml`` of a ``.nemo``, already parsed. Its ``_target_`` are not looked at.

        Raises:
            EngineError: it is not the codec we know; the message names the key.

        """
        if not isinstance(document, Mapping):
            raise EngineError("the codec's configuration is no mapping")
        for key, value in (("sample_rate", SAMPLE_RATE), ("samples_per_frame", SAMPLES_PER_FRAME)):
            _expect(key, document.get(key), value)
        _expect("output_sample_rate", document.get("output_sample_rate", SAMPLE_RATE), SAMPLE_RATE)
        for key in ("semantic_codec", "semantic_codec_path"):
            if document.get(key):
                raise EngineError(f"the codec's configuration has {key}, which is another kind of codec")
        encoder = _section(document, "audio_encoder", {**_ENCODER, "base_channels": None})
        decoder = _section(document, "audio_decoder", {**_DECODER, "base_channels": None})
        _section(document, "vector_quantizer", _QUANTIZER)
        return cls(encoder.get("base_channels", 32), decoder.get("base_channels", 512))

    @classmethod
    def from_dict(cls, document: object) -> CodecConfig:
        """The inverse of ``as_dict``. Raises EngineError when it is not that."""
        if not isinstance(document, dict) or set(document) != set(cls.__slots__):
            raise EngineError("the codec file has no configuration of ours")
        return cls(**document)

    def as_dict(self) -> dict[str, int]:
        """The widths, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class State:
    """What one convolution keeps between steps: its last ``length`` inputs, at ``offset`` of the state."""

    channels: int
    length: int
    offset: int

    @property
    def size(self) -> int:
        """Numbers in it."""
        return self.channels * self.length


def decoder_widths(config: CodecConfig) -> tuple[int, ...]:
    """Channels after each of the five up-sampling stages: 432, 216, 108, 54, 27."""
    return tuple(config.decoder_channels >> stage for stage in range(1, len(UP_RATES) + 1))


def encoder_widths(config: CodecConfig) -> tuple[int, ...]:
    """Channels before each of the five down-sampling stages: 24, 48, 96, 192, 384."""
    return tuple(config.encoder_channels << stage for stage in range(len(DOWN_RATES)))


def residual_units(layer: str) -> Iterator[tuple[str, int, int]]:
    """Name, kernel and dilation of the nine residual units of a layer: three chains of three."""
    for chain, kernel in enumerate(KERNELS):
        for unit, dilation in enumerate(DILATIONS):
            yield f"{layer}.res_blocks.{chain}.res_blocks.{unit}", kernel, dilation


def tensors(config: CodecConfig, part: Part) -> dict[str, Shape]:
    """Name and shape of every tensor of a part, weight norm folded away."""
    return dict(_decoder_tensors(config) if part == "audio_decoder" else _encoder_tensors(config))


def states(config: CodecConfig) -> dict[str, State]:
    """The state of the decoder, by the name of the convolution, in the order of use; zeros at the start."""
    found: dict[str, State] = {}
    offset = 0
    for name, channels, length in _remembered(config):
        found[name] = State(channels, length, offset)
        offset += found[name].size
    return found


def state_size(config: CodecConfig) -> int:
    """Numbers in the state of one stream: 182,712 for the released model."""
    return sum(state.size for state in states(config).values())


def _remembered(config: CodecConfig) -> Iterator[tuple[str, int, int]]:
    yield "audio_decoder.pre_conv", CHANNELS, IN_KERNEL - 1
    width = config.decoder_channels
    for stage, width in enumerate(decoder_widths(config)):
        yield f"audio_decoder.up_sample_conv_layers.{stage}", 2 * width, 1
        for unit, kernel, dilation in residual_units(f"audio_decoder.res_layers.{stage}"):
            yield f"{unit}.input_conv", width, (kernel - 1) * dilation
            yield f"{unit}.skip_conv", width, kernel - 1
    yield "audio_decoder.post_conv", width, DECODER_OUT_KERNEL - 1


def _decoder_tensors(config: CodecConfig) -> Iterator[tuple[str, Shape]]:
    width = config.decoder_channels
    yield from _convolution("audio_decoder.pre_conv", width, CHANNELS, IN_KERNEL)
    for stage, (rate, width) in enumerate(zip(UP_RATES, decoder_widths(config), strict=True)):
        yield f"audio_decoder.activations.{stage}.alpha", (width,)
        yield f"audio_decoder.up_sample_conv_layers.{stage}.weight", (2 * width, 1, 2 * rate)
        yield f"audio_decoder.up_sample_conv_layers.{stage}.bias", (width,)
        for unit, kernel, _ in residual_units(f"audio_decoder.res_layers.{stage}"):
            for half in ("input", "skip"):
                yield f"{unit}.{half}_activation.alpha", (width // 2,)
                yield from _convolution(f"{unit}.{half}_conv", width, width, kernel)
    yield "audio_decoder.post_activation.alpha", (width // 2,)
    yield from _convolution("audio_decoder.post_conv", 1, width, DECODER_OUT_KERNEL)


def _encoder_tensors(config: CodecConfig) -> Iterator[tuple[str, Shape]]:
    width = config.encoder_channels
    yield from _convolution("audio_encoder.pre_conv", width, 1, IN_KERNEL)
    for stage, (rate, width) in enumerate(zip(DOWN_RATES, encoder_widths(config), strict=True)):
        for unit, kernel, _ in residual_units(f"audio_encoder.res_layers.{stage}"):
            yield from _convolution(f"{unit}.input_conv", width, width, kernel)
            yield from _convolution(f"{unit}.skip_conv", width, width, kernel)
        name = f"audio_encoder.down_sample_conv_layers.{stage}"
        yield from _convolution(name, 2 * width, width, 2 * rate)
    yield from _convolution("audio_encoder.post_conv", CHANNELS, 2 * width, ENCODER_OUT_KERNEL)


def _convolution(name: str, out: int, into: int, kernel: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into, kernel)
    yield f"{name}.bias", (out,)


def _section(document: Mapping[Any, Any], name: str, known: Mapping[str, object]) -> Mapping[str, Any]:
    """Check a section against the known values; None stands for any."""
    section = document.get(name)
    if not isinstance(section, Mapping):
        raise EngineError(f"the codec's configuration has no {name}")
    missing = sorted(_REQUIRED[name] - set(section))
    if missing:
        raise EngineError(f"the codec's configuration has no {name}.{missing[0]}")
    for key, value in section.items():
        if key == "_target_":
            continue
        if not isinstance(key, str) or key not in known:
            raise EngineError(f"the codec's configuration has an unknown key in {name}: {str(key)[:40]!r}")
        if known[key] is not None:
            _expect(f"{name}.{key}", value, known[key])
    return section


def _expect(key: str, value: object, wanted: object) -> None:
    given = tuple(value) if isinstance(value, list) else value
    if given != wanted or isinstance(given, bool) != isinstance(wanted, bool):
        raise EngineError(f"the codec's configuration has {key} = {str(value)[:40]}, not {wanted}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
