"""The codec's file: safetensors, with the configuration and a digest of each part in its header.

Nothing in such a file can run: it is a JSON header and raw numbers. Every name, shape and type is compared
with what the configuration implies, and the numbers of a part with their digest, before any is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from .config import CodecConfig, Part, tensors

FORMAT = "voxwire-nanocodec-1"

Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Header:
    """What a codec file says of itself.

    Args:
        config: the widths.
        source: SHA-256 of the ``.nemo`` that it was made from, hex.
        digests: SHA-256 over the tensors of each part, hex.

    """

    config: CodecConfig
    source: str
    digests: Mapping[Part, str]


def digest(arrays: Tensors) -> str:
    """SHA-256 over names, shapes and bytes of float32 tensors, hex; the order given does not matter."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], np.float32)
        total.update(json.dumps([name, array.shape]).encode())
        total.update(array.tobytes())
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex. Raises EngineError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EngineError("the codec file cannot be read") from error


def save(path: Path, config: CodecConfig, parts: Mapping[Part, Tensors], source: str) -> Header:
    """Write a codec file, through a temporary one beside it: it is there whole or not at all.

    Raises:
        EngineError: it cannot be written.

    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    header = Header(config, source, {part: digest(arrays) for part, arrays in parts.items()})
    metadata: dict[str, str] = {"format": FORMAT, "config": json.dumps(config.as_dict()), "source": source}
    metadata.update({str(part): value for part, value in header.digests.items()})
    merged = {name: array for arrays in parts.values() for name, array in arrays.items()}
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(merged, part, metadata)
        os.replace(part, path)
    except (OSError, SafetensorError) as error:
        raise EngineError("the codec file cannot be written") from error
    finally:
        part.unlink(missing_ok=True)
    return header


def read_header(path: Path) -> Header:
    """Read and check everything but the numbers.

    Raises:
        EngineError: it cannot be read, is damaged, or is no codec file of ours.

    """
    with _opened(path) as file:
        return _header(file)


def load(path: Path, part: Part) -> tuple[Header, Tensors]:
    """Load one part, every tensor checked.

    Raises:
        EngineError: as ``read_header``, or the numbers are not those that were written.

    """
    with _opened(path) as file:
        header = _header(file)
        arrays: Tensors = {name: file.get_tensor(name) for name in tensors(header.config, part)}
    if digest(arrays) != header.digests[part]:
        raise EngineError("the codec file is damaged: its digest is another")
    return header, arrays


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except OSError as error:
        raise EngineError("the codec file cannot be read") from error
    except SafetensorError as error:
        raise EngineError("the codec file is damaged or no safetensors file") from error


def _header(file: Any) -> Header:
    metadata = file.metadata() or {}
    parts: tuple[Part, ...] = get_args(Part)
    if metadata.get("format") != FORMAT or set(metadata) != {"format", "config", "source", *parts}:
        raise EngineError("the codec file was not made by this program")
    try:
        config = CodecConfig.from_dict(json.loads(metadata["config"]))
    except (ValueError, RecursionError) as error:
        raise EngineError("the codec file has no configuration of ours") from error
    wanted = {name: shape for part in parts for name, shape in tensors(config, part).items()}
    present = set(file.keys())
    for name in sorted(present ^ set(wanted)):
        raise EngineError(
            f"the codec file lacks {name}" if name in wanted else f"the codec file has {name[:80]}, unknown"
        )
    for name, shape in wanted.items():
        entry = file.get_slice(name)
        if tuple(entry.get_shape()) != shape or entry.get_dtype() != "F32":
            raise EngineError(f"{name} in the codec file is not float32 of shape {list(shape)}")
    return Header(config, metadata["source"], {part: metadata[part] for part in parts})
