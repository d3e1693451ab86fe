"""The deployment's one secret, and every key that is derived from it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tts_core.errors import SettingsError

MIN_CHARACTERS = 32


class DeploymentSecret:
    """Root of all keys: pepper, token signing, voice wrapping, phrase names. Never stored in a shared store.

    All gateways of one deployment have the same one. Its ``repr`` shows nothing.
    """

    __slots__ = ("_root",)

    def __init__(self, root: bytes) -> None:
        if len(root) < MIN_CHARACTERS:
            raise SettingsError(f"the deployment secret must have at least {MIN_CHARACTERS} characters")
        self._root = root

    def __repr__(self) -> str:
        return "DeploymentSecret(...)"

    @classmethod
    def load(cls, path: Path) -> DeploymentSecret:
        """Read the secret from ``path``, made at first use (256 random bits, mode 0600).

        Two processes that start together end with the same one. Raises SettingsError if it cannot be read or
        others may read it.
        """
        try:
            if not path.exists():
                write_private(path, secrets.token_hex(32).encode(), replace=False)
            if path.stat().st_mode & 0o077:
                raise SettingsError("the deployment secret's file must be readable by its owner alone (0600)")
            return cls(path.read_bytes().strip())
        except OSError as exc:
            raise SettingsError("the deployment secret's file cannot be read or made") from exc

    def derive(self, purpose: str, *context: str, length: int = 32) -> bytes:
        """``length`` bytes by HKDF-SHA-256 (RFC 5869) for ``purpose`` and ``context``."""
        info = b"".join(
            len(p).to_bytes(4, "big") + p
            for p in (part.encode("utf-8", "surrogatepass") for part in ("voxwire", purpose, *context))
        )
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(self._root)


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file of mode 0600 so that readers see the old or the new content, never half of it.

    The folder is made where it is missing. With ``replace`` False an existing file is left as it is. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        if replace:
            temporary.replace(path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
    finally:
        temporary.unlink(missing_ok=True)
