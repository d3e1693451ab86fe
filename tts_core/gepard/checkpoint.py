"""A checkpoint directory in the published layout, read strictly.

``gepard_config.json`` says what there must be; ``model.safetensors`` must hold exactly that, by name and
shape, so that a file of another model, or half of one, is refused at the start and not heard later. Only
safetensors and JSON are read: nothing in a checkpoint can run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from safetensors import SafetensorError, safe_open

from tts_core.errors import SettingsError
from tts_core.nanocodec import fsq

from . import config as configs
from .config import GepardConfig
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
BACKBONE = "config.json"
TOKENIZER = "tokenizer.json"
FILES = (configs.FILE, BACKBONE, WEIGHTS, TOKENIZER)
"""What a checkpoint must have."""

IGNORED = ("supcon_head.", "aligner.", "lm_head.", "mtp.")
"""Beginnings of the names of tensors that serve training alone, or another model's parts; never loaded."""

SCALARS = frozenset({"audio_embed_scale", "ref_compressor.output_scale"})
"""Single numbers, which files store as ``[1]`` or without a dimension."""

_TYPES = frozenset({"BF16", "F16", "F32"})
_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_BLOCK = 1 << 20


def shapes(config: GepardConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint must have (293 in the published one)."""
    backbone, hidden = config.backbone, config.hidden_size
    queries = backbone.num_attention_heads * backbone.head_dim
    keys = backbone.num_key_value_heads * backbone.head_dim
    made: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (backbone.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(backbone.num_hidden_layers):
        made |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (2 * queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "self_attn.q_norm": (backbone.head_dim,),
                "self_attn.k_norm": (backbone.head_dim,),
                "mlp.gate_proj": (backbone.intermediate_size, hidden),
                "mlp.up_proj": (backbone.intermediate_size, hidden),
                "mlp.down_proj": (hidden, backbone.intermediate_size),
            }.items()
        }
    for channel, levels in enumerate(config.levels):
        made[f"audio_embeddings.{channel}.weight"] = (levels, config.audio_embed_dim)
        made[f"codebook_heads.{channel}.weight"] = (levels, hidden)
        made[f"codebook_heads.{channel}.bias"] = (levels,)
    made |= {
        "audio_embed_proj.0.weight": (hidden, fsq.CHANNELS * config.audio_embed_dim),
        "audio_embed_proj.0.bias": (hidden,),
        "audio_embed_proj.2.weight": (hidden, hidden),
        "audio_embed_proj.2.bias": (hidden,),
        "audio_embed_scale": (1,),
        "stop_head.weight": (1, hidden),
        "stop_head.bias": (1,),
    }
    if config.cloning is not None:
        made |= _compressor(config.cloning, hidden)
    return made


def _compressor(cloning: configs.Cloning, hidden: int) -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {
        "null_prefix": (cloning.queries, hidden),
        "ref_compressor.input_proj.weight": (hidden, fsq.CHANNELS),
        "ref_compressor.input_proj.bias": (hidden,),
        "ref_compressor.queries": (cloning.queries, hidden),
        "ref_compressor.final_norm.weight": (hidden,),
        "ref_compressor.output_scale": (1,),
    }
    for block in range(cloning.layers):
        start = f"ref_compressor.blocks.{block}."
        made |= {f"{start}norm_{name}.weight": (hidden,) for name in ("self", "cross", "ffn")}
        made |= {
            f"{start}{kind}_attn.{name}_proj.weight": (hidden, hidden)
            for kind in ("self", "cross")
            for name in ("q", "k", "v", "out")
        }
        made |= {f"{start}ffn.{name}_proj.weight": (cloning.ffn, hidden) for name in ("gate", "up")}
        made[f"{start}ffn.down_proj.weight"] = (hidden, cloning.ffn)
    return made


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been checked.

    ``ignored``: names of tensors in the file that are not loaded.
    """

    directory: Path
    config: GepardConfig
    ignored: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def open(
        cls, path_or_id: str | Path, *, revision: str | None = None, offline: bool = False
    ) -> Checkpoint:
        """Open a directory, or a Hugging Face id ("owner/name", also "owner/name@commit").

        An id needs a ``revision``, the full commit hash: what is spoken must not change because somebody
        pushed. It is taken from the local cache, and fetched first if it is not there and not ``offline``.
        Blocks: on the first fetch for as long as that takes.

        Raises:
            SettingsError: no such checkpoint, an id without a commit, or the checkpoint is not one that can
                be served; names the file, key or tensor.
        """
        directory = Path(path_or_id)
        if not directory.is_dir():
            name, _, commit = str(path_or_id).partition("@")
            if not _ID.fullmatch(name):
                raise SettingsError("the checkpoint is neither a directory nor an id like owner/name")
            from .fetch import cached

            directory = cached(name, commit or revision, offline=offline)
        config = GepardConfig.read(directory)
        _check_backbone(directory, config)
        if not (directory / TOKENIZER).is_file():
            raise SettingsError(f"the checkpoint has no readable {TOKENIZER}")
        with _weights(directory) as file:
            ignored = _check(file, shapes(config))
        return cls(directory, config, ignored)

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 over the names and bytes of the files in ``FILES``; read once, a second a gigabyte."""
        total = hashlib.sha256()
        for name in FILES:
            total.update(f"{name} {sha256(self.directory / name)}\n".encode())
        return total.hexdigest()

    def tensors(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """The tensors whose name begins with ``prefix``, by what follows it, in the file's number type.

        Single numbers come as ``[1]``. Ignored tensors are not among them. Blocks while it reads.

        Raises:
            SettingsError: the file has changed since, or cannot be read.
        """
        with _weights(self.directory, "pt") as file:
            found = {
                name.removeprefix(prefix): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 - no mapping
                if name.startswith(prefix) and not name.startswith(IGNORED)
            }
        single = {name: found[name].reshape(1) for name in found if prefix + name in SCALARS}
        return found | single

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer; some tenths of a second for the published one.

        Raises:
            SettingsError: ``tokenizer.json`` cannot be read, or has tokens beyond the vocabulary.
        """
        return Tokenizer.read(self.directory / TOKENIZER, self.config)

    def check_values(self) -> int:
        """Read every tensor and see that it holds numbers; how many numbers there are.

        Raises:
            SettingsError: names the first tensor with an infinity or a NaN.
        """
        import torch

        count = 0
        with _weights(self.directory, "pt") as file:
            for name in sorted(shapes(self.config)):
                tensor = file.get_tensor(name)
                if not bool(torch.isfinite(tensor).all()):
                    raise SettingsError(f"{WEIGHTS}: {name} holds values that are not numbers")
                count += tensor.numel()
        return count


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file. Raises SettingsError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        raise SettingsError(f"the checkpoint has no readable {path.name}") from None
    return digest.hexdigest()


@contextmanager
def _weights(directory: Path, framework: Literal["pt", "np"] = "np") -> Iterator[Any]:
    # Names, shapes and types are read without torch: the gateway opens checkpoints, its workers load them.
    try:
        with safe_open(directory / WEIGHTS, framework=framework) as file:
            yield file
    except SafetensorError as error:
        # Its words are about offsets and sizes; they hold no path.
        raise SettingsError(f"{WEIGHTS} is damaged: {error}") from None
    except (OSError, ValueError):
        raise SettingsError(f"the checkpoint has no readable {WEIGHTS}") from None


def _check(file: Any, wanted: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Compare names, shapes and number types with what there must be; the ignored names."""
    names = frozenset(file.keys())
    ignored = frozenset(name for name in names if name.startswith(IGNORED))
    _none("lacks", sorted(wanted.keys() - names))
    _none("has a tensor that no part of the model takes:", sorted(names - ignored - wanted.keys()))
    for name, shape in wanted.items():
        part = file.get_slice(name)
        found = tuple(part.get_shape())
        if found != shape and not (name in SCALARS and found == ()):
            raise SettingsError(f"{WEIGHTS}: {name} is {_size(found)} and must be {_size(shape)}")
        if part.get_dtype() not in _TYPES:
            raise SettingsError(f"{WEIGHTS}: {name} is of a number type that is not served")
    return tuple(sorted(ignored))


def _none(what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise SettingsError(f"{WEIGHTS} {what} {_shown(names[0])}{more}")


def _shown(name: str) -> str:
    """A name out of a file, fit to be shown: no control characters, not endless."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= 120 else text[:117] + "..."


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"


def _check_backbone(directory: Path, config: GepardConfig) -> None:
    """``config.json`` is what vLLM reads: it must describe the same backbone."""
    try:
        values = msgspec.json.decode(configs.read_json(directory / BACKBONE), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SettingsError(f"{BACKBONE} cannot be read") from None
    ours = config.backbone
    theirs = configs.backbone_of(values, ours.rotary_dim / ours.head_dim, BACKBONE)
    for name in ours.__slots__:
        # How far positions go is written differently by different tools, and bounds nothing that we do.
        if name != "max_position_embeddings" and getattr(ours, name) != getattr(theirs, name):
            raise SettingsError(f"{BACKBONE} and {configs.FILE} do not agree on {name}")
