"""Checkpoints from a Hugging Face hub: by commit, resumed where it broke off, every file's hash told.

Only the files in ``WANTED`` are asked for, none of which can hold code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx  # type: ignore[import-not-found]
import huggingface_hub
from huggingface_hub import errors as hub_errors

from tts_core.errors import SettingsError

from .checkpoint import FILES, sha256

WANTED = (*FILES, "tokenizer_config.json")
_OPTIONAL = frozenset(WANTED) - frozenset(FILES)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint that is here now: where, of which commit, and the hex SHA-256 of every file."""

    directory: Path
    commit: str
    hashes: dict[str, str]


def cached(name: str, revision: str | None, *, offline: bool = False) -> Path:
    """Directory of commit ``revision`` of ``name`` in the local cache; fetched if need be.

    Raises:
        SettingsError: ``revision`` is no commit; or not cached and ``offline``; or as ``fetch``.
    """
    if revision is None or not _COMMIT.fullmatch(revision):
        raise SettingsError(
            "a checkpoint by id needs a revision, a commit of 40 hex digits: 'voxwire models fetch' tells it"
        )
    try:
        path = Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(WANTED), local_files_only=True
            )
        )
        if all((path / file).is_file() for file in FILES):
            return path
    except (hub_errors.LocalEntryNotFoundError, hub_errors.HFValidationError):
        pass  # as if it were not there: fetch says what is wrong with the name
    if offline or huggingface_hub.constants.HF_HUB_OFFLINE:
        raise SettingsError("the checkpoint is not in the local cache, and nothing may be fetched")
    return fetch(name, revision).directory


def fetch(
    name: str,
    revision: str | None = None,
    *,
    into: Path | None = None,
    on_file: Callable[[str, int, str], None] = lambda name, size, digest: None,
) -> Fetched:
    """Fetch a checkpoint and see that it is what the hub has. Blocks; shows progress on standard error.

    Args:
        name: "owner/name".
        revision: commit, branch or tag; None for the newest. It is resolved to a commit first, so that all
            files are of one.
        into: a directory for plain files; None for the cache. Either way, what is there is not fetched again
            and a file that broke off is gone on with.
        on_file: called with name, size in bytes and SHA-256 of each file once it is here.

    Raises:
        SettingsError: no network, no such checkpoint or revision, no access, or a file not as the hub has it.
    """
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise SettingsError("HF_HUB_OFFLINE is set: nothing may be fetched")
    with _plainly():
        info = huggingface_hub.HfApi().model_info(
            name, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
        )
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise SettingsError("the hub did not tell the commit of that revision")
    there = {file.rfilename: file for file in info.siblings or ()}
    missing = [file for file in FILES if file not in there]
    if missing:
        raise SettingsError(f"{name} has no {missing[0]}: it is not a checkpoint of this kind")
    directory, hashes = Path(), {}
    for file in WANTED:
        if file not in there:
            continue
        with _plainly():
            path = Path(huggingface_hub.hf_hub_download(name, file, revision=commit, local_dir=into))
        digest = sha256(path)
        large = there[file].lfs
        if large is not None and large.sha256 != digest:
            path.resolve().unlink(missing_ok=True)
            raise SettingsError(f"{file} did not come as the hub has it; it was thrown away")
        hashes[file], directory = digest, path.parent
        on_file(file, path.stat().st_size, digest)
    return Fetched(directory, commit, hashes)


@contextmanager
def _plainly() -> Iterator[None]:
    """Say what went wrong without the library's words, which hold addresses and paths."""
    try:
        yield
    except hub_errors.GatedRepoError:
        raise SettingsError("the hub asks for consent or a token (HF_TOKEN) for this checkpoint") from None
    except hub_errors.RevisionNotFoundError:
        raise SettingsError("the hub has no such revision of this checkpoint") from None
    except (hub_errors.RepositoryNotFoundError, hub_errors.HFValidationError):
        raise SettingsError("the hub has no such checkpoint, or it is not public") from None
    except (hub_errors.HfHubHTTPError, httpx.HTTPError, hub_errors.LocalEntryNotFoundError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        said = f"it answered {status}" if status else "it cannot be reached, or broke off"
        raise SettingsError(f"the hub did not serve the checkpoint: {said}; try again to go on") from None
    except OSError:
        raise SettingsError(
            "the checkpoint cannot be written: is there room, and may we write there?"
        ) from None
