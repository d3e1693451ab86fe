"""Checkpoints with random weights in the published layout, for tests, try-outs and measurements.

"tiny" (0.4 million numbers) says noise but goes the whole path: its heads prefer some codes and its
stop head fires now and then. "full" has every size of ``nineninesix/gepard-1.0`` and never stops by itself,
so that lengths can be set. Both carry a small real tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tokenizers
import torch
from safetensors.torch import save_file

from tts_core.errors import SettingsError
from tts_core.nanocodec import fsq

from . import checkpoint, config
from .frames import FrameRequest
from .prompt import build_prompt
from .reference import ReferenceModel
from .sampling import Sampling

Size: TypeAlias = Literal["tiny", "full"]

_MARK = "voxwire models make-tiny"

_CORPUS = """
the quick brown fox jumps over the lazy dog and then the dog sleeps in the warm sun for the rest of the day.
Hello, thank you for calling. How can I help you today? Your order number is one two three four five.
I can see that it was sent on Monday and should be with you by the end of the week. Is there anything else?
Please hold the line while I look that up for you. It will only take a moment. Yes, that is right, no problem.
We are open from nine in the morning until six in the evening. Would you like to make an appointment with us?
"""


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    layers: int
    heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tokens: int
    positions: int
    embed_std: float
    gain: float
    scale: float
    stop_std: float
    stop_bias: float


_SIZES: dict[str, _Sizes] = {
    "tiny": _Sizes(64, 2, 4, 32, 128, 512, 504, 4096, 1.0, 1.5, 1.0, 2.0, -4.0),
    "full": _Sizes(1024, 14, 8, 256, 3584, 248_320, 248_077, 262_144, 0.02, 1.0, 0.02, 0.001, -30.0),
}


def make_tiny(
    directory: str | Path,
    *,
    seed: int = 0,
    size: Size = "tiny",
    dtype: str = "float32",
    cloning: bool = True,
) -> Path:
    """Write a checkpoint into ``directory``, which is made; one that was made here before is replaced.

    Args:
        directory: where to.
        seed: of the weights; the same one gives the same file.
        size: "tiny", or "full" (513 million numbers and the compressor's 42: 1.1 GB in bfloat16).
        dtype: number type of the tensors: "float32", "bfloat16" or "float16".
        cloning: False for a model without speaker prefix.

    Returns:
        The directory.

    Raises:
        SettingsError: an unknown size or type, the directory cannot be written, or another checkpoint lies
            there.
    """
    if size not in _SIZES:
        raise SettingsError("the size must be tiny or full")
    sizes, kind = _SIZES[size], config.dtype_of(dtype)
    path = Path(directory)
    if (path / checkpoint.WEIGHTS).exists() and not _made_here(path):
        raise SettingsError(
            "a checkpoint lies there already that was not made by this; name another directory"
        )
    described = describe(size, kind, cloning=cloning)
    parsed = config.GepardConfig.parse(json.dumps(described).encode())
    weights = _weights(parsed, sizes, getattr(torch, kind), seed)
    if size == "tiny":
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # matrices this small only suffer from more
        _calibrate(parsed, weights)
        torch.set_num_threads(threads)
    backbone = described["backbone_config"]
    try:
        path.mkdir(parents=True, exist_ok=True)
        save_file(weights, path / checkpoint.WEIGHTS, metadata={"format": "pt"})
        _write(path / config.FILE, described)
        _write(path / checkpoint.BACKBONE, backbone)
        _write(path / checkpoint.TOKENIZER, _tokenizer(sizes.tokens))
        _write(path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    except OSError:
        raise SettingsError("the checkpoint cannot be written there") from None
    return path


def _made_here(path: Path) -> bool:
    try:
        return bool(json.loads((path / config.FILE).read_text())["made_by"] == _MARK)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _special(tokens: int) -> dict[str, int]:
    """Where the published ids lie, counted from the end of the tokenizer."""
    return {
        "start_of_text": tokens - 4,
        "end_of_text": tokens - 3,
        "start_of_speech": tokens - 7,
        "end_of_speech": tokens - 6,
        "tts_pad": tokens - 1,
        "tokeniser_length": tokens,
    }


def describe(size: Size, dtype: str, *, cloning: bool = True) -> dict[str, Any]:
    """Describe such a checkpoint: its ``gepard_config.json``."""
    sizes = _SIZES[size]
    backbone = {
        "model_type": "qwen3_5_text",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.ffn,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": 2,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": sizes.positions,
        "layer_types": ["full_attention"] * sizes.layers,
        "attention_bias": False,
        "attn_output_gate": True,
        "tie_word_embeddings": True,
        "partial_rotary_factor": 1.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 1.0},
        "dtype": dtype,
    }
    return {
        "model_type": "gepard",
        "made_by": _MARK,
        "backbone_config": backbone,
        "audio_heads": {f"level_audio_{k}": levels for k, levels in enumerate(fsq.LEVELS)},
        "audio_embed_dim": 32,
        "partial_rotary_factor": 1.0,
        "special_tokens": _special(sizes.tokens),
        "stop_loss_weight": 2.0,
        "stop_pos_weight": 25.0,
        "model_dtype": dtype,
        "codec": {
            "num_layers": fsq.GROUPS,
            "fsq_levels": list(fsq.GROUP_LEVELS),
            "do_unfold": True,
            "frame_rate_hz": 21.5,
            "codec_id": "nvidia/nemo-nano-codec-22khz-1.89kbps-21.5fps",
            "sample_rate": fsq.SAMPLE_RATE,
        },
        "text_repetition": {
            "enabled": True,
            "target_text_tokens": 16,
            "apply_below": 13,
            "max_repeats": 8,
            "mixed_keep_prob": 0.25,
            "seed": 0,
        },
        "voice_cloning": {
            "enabled": cloning,
            "compressor": {
                "num_queries": 8, "num_layers": 2, "num_heads": 8, "d_model": sizes.hidden,
                "ffn_hidden_size_multiplier": 4, "dropout": 0.1,
            },
            "training": {
                "cfg_dropout_prob": 0.15,
                "supcon": {"enabled": cloning, "use_projection": True, "projection_dim": 128},
                "diversity_loss": {"enabled": True},
            },
        },
    }  # fmt: skip


def _weights(
    parsed: config.GepardConfig, sizes: _Sizes, dtype: torch.dtype, seed: int
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...], std: float, mean: float = 0.0) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype).normal_(mean, std, generator=generator)

    weights = {name: _draw(name, shape, sizes, normal) for name, shape in checkpoint.shapes(parsed).items()}
    if parsed.cloning is not None and parsed.cloning.projected:  # what training leaves behind
        weights["supcon_head.fc1.weight"] = normal((128, sizes.hidden), 0.02)
        weights["supcon_head.fc1.bias"] = normal((128,), 0.02)
        weights["supcon_head.fc2.weight"] = normal((128, 128), 0.02)
    return weights


def _draw(
    name: str, shape: tuple[int, ...], sizes: _Sizes, normal: Callable[..., torch.Tensor]
) -> torch.Tensor:
    for pattern, std, mean in (
        (r"ref_compressor\..*norm", 0.1, 1.0),  # the compressor's norms multiply by the weight itself
        (r".*norm", 0.1, 0.0),  # the backbone's by one plus the weight
        (r"audio_embed_scale", 0.0, sizes.scale),
        (r"ref_compressor\.output_scale", 0.0, sizes.embed_std),
        (r"stop_head\.bias", 0.0, sizes.stop_bias),
        (r"audio_embeddings\.|ref_compressor\.queries", 1.0, 0.0),
        (r"null_prefix|model\.embed_tokens\.", sizes.embed_std, 0.0),
        (r"codebook_heads\..*bias", 0.1, 0.0),
        (r".*bias", 0.02, 0.0),
        (r"model\.layers\.", sizes.gain * shape[-1] ** -0.5, 0.0),
        (r"stop_head\.", sizes.stop_std * shape[-1] ** -0.5, 0.0),
        (r"codebook_heads\.", 3.0 * shape[-1] ** -0.5, 0.0),
    ):
        if re.match(pattern, name):
            return normal(shape, std, mean)
    return normal(shape, shape[-1] ** -0.5)


def _calibrate(parsed: config.GepardConfig, weights: dict[str, torch.Tensor]) -> None:
    """Set the stop head's bias so that it fires once in a hundred frames or so, whatever the seed."""
    wide = {name: tensor.float() for name, tensor in weights.items()}
    bias = wide["stop_head.bias"]
    bias.fill_(-100.0)
    model = ReferenceModel(parsed, wide)
    seen: list[float] = []
    for seed in range(4):
        sampling = Sampling(temperature=0.7, seed=seed, max_frames=60)
        request = FrameRequest("", build_prompt(parsed, range(seed, seed + 14)), None, sampling)
        seen += [model.stop_logit for _ in model.frames(request)]
    ordered = sorted(seen)
    firing = ordered[-2]
    weights["stop_head.bias"].fill_(-100.0 - firing)


def _tokenizer(tokens: int) -> dict[str, Any]:
    """A byte-level BPE whose last seven ids are special, as in the published tokenizer."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=min(496, tokens - 8),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_CORPUS.split("\n"), trainer)
    description: dict[str, Any] = json.loads(made.to_str())
    names = {token: name for name, token in _special(tokens).items() if token < tokens}
    description["added_tokens"] = [
        {
            "id": token, "content": f"<|{names.get(token, f'reserved_{token}')}|>", "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False, "special": True,
        }
        for token in range(tokens - 7, tokens)
    ]  # fmt: skip
    # Their ids lie far beyond the others: a token that the model knows keeps the id it has there.
    description["model"]["vocab"] |= {token["content"]: token["id"] for token in description["added_tokens"]}
    return description
