"""The two files of a ``.nemo`` that are used, read as data: a tar, plain or gzipped, of untrusted origin.

The reader and the checker of an archive must never differ, or what was checked is not what is read (the trick
of a member that is there twice); so every name must be there once, and nothing is ever extracted to disk.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ..errors import EngineError

CONFIG = "model_config.yaml"
CHECKPOINT = "model_weights.ckpt"

MAX_MEMBERS = 64
MAX_CONFIG = 1 << 20
MAX_CHECKPOINT = 2 << 30
"""The released decoder and encoder are 250 MB; the discriminators of training may be there too."""
MAX_ARCHIVE = 4 << 30
"""Bytes after decompression."""

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20


class _Bounded(io.RawIOBase):
    """A stream that ends in an error after so many bytes: gzip may stand for far more than it is long."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(min(size if size >= 0 else _PIECE, _PIECE))
        self._left -= len(data)
        if self._left < 0:
            raise EngineError("the codec archive is too large")
        return data


def read_members(path: Path) -> tuple[bytes, bytes]:
    """The configuration and the checkpoint of a ``.nemo``.

    Raises:
        EngineError: it is damaged, too large, has a name twice, a link, a device, a path that leaves it, or
            one of the two is not there.

    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
            file.seek(0)
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if zipped else file
            found = _members(_Bounded(plain, MAX_ARCHIVE))
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise EngineError("the codec archive cannot be read") from error
    for name in (CONFIG, CHECKPOINT):
        if name not in found:
            raise EngineError(f"the codec archive has no {name}")
    return found[CONFIG], found[CHECKPOINT]


def _members(stream: _Bounded) -> dict[str, bytes]:
    limits = {CONFIG: MAX_CONFIG, CHECKPOINT: MAX_CHECKPOINT}
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    # As a stream: every byte is read once, in the order in which it lies there.
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:
        for member in archive:
            name = _name(member)
            if name in seen or len(seen) >= MAX_MEMBERS:
                raise EngineError("the codec archive has a name twice, or too many")
            seen.add(name)
            if name not in limits:
                continue  # nothing else is looked into
            if not member.isreg() or member.issparse():
                raise EngineError(f"{name} in the codec archive is no plain file")
            if member.size > limits[name]:
                raise EngineError(f"{name} in the codec archive is too large")
            content = archive.extractfile(member)
            data = content.read() if content is not None else b""
            if len(data) != member.size:
                raise EngineError(f"{name} in the codec archive is cut off")
            found[name] = data
    return found


def _name(member: tarfile.TarInfo) -> str:
    """The one spelling of a member's name, which must lie in the archive and be a file or a folder."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
        raise EngineError("the codec archive has a path that leaves it")
    if not (member.isreg() or member.isdir()):
        raise EngineError("the codec archive has a link or a device")
    return str(path)
