"""Checkpoints from a Hugging Face hub: by commit, resumed where they broke off, every file's hash checked.

Only the files in ``WANTED`` are asked for, none of which can hold code. The hub's own library finds the
commit and knows tokens and endpoints; the bytes are fetched here, as that library begins a broken file anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import urlsplit

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub import errors as hub_errors

from tts_core.errors import SettingsError

from .checkpoint import FILES, sha256

WANTED = (*FILES, "tokenizer_config.json")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_TIMEOUT_S = 30.0
_BLOCK = 1 << 20
_BROKEN = "the hub cannot be reached, or broke off; try again to go on"
_NOT_THERE = "the hub has no such checkpoint, or it is not public"

Progress = Callable[[str, int, int], None]
"""Called with a file's name, bytes that are here, and bytes in all."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint that is here now: where, of which commit, and the hex SHA-256 of every file."""

    directory: Path
    commit: str
    hashes: dict[str, str]


def home() -> Path:
    """Where fetched checkpoints are kept: ``voxwire/models`` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "voxwire" / "models"


def cached(name: str, revision: str | None, *, offline: bool = False) -> Path:
    """Directory of commit ``revision`` of ``name``: ours, or the hub library's; fetched if need be.

    Raises:
        SettingsError: ``revision`` is no commit; or it is not here and ``offline``; or as ``fetch``.
    """
    if revision is None or not _COMMIT.fullmatch(revision):
        raise SettingsError(
            "a checkpoint by id needs a revision, a commit of 40 hex digits: 'voxwire models fetch' tells it"
        )
    ours = _place(name, revision)
    if _whole(ours):
        return ours
    try:
        theirs = Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(WANTED), local_files_only=True
            )
        )
        if _whole(theirs):
            return theirs
    except (hub_errors.LocalEntryNotFoundError, hub_errors.HFValidationError):
        pass  # not there
    if offline or constants.HF_HUB_OFFLINE:
        raise SettingsError("the checkpoint is not in the local cache, and nothing may be fetched")
    return fetch(name, revision).directory


def fetch(
    name: str,
    revision: str | None = None,
    *,
    into: Path | None = None,
    on_progress: Progress = lambda name, done, size: None,
) -> Fetched:
    """Fetch a checkpoint and see that every byte is what the hub has. Blocks.

    A file that is here whole is not fetched again, one that broke off is gone on with.

    Args:
        name: "owner/name".
        revision: commit, branch or tag; None for the newest. It is resolved to a commit first, so that all
            files are of one.
        into: a directory; None for ``home()``.
        on_progress: called about once a megabyte.

    Raises:
        SettingsError: no network, no such checkpoint or revision, no access, another process fetches the
            same, no room, or a file that is not as the hub has it (which is thrown away).
    """
    if constants.HF_HUB_OFFLINE:
        raise SettingsError("HF_HUB_OFFLINE is set: nothing may be fetched")
    if not _NAME.fullmatch(name):
        raise SettingsError(_NOT_THERE)
    with _plainly():
        info = huggingface_hub.HfApi(endpoint=constants.ENDPOINT).model_info(
            name, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
        )
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise SettingsError("the hub did not tell the commit of that revision")
    there = {file.rfilename: file for file in info.siblings or ()}
    missing = [file for file in FILES if file not in there]
    if missing:
        raise SettingsError(f"{name} has no {missing[0]}: it is not a checkpoint of this kind")
    directory = into or _place(name, commit)
    hashes: dict[str, str] = {}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in WANTED:
            if file in there:
                url = f"{constants.ENDPOINT}/{name}/resolve/{commit}/{file}"
                hashes[file] = _obtain(url, directory / file, there[file], on_progress)
    except OSError:
        raise SettingsError(
            "the checkpoint cannot be written: is there room, and may we write there?"
        ) from None
    return Fetched(directory, commit, hashes)


def _place(name: str, commit: str) -> Path:
    return home() / name.replace("/", "--") / commit


def _whole(directory: Path) -> bool:
    """Whether all files are there. They are renamed into place once checked, so what is there is good."""
    return all((directory / file).is_file() for file in FILES)


def _obtain(url: str, path: Path, entry: Any, on_progress: Progress) -> str:
    """Have the file of the hub's ``entry`` at ``path``; its SHA-256. Raises SettingsError, OSError."""
    if path.is_file() and _same(path, entry):
        on_progress(path.name, entry.size, entry.size)
        return sha256(path)
    part = path.with_name(f"{path.name}.part")
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"another process is fetching {path.name}") from None
        _download(url, file, entry.size, lambda done: on_progress(path.name, done, entry.size))
        file.flush()
        if not _same(part, entry):
            part.unlink()
            raise SettingsError(f"{path.name} did not come as the hub has it; it was thrown away")
        part.replace(path)
    return sha256(path)


def _same(path: Path, entry: Any) -> bool:
    """Whether a file has the size and hash that the hub names: of the content, or of the git blob."""
    if path.stat().st_size != entry.size:
        return False
    if entry.lfs is not None:
        return bool(sha256(path) == entry.lfs.sha256)
    data = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    return bool(blob == entry.blob_id)


def _download(url: str, file: BinaryIO, size: int, on_progress: Callable[[int], None]) -> None:
    """Append to ``file`` until it has ``size`` bytes; goes on by itself as long as something comes."""
    done = file.seek(0, os.SEEK_END)
    if done > size:
        done = file.truncate(0)
    on_progress(done)
    while done < size:
        before = done
        try:
            for block in _blocks(url, file, done, size):
                file.write(block)
                done = file.tell()
                on_progress(done)
        except (http.client.HTTPException, ConnectionError, TimeoutError):
            pass  # as if it had ended early
        if done <= before:
            raise SettingsError(_BROKEN)


def _blocks(url: str, file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    """The bytes from ``start`` on; ``file`` is emptied first if the hub gives only the whole."""
    request = urllib.request.Request(url, headers=huggingface_hub.utils.build_hf_headers())  # noqa: S310
    request.add_header("Accept-Encoding", "identity")
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer = _opener.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        raise SettingsError(f"the hub answered {error.code}; try again to go on") from None
    except urllib.error.URLError:
        raise SettingsError(_BROKEN) from None
    with answer:
        if start and answer.status != http.client.PARTIAL_CONTENT:
            file.truncate(0)
            start = 0
        while start < size and (block := answer.read(min(_BLOCK, size - start))):
            start += len(block)
            yield block


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to the store of large files, without handing it the token."""

    def redirect_request(  # noqa: PLR0917 - as it is there
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None:
            ours, theirs = urlsplit(req.full_url), urlsplit(newurl)
            if theirs.scheme not in ("http", "https") or (ours.scheme == "https") > (
                theirs.scheme == "https"
            ):
                raise urllib.error.HTTPError(newurl, code, "refused", headers or Message(), fp)
            if ours.netloc != theirs.netloc:
                made.remove_header("Authorization")
        return made


_opener = urllib.request.build_opener(_Redirects())


@contextmanager
def _plainly() -> Iterator[None]:
    """Say what went wrong without the library's words, which hold addresses."""
    try:
        yield
    except hub_errors.GatedRepoError:
        raise SettingsError("the hub asks for consent or a token (HF_TOKEN) for this checkpoint") from None
    except hub_errors.RevisionNotFoundError:
        raise SettingsError("the hub has no such revision of this checkpoint") from None
    except (hub_errors.RepositoryNotFoundError, hub_errors.HFValidationError):
        raise SettingsError(_NOT_THERE) from None
    except hub_errors.HfHubHTTPError as error:
        raise SettingsError(f"the hub answered {error.response.status_code}; try again") from None
    except Exception as error:
        # Its HTTP client, whose errors come through, is another one in every few of its releases.
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "requests")):
            raise
        raise SettingsError(_BROKEN) from None
