"""A ``.nemo`` to our safetensors file, once, in a process of its own.

A ``.nemo`` holds a pickle and a configuration that names classes to build, and has been a way to run code
(CVE-2025-23304). Here the configuration is read as plain YAML for a few numbers, the class names in it are
never looked at, and the pickle goes through torch's loader for tensors alone; both in a child process with
limits and without our settings in its environment. What comes out is checked again before it is used.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from .archive import read_members
from .config import CodecConfig, Part, Shape, tensors
from .fsq import GROUP_LEVELS, GROUPS
from .weights import Tensors, file_digest, read_header, save

log = logging.getLogger(__name__)

DEADLINE_S = 600.0
"""Of a conversion; the full model takes some seconds on an idle core."""

IGNORED = (
    *("discriminator", "encoder_noise", "slm_encoder", "slm_predictor", "slm_loss_fn", "speaker_encoder"),
    *("speaker_encoder_resampler", "mel_loss_fn", "stft_loss_fn", "time_domain_loss_fn", "si_sdr_loss_fn"),
    *("gen_loss_fn", "disc_loss_fn", "feature_loss_fn", "mmd_loss_fn", "mmd_time_loss_fn"),
)
"""First parts of the names of tensors that only training needs; every other name must be known."""

_MAX_TENSORS = 10_000
_MEMORY = 12 << 30
_FILE = 4 << 30
_CPU_S = 600
_COMMAND = "from tts_core.nanocodec.convert import main; main()"


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion did.

    Args:
        path: the safetensors file.
        source: SHA-256 of the ``.nemo``, hex.
        ignored: how many tensors were left out, by the first part of their names.

    """

    path: Path
    source: str
    ignored: dict[str, int]


def ensure(path: Path) -> Path:
    """The safetensors file of a model given as one, or as a ``.nemo`` that is converted unless it was.

    The file lies beside the ``.nemo``, and is made anew when that has been replaced by another one, which is
    logged. Until then a gateway that runs keeps what it had. Blocks: seconds to minutes.

    Raises:
        EngineError: as ``convert``, or a safetensors file that is not ours.

    """
    if path.suffix != ".nemo":
        read_header(path)
        return path
    target = path.with_suffix(".safetensors")
    if target.exists():
        if read_header(target).source == file_digest(path):
            return target
        # Only what a header shows to be ours is ever replaced: read_header refuses any other file.
        log.warning("the codec's .nemo is not the one that was converted before: converting it anew")
    return convert(path, target).path


def convert(nemo: Path, target: Path, *, deadline_s: float = DEADLINE_S) -> Converted:
    """Convert in a child process. Blocks.

    Raises:
        EngineError: the archive, its configuration or a tensor is not what it must be (the message names it),
            or the child died or took longer than ``deadline_s``.

    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")}
    env["PYTHONPATH"] = os.pathsep.join(
        entry for entry in (str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")) if entry
    )
    env["OMP_NUM_THREADS"] = "1"
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-P", "-c", _COMMAND, str(nemo.absolute()), str(target.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=env,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError("the conversion of the codec took too long") from error
    except OSError as error:
        raise EngineError("the conversion of the codec could not be started") from error
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        raise EngineError("the conversion of the codec died") from None
    if "error" in answer:
        raise EngineError(str(answer["error"]))
    header = read_header(target)
    return Converted(target, header.source, answer["ignored"])


def main() -> None:
    """The child: convert ``argv[1]`` to ``argv[2]`` and print one line of JSON."""
    _limit()
    answer: dict[str, object]
    try:
        answer = {"ignored": convert_here(Path(sys.argv[1]), Path(sys.argv[2]))}
    except EngineError as error:
        answer = {"error": error.message}
    except MemoryError:
        answer = {"error": "the codec archive needs too much memory"}
    print(json.dumps(answer))


def convert_here(nemo: Path, target: Path) -> dict[str, int]:
    """Convert in this process; how many tensors were ignored, by first part of the name.

    Raises:
        EngineError: as ``convert``.

    """
    source = file_digest(nemo)
    document, checkpoint = read_members(nemo)
    config = CodecConfig.from_nemo(parse_yaml(document))
    stored = load_checkpoint(checkpoint)
    del checkpoint
    _check_quantizer(stored)
    parts: dict[Part, Tensors] = {part: take(stored, config, part) for part in get_args(Part)}
    ignored: Counter[str] = Counter()
    for name in stored:
        first = name.partition(".")[0]
        if first not in IGNORED:
            raise EngineError(f"the checkpoint has {name[:120]}, which is unknown")
        ignored[first] += 1
    save(target, config, parts, source)
    return dict(ignored)


def parse_yaml(document: bytes) -> object:
    """Parse YAML of plain values. Raises EngineError when it is not that."""
    import yaml

    try:
        return yaml.safe_load(document)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise EngineError("the codec's configuration is no plain YAML") from error


def load_checkpoint(data: bytes) -> dict[str, Any]:
    """A state dict of torch tensors out of the bytes of a checkpoint, and nothing else.

    Raises:
        EngineError: it is damaged, or has anything but tensors by name.

    """
    import torch

    if not zipfile.is_zipfile(io.BytesIO(data)):
        # The form before the zip had looser rules for what a loader may do.
        raise EngineError("the checkpoint is no zip file of torch")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as entries:
            names = [entry.filename for entry in entries.infolist()]
            if len(set(names)) != len(names) or any(entry.compress_type for entry in entries.infolist()):
                raise EngineError("the checkpoint has an entry twice or a compressed one")
        stored = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except EngineError:
        raise
    except Exception as error:  # torch and the formats below it raise whatever they like on damaged input
        raise EngineError("the checkpoint is damaged or holds more than tensors") from error
    if not isinstance(stored, dict) or len(stored) > _MAX_TENSORS:
        raise EngineError("the checkpoint is no state dict")
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise EngineError("the checkpoint is no state dict of tensors")
    return dict(stored)


def take(stored: dict[str, Any], config: CodecConfig, part: Part) -> Tensors:
    """Take a part out of a state dict, strictly, with its weight norm folded: ``g * v / |v|``.

    The names taken are removed from ``stored``; those left may not begin with the part.

    Raises:
        EngineError: a tensor is missing, unknown, of another shape or type, or not finite; named.

    """
    import torch

    taken: Tensors = {}
    for name, shape in tensors(config, part).items():
        owner, _, kind = name.rpartition(".")
        if kind == "alpha":
            tensor = _tensor(stored, f"{owner}.activation.snake_act.alpha", (1, *shape, 1)).reshape(shape)
        elif kind == "bias":
            tensor = _tensor(stored, f"{owner}.conv.bias", shape)
        else:
            stem = f"{owner}.conv.parametrizations.weight.original"
            norm = _tensor(stored, f"{stem}0", (shape[0], 1, 1))
            direction = _tensor(stored, f"{stem}1", shape)
            tensor = torch._weight_norm(direction, norm, 0)
        if not bool(torch.isfinite(tensor).all()):
            raise EngineError(f"{name} in the checkpoint is not finite")
        array: NDArray[np.float32] = tensor.contiguous().numpy()
        taken[name] = array
    for name in stored:
        if name.startswith(f"{part}."):
            raise EngineError(f"the checkpoint has {name[:120]}, which is unknown")
    return taken


def _tensor(stored: dict[str, Any], name: str, shape: Shape) -> Any:
    tensor = stored.pop(name, None)
    if tensor is None:
        raise EngineError(f"the checkpoint has no {name}")
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise EngineError(f"{name} in the checkpoint is not of floats and shape {list(shape)}")
    return tensor.detach().float()


def _check_quantizer(stored: dict[str, Any]) -> None:
    """The quantiser has only constants, which must be the known ones where they are stored."""
    bases = [int(np.prod(GROUP_LEVELS[:dimension])) for dimension in range(len(GROUP_LEVELS))]
    for group in range(GROUPS):
        for constant, values in (("num_levels", list(GROUP_LEVELS)), ("dim_base_index", bases)):
            name = f"vector_quantizer.fsqs.{group}.{constant}"
            tensor = stored.pop(name, None)
            if tensor is not None and (
                tuple(tensor.shape) != (1, len(values), 1) or tensor.flatten().tolist() != values
            ):
                raise EngineError(f"{name} in the checkpoint has other values than this codec")


def _limit() -> None:
    """Bound what the child may take; what a system does not have is left as it is."""
    import resource

    for what, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_FSIZE, _FILE),
        (resource.RLIMIT_DATA, _MEMORY),
    ):
        _, hard = resource.getrlimit(what)
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (wanted, wanted))
