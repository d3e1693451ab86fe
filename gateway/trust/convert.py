"""The published speaker model to the file that is loaded, once, offline, in a process of its own.

The model comes as a pickle (``resemblyzer/pretrained.pt`` in the wheel of Resemblyzer 0.1.4, Apache-2.0) and
is read as data (:mod:`gateway.trust.checkpoint`), in a child that has limits, no settings of ours and only
the bytes. What comes out must be, byte for byte, the one file whose digest is pinned here: no other weights
are ever taken, whoever made them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from gateway.trust.checkpoint import read_tensors
from gateway.trust.graph import build, shapes
from tts_core.errors import EngineError

PINNED = "3fdf83df7c4d8c81d9214549a09819b19551a242918cd859c7dde9dab74413b4"
"""SHA-256 of the converted model of Resemblyzer 0.1.4."""
SOURCE = "resemblyzer/pretrained.pt"
"""Its name in the wheel."""
STATE = "model_state"
MOST_BYTES = 64 << 20
"""Of a wheel, and of a checkpoint."""
DEADLINE_S = 120.0

UNUSED = frozenset({"similarity_weight", "similarity_bias"})
"""Weights that only training needs."""

_MEMORY = 2 << 30
_CPU_S = 60
_REFUSED = 3
_COMMAND = "from gateway.trust.convert import main; main()"


def convert(source: Path, target: Path, *, deadline_s: float = DEADLINE_S) -> None:
    """Convert a wheel or a ``.pt``. Blocks for about a second; ``target`` is written whole or not at all.

    Raises:
        EngineError: the file is damaged, not this model, or its conversion died.

    """
    try:
        if source.stat().st_size > MOST_BYTES:
            raise EngineError("the speaker model's file is too large")
        data = source.read_bytes()
    except OSError as error:
        raise EngineError(f"{source} cannot be read: {error.strerror}") from None
    made = _in_child(data, deadline_s)
    if hashlib.sha256(made).hexdigest() != PINNED:
        raise EngineError("these are not the weights of Resemblyzer 0.1.4")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as file:
            temporary = Path(file.name)
            file.write(made)
        temporary.chmod(0o644)
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError, UnboundLocalError):
            temporary.unlink()
        raise EngineError(f"{target} cannot be written: {error.strerror}") from None


def _in_child(data: bytes, deadline_s: float) -> bytes:
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")}
    here = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(entry for entry in (here, env.get("PYTHONPATH", "")) if entry)
    env["OPENBLAS_NUM_THREADS"] = "1"
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-P", "-c", _COMMAND],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError("the conversion of the speaker model took too long") from error
    except OSError as error:
        raise EngineError("the conversion of the speaker model could not be started") from error
    if child.returncode == _REFUSED:
        raise EngineError(child.stdout[:500].decode(errors="replace"))
    if child.returncode:
        raise EngineError("the conversion of the speaker model died")
    return child.stdout


def main() -> None:
    """The child: a wheel or a checkpoint on standard input, the model on standard output."""
    _limit()
    try:
        made, status = convert_bytes(sys.stdin.buffer.read(MOST_BYTES + 1)), 0
    except EngineError as error:
        made, status = error.message.encode(), _REFUSED
    except (MemoryError, RecursionError):
        made, status = b"the speaker model's file needs too much memory", _REFUSED
    sys.stdout.buffer.write(made)
    sys.stdout.buffer.flush()
    sys.exit(status)


def convert_bytes(data: bytes) -> bytes:
    """Convert in this process: a wheel or a ``.pt`` to the model's file, of whatever weights.

    Raises:
        EngineError: as ``convert``; the message names the tensor at fault.

    """
    tensors = read_tensors(_unpacked(data) if data.startswith(b"PK") else data, STATE)
    for name, shape in shapes().items():
        found = tensors.get(name)
        if found is None:
            raise EngineError(f"the checkpoint has no {name}")
        if found.shape != shape:
            raise EngineError(f"{name} in the checkpoint is not of the shape {list(shape)}")
    for name in tensors.keys() - shapes().keys() - UNUSED:
        raise EngineError(f"the checkpoint has {name[:80]}, which is unknown")
    return build(tensors)


def _unpacked(wheel: bytes) -> bytes:
    """The checkpoint in a wheel, which must have that name once (a checker and a reader may differ else)."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            found = [entry for entry in archive.infolist() if entry.filename == SOURCE]
            if len(found) != 1:
                raise EngineError(f"the wheel does not have {SOURCE} exactly once")
            if found[0].file_size > MOST_BYTES:
                raise EngineError(f"{SOURCE} in the wheel is too large")
            with archive.open(found[0]) as member:
                data = member.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
        raise EngineError("the wheel is damaged") from error
    if len(data) != found[0].file_size:
        raise EngineError("the wheel is damaged")
    return data


def _limit() -> None:
    """Bound what the child may take; it writes no file at all."""
    import resource

    for what, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_DATA, _MEMORY),
    ):
        _, hard = resource.getrlimit(what)
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (wanted, wanted))


__all__ = ["PINNED", "convert", "convert_bytes"]
