"""GEPARD from vLLM's layer primitives: a Qwen3.5 text backbone with three kinds of input and 33 fused heads.

The only thing that is not a language model's is the embedding: an id is a text token, a row of a speaker
prefix or a handle to a frame of the frame table (``layout``). So ``forward`` needs to know no request. vLLM's
own Qwen3.5 is not used: it imports the vision stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import GemmaRMSNorm
from vllm.model_executor.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

from tts_core.errors import EngineError
from tts_core.nanocodec import fsq

from ..layout import LOGITS, Layout
from .signatures import takes

takes(QKVParallelLinear, "__init__", "hidden_size", "head_size", "total_num_heads", "total_num_kv_heads")
takes(MergedColumnParallelLinear, "__init__", "input_size", "output_sizes")
takes(RowParallelLinear, "__init__", "input_size", "output_size")
takes(Attention, "__init__", "num_heads", "head_size", "scale", "num_kv_heads")
takes(Attention, "forward", "query", "key", "value")

UNUSED = ("ref_compressor.", "null_prefix", "supcon_head.", "aligner.", "lm_head.", "mtp.")
"""Tensors of the checkpoint that the language model does not hold: the speaker encoder runs elsewhere."""


class Attend(nn.Module):
    """Full attention of Qwen3.5: each head has its query and its output gate side by side in one projection.

    Queries and keys are normalised by ``1 + weight`` before the rotary embedding.
    """

    def __init__(self, config: Any, vllm: VllmConfig, prefix: str) -> None:
        super().__init__()
        quant = vllm.quant_config
        self.heads, self.width = config.num_attention_heads, config.head_dim
        self.q_size = self.heads * self.width
        self.kv_size = config.num_key_value_heads * self.width
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size,
            self.width,
            2 * self.heads,
            config.num_key_value_heads,
            bias=False,
            quant_config=quant,
            prefix=f"{prefix}.qkv_proj",
        )
        self.o_proj = RowParallelLinear(
            self.q_size, config.hidden_size, bias=False, quant_config=quant, prefix=f"{prefix}.o_proj"
        )
        self.q_norm = GemmaRMSNorm(self.width, eps=config.rms_norm_eps)
        self.k_norm = GemmaRMSNorm(self.width, eps=config.rms_norm_eps)
        self.rotary_emb = get_rope(
            head_size=self.width,
            max_position=config.max_position_embeddings,
            rope_parameters=config.rope_parameters,
        )
        self.attn = Attention(
            self.heads,
            self.width,
            self.width**-0.5,
            num_kv_heads=config.num_key_value_heads,
            cache_config=vllm.cache_config,
            quant_config=quant,
            prefix=f"{prefix}.attn",
        )

    def forward(self, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Normed hidden states ``[n, hidden]`` to what they add to the residual stream."""
        qkv, _ = self.qkv_proj(hidden)
        queries, key, value = qkv.split([2 * self.q_size, self.kv_size, self.kv_size], dim=-1)
        query, gate = queries.view(-1, self.heads, 2 * self.width).chunk(2, dim=-1)
        query = self.q_norm(query.contiguous()).view(-1, self.q_size)
        key = self.k_norm(key.reshape(-1, self.kv_size // self.width, self.width)).view(-1, self.kv_size)
        query, key = self.rotary_emb(positions, query, key)
        out = self.attn(query, key, value)
        mixed: torch.Tensor = self.o_proj(out * torch.sigmoid(gate.reshape(-1, self.q_size)))[0]
        return mixed


class Feed(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, config: Any, vllm: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            config.hidden_size,
            [config.intermediate_size] * 2,
            bias=False,
            quant_config=vllm.quant_config,
            prefix=f"{prefix}.gate_up_proj",
        )
        self.down_proj = RowParallelLinear(
            config.intermediate_size,
            config.hidden_size,
            bias=False,
            quant_config=vllm.quant_config,
            prefix=f"{prefix}.down_proj",
        )
        self.act = SiluAndMul()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normed hidden states ``[n, hidden]`` to what they add to the residual stream."""
        out: torch.Tensor = self.down_proj(self.act(self.gate_up_proj(hidden)[0]))[0]
        return out


class Layer(nn.Module):
    """One pre-norm block; the residual stream travels beside the hidden state, as vLLM's fused norm likes."""

    def __init__(self, config: Any, vllm: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.self_attn = Attend(config, vllm, f"{prefix}.self_attn")
        self.mlp = Feed(config, vllm, f"{prefix}.mlp")
        self.input_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = GemmaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, positions: torch.Tensor, hidden: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One block; ``hidden`` is still to be added to ``residual``, which is None before the first."""
        if residual is None:
            residual, hidden = hidden, self.input_layernorm(hidden)
        else:
            hidden, residual = self.input_layernorm(hidden, residual)
        hidden, residual = self.post_attention_layernorm(self.self_attn(positions, hidden), residual)
        return self.mlp(hidden), residual


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "inputs_embeds": 0})
class GepardBackbone(nn.Module):
    """Ids in, hidden states out.

    ``frame_table`` uint8 ``[rows, 32]`` and ``voice_table`` ``[rows, hidden]`` keep their address for life:
    the sampler and the worker write into them between steps, compiled code and CUDA graphs read them.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        hidden, width = config.hidden_size, int(config.gepard["audio_embed_dim"])
        self.layout = Layout.of(config.gepard["layout"])
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, hidden)
        self.layers = nn.ModuleList(
            Layer(config, vllm_config, f"{prefix}.layers.{i}") for i in range(config.num_hidden_layers)
        )
        self.norm = GemmaRMSNorm(hidden, eps=config.rms_norm_eps)
        self.audio_tables = nn.Parameter(torch.empty(sum(fsq.LEVELS), width), requires_grad=False)
        self.audio_proj = nn.Sequential(
            nn.Linear(fsq.CHANNELS * width, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden, elementwise_affine=False),
        )
        self.audio_scale = nn.Parameter(torch.empty(1), requires_grad=False)
        first = [sum(fsq.LEVELS[:channel]) for channel in range(fsq.CHANNELS)]
        self.register_buffer("first_code", torch.tensor(first), persistent=False)
        frames = torch.zeros(self.layout.frame_rows, fsq.CHANNELS, dtype=torch.uint8)
        self.register_buffer("frame_table", frames, persistent=False)
        self.register_buffer("voice_table", torch.zeros(self.layout.voice_rows, hidden), persistent=False)

    def embed_frames(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes uint8 ``[n, 32]`` as input embeddings ``[n, hidden]``."""
        looked_up = self.audio_tables[codes.long() + self.first_code].flatten(-2)
        embedded: torch.Tensor = self.audio_proj(looked_up) * self.audio_scale
        return embedded

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Ids ``[n]`` of any of the three kinds as input embeddings ``[n, hidden]``."""
        layout, ids = self.layout, input_ids.long()
        is_frame = ids >= layout.frame
        is_voice = (ids >= layout.voice) & ~is_frame
        text = self.embed_tokens(torch.where(ids >= layout.text, 0, ids))
        voice = self.voice_table[torch.where(is_voice, ids - layout.voice, 0)].to(text.dtype)
        row = torch.where(is_frame, ids - layout.frame, 0) & (layout.frame_rows - 1)
        frame = self.embed_frames(self.frame_table[row]).to(text.dtype)
        return torch.where(is_frame[:, None], frame, torch.where(is_voice[:, None], voice, text))

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Ids ``[n]`` (or embeddings) at ``positions`` to normed hidden states ``[n, hidden]``."""
        hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        residual = None
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
        normed: torch.Tensor = self.norm(hidden, residual)[0]
        return normed


_STACKED = {
    ".q_proj.": (".qkv_proj.", "q"),
    ".k_proj.": (".qkv_proj.", "k"),
    ".v_proj.": (".qkv_proj.", "v"),
    ".gate_proj.": (".gate_up_proj.", 0),
    ".up_proj.": (".gate_up_proj.", 1),
}


class GepardForCausalLM(nn.Module):
    """The class that vLLM loads (``architectures`` in config.json)."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.vllm_config = vllm_config
        self.model = GepardBackbone(vllm_config=vllm_config, prefix="model")
        self.heads = nn.Linear(self.config.hidden_size, LOGITS)  # 216 codes and stop: one product

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Ids as input embeddings."""
        embedded: torch.Tensor = self.model.embed_input_ids(input_ids)
        return embedded

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Ids ``[n]`` (or embeddings) at ``positions`` to normed hidden states ``[n, hidden]``."""
        hidden: torch.Tensor = self.model(input_ids, positions, intermediate_tensors, inputs_embeds)
        return hidden

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """float32 ``[n, 217]``: what the sampler takes, not a distribution over the vocabulary."""
        logits: torch.Tensor = self.heads(hidden_states).float()
        return logits

    @staticmethod
    def get_model_state_cls() -> type[Any]:
        """Hook of Model Runner V2: the per-request state, which also brings the sampler."""
        from .runner_v2 import GepardModelState

        return GepardModelState

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the tensors of ``model.safetensors``; returns the names of the parameters that were set.

        Raises:
            EngineError: a tensor has no place, or one is missing.
        """
        parameters = dict(self.named_parameters())
        loaded: set[str] = set()
        parts: dict[str, dict[int, torch.Tensor]] = {"weight": {}, "bias": {}, "tables": {}}
        for name, tensor in weights:
            head = name.split(".")[0]
            if name.startswith(UNUSED):
                continue
            if head == "codebook_heads":
                _, channel, kind = name.split(".")
                parts[kind][int(channel)] = tensor
            elif head == "stop_head":
                parts[name.split(".")[1]][fsq.CHANNELS] = tensor
            elif head == "audio_embeddings":
                parts["tables"][int(name.split(".")[1])] = tensor
            else:
                loaded.add(self._load(parameters, name, tensor))
        for target, kind, count in (
            ("heads.weight", "weight", fsq.CHANNELS + 1),
            ("heads.bias", "bias", fsq.CHANNELS + 1),
            ("model.audio_tables", "tables", fsq.CHANNELS),
        ):
            if sorted(parts[kind]) != list(range(count)):
                raise EngineError(f"the checkpoint lacks parts of {target}")
            whole = torch.cat([parts[kind][i] for i in range(count)])
            parameters[target].data.copy_(whole)
            loaded.add(target)
        missing = sorted(parameters.keys() - loaded)
        if missing:
            raise EngineError(f"the checkpoint lacks {missing[0]}")
        return loaded

    @staticmethod
    def _load(parameters: dict[str, nn.Parameter], name: str, tensor: torch.Tensor) -> str:
        target = name.replace("audio_embed_proj.", "model.audio_proj.")
        if name == "audio_embed_scale":  # stored as [] by older trainers
            target, tensor = "model.audio_scale", tensor.reshape(1)
        shard: tuple[Any, ...] = ()
        for part, (whole, which) in _STACKED.items():
            if part in target:
                target, shard = target.replace(part, whole), (which,)
                break
        parameter = parameters.get(target)
        if parameter is None:
            raise EngineError(f"the checkpoint's tensor {name} has no place in the model")
        loader = getattr(parameter, "weight_loader", default_weight_loader)
        loader(parameter, tensor, *shard)
        return target
