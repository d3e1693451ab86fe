"""What vLLM is started with: a folder that it can load, its arguments, and the memory that they need.

vLLM reads a model from a folder with ``config.json`` and safetensors. Ours is made anew at every start, from
what ``gepard_config.json`` says (the checkpoint's own ``config.json`` lacks the sizes of our tables and may
carry rotary entries that would switch on other positions), with a link to the checkpoint's tensors.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts_core.errors import SettingsError

from ..config import GepardConfig
from ..layout import Layout, rows_for
from ..prompt import longest_prompt
from . import ARCHITECTURE

WEIGHTS = "model.safetensors"
EXTENSION = f"{__package__}.worker_ext.GepardWorkerExtension"
"""What the worker can be asked for beside vLLM's own."""

BLOCK = 128
"""Tokens of a block of the KV cache at most: vLLM's choice on CPUs; smaller elsewhere."""

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of one engine.

    ``rows`` are vLLM's sequences (two for a guided request), ``prompt`` the tokens of the longest prompt and
    ``positions`` those of the longest sequence.
    """

    layout: Layout
    dtype: str
    rows: int
    prompt: int
    positions: int
    guidance: bool
    kv_bytes: int


def make_plan(
    config: GepardConfig,
    *,
    dtype: str,
    max_streams: int,
    max_frames: int,
    max_context: int,
    voices: int,
    guidance: bool,
    kv_bytes: int | None,
    frame_rows: int | None = None,
) -> Plan:
    """Work out the sizes.

    Args:
        config: of the checkpoint.
        dtype: "bfloat16", "float16" or "float32".
        max_streams: requests that run at once.
        max_frames: most frames of one of them.
        max_context: most frames of context.
        voices: places of the voice table, at least ``max_streams``.
        guidance: whether requests may be guided, for which each has a second sequence.
        kv_bytes: size of the KV cache, None for what all streams at full length need.
        frame_rows: rows of the frame table, None for what all streams at full length need.

    Raises:
        SettingsError: the model's window is too small, or the KV cache: says what to change.
    """
    if dtype not in _BYTES:
        raise SettingsError("dtype must be bfloat16, float16 or float32")
    if min(max_streams, max_frames) < 1 or max_context < 0:
        raise SettingsError("max_streams and max_frames must be at least 1")
    backbone, special = config.backbone, config.special
    prompt = longest_prompt(config) + max_context
    positions = prompt + max_frames
    if positions > backbone.max_position_embeddings:
        raise SettingsError(
            f"the model's window has {backbone.max_position_embeddings} places, prompts and frames need "
            f"{positions}: lower max_frames by {positions - backbone.max_position_embeddings}"
        )
    rows = max_streams * (2 if guidance else 1)
    per_token = (
        2 * backbone.num_hidden_layers * backbone.num_key_value_heads * backbone.head_dim * _BYTES[dtype]
    )
    each = rows // max_streams * -(-positions // BLOCK)  # blocks of a stream; vLLM keeps one more empty
    block = BLOCK * per_token
    needed = (max_streams * each + 1) * block
    if kv_bytes is not None and kv_bytes < needed:
        fits = max(kv_bytes // block - 1, 0) // each
        raise SettingsError(
            f"the KV cache has {_mib(kv_bytes)}, but {max_streams} streams of {positions} positions need "
            f"{_mib(needed)}: raise kv_bytes, or lower max_streams to {fits} or max_frames"
        )
    free = (token for token in range(backbone.vocab_size - 1, -1, -1) if token not in special.ids)
    stop = next(free) if special.end_of_speech is None else special.end_of_speech
    prefix_rows = config.prefix_rows or 1
    layout = Layout(
        text=backbone.vocab_size,
        stop=stop,
        fault=next(free),
        prefix_rows=prefix_rows,
        voice_rows=max(voices, max_streams) * prefix_rows,
        frame_rows=rows_for(rows, max_frames + max_context) if frame_rows is None else frame_rows,
    )
    size = needed if kv_bytes is None else kv_bytes
    return Plan(layout, dtype, rows, prompt, positions, guidance, size)


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


def write_folder(folder: Path, config: GepardConfig, plan: Plan, tensors: Path) -> None:
    """Fill ``folder``, which is empty and ours alone, with what vLLM loads."""
    backbone = config.backbone
    values: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_5_text",
        "hidden_size": backbone.hidden_size,
        "intermediate_size": backbone.intermediate_size,
        "num_hidden_layers": backbone.num_hidden_layers,
        "num_attention_heads": backbone.num_attention_heads,
        "num_key_value_heads": backbone.num_key_value_heads,
        "head_dim": backbone.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": backbone.rms_norm_eps,
        "vocab_size": backbone.vocab_size,
        "max_position_embeddings": plan.positions,
        "layer_types": ["full_attention"] * backbone.num_hidden_layers,
        "attn_output_gate": True,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "partial_rotary_factor": backbone.rotary_dim / backbone.head_dim,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": backbone.theta,
            "partial_rotary_factor": backbone.rotary_dim / backbone.head_dim,
        },
        "dtype": plan.dtype,
        "gepard": {"audio_embed_dim": config.audio_embed_dim, "layout": plan.layout.as_dict()},
    }
    (folder / "config.json").write_text(json.dumps(values, indent=1))
    (folder / WEIGHTS).symlink_to(tensors.resolve())


def engine_arguments(folder: Path, plan: Plan, *, cpu: bool, compiled: bool) -> dict[str, Any]:
    """Keyword arguments of vLLM's ``EngineArgs``."""
    # A step of few tokens on a CPU, so that a new prompt does not hold up those who speak.
    budget = max(256 if cpu else 2048, plan.rows)
    if plan.guidance:  # both prompts of a pair are read in one step, beside those who speak
        budget = max(budget, 2 * plan.prompt + plan.rows)
    return {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "dtype": plan.dtype,
        "max_model_len": plan.positions,
        "max_num_seqs": plan.rows,
        "max_num_batched_tokens": budget,
        "kv_cache_memory_bytes": plan.kv_bytes,
        "gpu_memory_utilization": 0.3,  # of no effect on the cache's size, which is given
        "max_logprobs": 8,
        "enable_prefix_caching": True,
        "enforce_eager": not compiled,
        "worker_extension_cls": EXTENSION,
        "disable_log_stats": True,
        "distributed_executor_backend": "uni",  # the worker is in the core's process
    }


def check_memory(plan: Plan, tensors: Path) -> None:
    """See that a CPU has room for the tensors and the KV cache.

    Raises:
        SettingsError: it has not; says what to change.
    """
    need = plan.kv_bytes + os.stat(tensors).st_size
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), need)
    if free < need:
        raise SettingsError(
            f"the model and its KV cache need {_mib(need)} of memory, {_mib(free)} are free: "
            "lower max_streams or max_frames"
        )


def check_blocks(plan: Plan, blocks: int, block_size: int) -> None:
    """See that the KV cache which vLLM has made holds every stream at full length.

    Raises:
        SettingsError: streams would be preempted; says what to change.
    """
    # One block is vLLM's own.
    if (blocks - 1) // -(-plan.positions // block_size) < plan.rows:
        fits = (blocks - 1) // -(-plan.positions // block_size)
        raise SettingsError(
            f"the KV cache holds {fits} sequences of {plan.positions} positions instead of {plan.rows}: "
            "raise kv_bytes, or lower max_streams or max_frames"
        )
