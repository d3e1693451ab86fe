"""What ``gepard_config.json`` says about a checkpoint, checked. Needs no model stack.

Keys are those of the published checkpoint (``nineninesix/gepard-1.0``). Keys that we do not know are passed
over: the file carries training settings, and older ones an ``aligner`` block. What we know must be right,
and what our code does not do (another rotary type, linear attention, other codes) is refused by name, as it
would load and then speak noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tts_core.errors import SettingsError
from tts_core.nanocodec import fsq

FILE = "gepard_config.json"
MAX_BYTES = 1 << 20
"""A configuration is some kilobytes; anything larger is something else."""

DTYPES: dict[str, str] = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "fp32": "float32", "float": "float32",
}  # fmt: skip
"""Spellings of a number type, with the one that torch has; each may have ``torch.`` before it."""

_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class Backbone:
    """The Qwen3.5 text model inside: sizes as in its Hugging Face configuration.

    ``rotary_dim`` values of a head are rotated; ``theta`` is the rotary base.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    theta: float
    rotary_dim: int


@dataclass(frozen=True, slots=True)
class Special:
    """Ids of the special tokens. ``end_of_speech`` and ``tts_pad`` are never used when speaking."""

    start_of_text: int
    end_of_text: int
    start_of_speech: int
    end_of_speech: int | None = None
    tts_pad: int | None = None

    @property
    def ids(self) -> frozenset[int]:
        """All of them."""
        every = (self.start_of_text, self.end_of_text, self.start_of_speech, self.end_of_speech, self.tts_pad)
        return frozenset(token for token in every if token is not None)


@dataclass(frozen=True, slots=True)
class Repetition:
    """When short texts are repeated: below ``apply_below`` tokens, up to about ``target_text_tokens``."""

    enabled: bool = False
    target_text_tokens: int = 16
    apply_below: int = 13
    max_repeats: int = 8


@dataclass(frozen=True, slots=True)
class Cloning:
    """The compressor that makes a speaker prefix: ``queries`` rows out of ``layers`` blocks.

    ``unfolds`` says that it was given folded codec tokens in training, not codes. ``projected`` says that
    the checkpoint may carry the training's ``supcon_head``.
    """

    queries: int
    layers: int
    heads: int
    ffn: int
    unfolds: bool
    projected: bool


@dataclass(frozen=True, slots=True)
class GepardConfig:
    """A checkpoint's description of itself.

    ``levels``: codes of each of the heads, which are also the input tables, in the order of their wiring.
    ``dtype``: "bfloat16", "float16" or "float32". ``cloning`` is None for a model without speaker prefix.
    """

    backbone: Backbone
    special: Special
    levels: tuple[int, ...]
    audio_embed_dim: int
    dtype: str
    repetition: Repetition
    cloning: Cloning | None

    @property
    def hidden_size(self) -> int:
        """Width of the model, and of a row of a speaker prefix."""
        return self.backbone.hidden_size

    @property
    def prefix_rows(self) -> int:
        """Rows of a speaker prefix; 0 where there is none."""
        return 0 if self.cloning is None else self.cloning.queries

    @classmethod
    def read(cls, directory: Path) -> GepardConfig:
        """Read ``gepard_config.json`` in ``directory``.

        Raises:
            SettingsError: no such file, or it is not one that we can serve; names the key.
        """
        return cls.parse(read_json(directory / FILE))

    @classmethod
    def parse(cls, data: bytes) -> GepardConfig:
        """Read the bytes of a ``gepard_config.json``.

        Raises:
            SettingsError: as ``read``.
        """
        try:
            raw = msgspec.json.decode(data, type=_Raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(f"{FILE} cannot be read: {_reason(error)}") from None
        if raw.model_type != "gepard":
            raise SettingsError(f"{FILE}: model_type must be 'gepard'")
        backbone = backbone_of(raw.backbone_config, raw.partial_rotary_factor, FILE)
        return cls(
            backbone=backbone,
            special=_special(raw.special_tokens, backbone.vocab_size),
            levels=_levels(raw.audio_heads),
            audio_embed_dim=_positive("audio_embed_dim", raw.audio_embed_dim),
            dtype=dtype_of(raw.model_dtype),
            repetition=_repetition(raw.text_repetition),
            cloning=_cloning(raw, backbone.hidden_size),
        )


class _Compressor(msgspec.Struct):
    num_queries: int = 8
    num_layers: int = 2
    num_heads: int = 8
    d_model: int | None = None
    ffn_hidden_size_multiplier: float = 4.0


class _Supcon(msgspec.Struct):
    enabled: bool = False


class _Training(msgspec.Struct):
    supcon: _Supcon = msgspec.field(default_factory=_Supcon)


class _VoiceCloning(msgspec.Struct):
    enabled: bool = False
    compressor: _Compressor = msgspec.field(default_factory=_Compressor)
    training: _Training = msgspec.field(default_factory=_Training)


class _TextRepetition(msgspec.Struct):
    enabled: bool = False
    target_text_tokens: int = 16
    apply_below: int = 13
    max_repeats: int = 8


class _Codec(msgspec.Struct):
    do_unfold: bool = True
    num_layers: int = fsq.GROUPS
    sample_rate: int = fsq.SAMPLE_RATE
    fsq_levels: list[int] | None = None
    fsq_Levels: list[int] | None = None  # a spelling of old files


class _Raw(msgspec.Struct):
    backbone_config: dict[str, Any]
    audio_heads: dict[str, int]
    special_tokens: dict[str, Any]
    model_type: str = "gepard"
    audio_embed_dim: int = 32
    partial_rotary_factor: float = 1.0
    model_dtype: str = "bfloat16"
    codec: _Codec = msgspec.field(default_factory=_Codec)
    text_repetition: _TextRepetition = msgspec.field(default_factory=_TextRepetition)
    voice_cloning: _VoiceCloning = msgspec.field(default_factory=_VoiceCloning)


class _Rope(msgspec.Struct):
    rope_type: str = "default"
    rope_theta: float | None = None


class _RawBackbone(msgspec.Struct):
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: _Rope | None = None
    layer_types: list[str] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    attn_output_gate: bool = True


def read_json(path: Path) -> bytes:
    """Bytes of a configuration file. Raises SettingsError if it is not there or far too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        raise SettingsError(f"the checkpoint has no readable {path.name}") from None
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path.name} is too large to be a configuration")
    return data


def dtype_of(name: str) -> str:
    """One of the three spellings of ``DTYPES`` that torch has. Raises SettingsError for any other type."""
    try:
        return DTYPES[name.strip().lower().removeprefix("torch.")]
    except KeyError:
        raise SettingsError("model_dtype must be bfloat16, float16 or float32") from None


def backbone_of(values: Mapping[str, Any], rotary: float, where: str) -> Backbone:
    """Check a Hugging Face text configuration: sizes, and that it is what our code computes.

    ``rotary`` is the share of a head that is rotated. The configuration's own entries are not asked: they
    are known to differ between files (a flat default of 0.25, multi-axis sections that change nothing for
    speech).

    Raises:
        SettingsError: names ``where`` and the key.
    """
    try:
        raw = msgspec.convert(dict(values), _RawBackbone)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{where}: the backbone's configuration: {_reason(error)}") from None
    numbers = {
        name: _positive(name, getattr(raw, name))
        for name in (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
        )
    }  # fmt: skip
    if raw.num_attention_heads % raw.num_key_value_heads:
        raise SettingsError("num_attention_heads must be a multiple of num_key_value_heads")
    if any(kind != "full_attention" for kind in raw.layer_types or ()):
        raise SettingsError("layer_types: only full_attention is served")
    if raw.layer_types is not None and len(raw.layer_types) != raw.num_hidden_layers:
        raise SettingsError("layer_types must have an entry for every layer")
    if raw.hidden_act != "silu":
        raise SettingsError("hidden_act must be silu")
    if raw.attention_bias or not raw.attn_output_gate:
        raise SettingsError("the attention must have an output gate and no bias")
    rope = raw.rope_parameters or _Rope()
    if rope.rope_type != "default":
        raise SettingsError("rope_type must be default")
    theta = rope.rope_theta or raw.rope_theta or 1e7
    width = raw.head_dim * rotary
    if not 0 < rotary <= 1 or width != int(width) or int(width) % 2:
        raise SettingsError("partial_rotary_factor must give an even part of a head")
    if not 0 < raw.rms_norm_eps < 1 or not 1 < theta < 1e15:
        raise SettingsError("rms_norm_eps or rope_theta is out of range")
    return Backbone(**numbers, rms_norm_eps=raw.rms_norm_eps, theta=theta, rotary_dim=int(width))


def _reason(error: BaseException) -> str:
    """What a JSON reader has to say, without the text that it read."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _positive(name: str, value: int) -> int:
    if not 0 < value < 1 << 31:
        raise SettingsError(f"{name} must be a positive number")
    return value


def _special(values: Mapping[str, Any], vocabulary: int) -> Special:
    # tokeniser_length also stands among them: it is a count, no token.
    names = ("start_of_text", "end_of_text", "start_of_speech", "end_of_speech", "tts_pad")
    tokens: dict[str, int] = {}
    for name in names:
        value = values.get(name)
        if value is None and name in names[3:]:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary:
            raise SettingsError(f"special_tokens: {name} must be an id of the vocabulary")
        tokens[name] = value
    if len(set(tokens.values())) != len(tokens):
        raise SettingsError("special_tokens: two of them are the same id")
    return Special(**tokens)


def _levels(heads: Mapping[str, int]) -> tuple[int, ...]:
    """Levels in the order of the wiring.

    The file's order counts; but a file whose keys some tool has sorted as text (level_audio_10 before
    level_audio_2) would be wired wrongly, so numbered names are taken by their numbers.
    """
    matches = [_NUMBER.search(name) for name in heads]
    names = list(heads)
    if all(match is not None for match in matches):
        numbers = {name: int(match[1]) for name, match in zip(heads, matches, strict=True) if match}
        if len(set(numbers.values())) == len(numbers):
            names.sort(key=numbers.__getitem__)
    levels = tuple(heads[name] for name in names)
    if levels != fsq.LEVELS:
        raise SettingsError(f"audio_heads must be the codec's {fsq.CHANNELS} channels of 8, 7, 6, 6 levels")
    return levels


def _repetition(raw: _TextRepetition) -> Repetition:
    return Repetition(
        enabled=raw.enabled,
        target_text_tokens=_positive("text_repetition: target_text_tokens", raw.target_text_tokens),
        apply_below=_positive("text_repetition: apply_below", raw.apply_below),
        max_repeats=_positive("text_repetition: max_repeats", raw.max_repeats),
    )


def _cloning(raw: _Raw, hidden: int) -> Cloning | None:
    codec = raw.codec
    levels = codec.fsq_levels if codec.fsq_levels is not None else codec.fsq_Levels
    if levels is not None and tuple(levels) != fsq.GROUP_LEVELS:
        raise SettingsError("codec: fsq_levels must be 8, 7, 6, 6")
    if codec.num_layers != fsq.GROUPS or codec.sample_rate != fsq.SAMPLE_RATE:
        raise SettingsError("codec: only the 22.05 kHz codec of 8 groups is served")
    if not raw.voice_cloning.enabled:
        return None
    compressor = raw.voice_cloning.compressor
    heads = _positive("num_heads of the compressor", compressor.num_heads)
    if (compressor.d_model or hidden) != hidden or hidden % heads:
        raise SettingsError("voice_cloning: the compressor must be as wide as the model, in equal heads")
    if not 0 < compressor.ffn_hidden_size_multiplier <= 64 or compressor.num_queries > 256:
        raise SettingsError("voice_cloning: the compressor's sizes are out of range")
    return Cloning(
        queries=_positive("num_queries of the compressor", compressor.num_queries),
        layers=_positive("num_layers of the compressor", compressor.num_layers),
        heads=heads,
        ffn=int(hidden * compressor.ffn_hidden_size_multiplier),
        unfolds=not codec.do_unfold,
        projected=raw.voice_cloning.training.supcon.enabled,
    )
