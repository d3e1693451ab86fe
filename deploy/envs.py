"""Pinned Python environments, built once per machine and shared by every checkout.

Standard library only: this runs before anything is installed.

    python deploy/envs.py ensure NAME...   build what is missing, print each interpreter's path
    python deploy/envs.py link base|test   point this checkout's .venv at that environment (or compressed)
    python deploy/envs.py link gepard      the same for .venv-gepard, with the model's stack
    python deploy/envs.py size NAME        build when missing, print what it takes on disk

An environment is the exact content of ``deploy/requirements/NAME.txt`` (a complete lock with hashes). It
lives in ``$VOXWIRE_CACHE/envs/NAME-HASH`` (default ``~/.cache/voxwire``), where HASH covers the pins and the
interpreter, so a changed lock is a new folder and an old checkout keeps its own. It is built in a temporary
folder beside it and renamed when complete; a lock file keeps two builders from doing the same work. A build
removes those of its name that no checkout is linked to and nobody asked for in a month.

``.venv`` and ``.venv-gepard`` are thin: an empty virtual environment whose one ``.pth`` file names the shared
packages and this checkout. The project is installed editable in it (metadata, entry points and scripts),
without the network and in well under a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "deploy" / "requirements"
BUILD_DEADLINE_S = 1800.0
"""How long one build, waiting for another builder included, may take before it counts as failed."""
UNUSED_S = 30 * 86400.0
"""An environment of another lock is removed when it was not asked for in so many seconds."""
TARGETS = {"base": ".venv", "compressed": ".venv", "test": ".venv", "gepard": ".venv-gepard"}
"""What can be linked, and the folder of the checkout that it then is."""

_MARK = "voxwire-env"
"""File in a ``.venv`` of ours: what it was made from (environment, its folder, this checkout, digest)."""
_LINKS = "voxwire-links"
"""File in a shared environment: each ``.venv`` that was pointed at it, one a line."""


class EnvError(RuntimeError):
    """An environment could not be made; the message says which, why, and what to do."""


def cache_root() -> Path:
    """Folder for everything that is kept between checkouts: ``$VOXWIRE_CACHE`` or ``~/.cache/voxwire``."""
    given = os.environ.get("VOXWIRE_CACHE")
    return Path(given).expanduser().resolve() if given else Path.home() / ".cache" / "voxwire"


def names() -> list[str]:
    """Every environment that has a lock, sorted."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def env_path(name: str) -> Path:
    """Where environment ``name`` lives once built. Raises EnvError for a name without a lock."""
    lock = REQUIREMENTS / f"{name}.txt"
    if not lock.is_file():
        raise EnvError(f"no environment is called {name!r}; there are: {', '.join(names())}")
    pins = [
        line for line in lock.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    ]
    digest = hashlib.sha256("\n".join(pins).encode())
    digest.update(f"{sys.implementation.cache_tag} {sys.platform} {platform.machine()}".encode())
    return cache_root() / "envs" / f"{name}-{digest.hexdigest()[:16]}"


def ensure(name: str, *, deadline_s: float = BUILD_DEADLINE_S) -> Path:
    """Interpreter of environment ``name``, built first when it is missing.

    Raises EnvError when the build fails or takes longer than ``deadline_s`` seconds. A build that is killed
    leaves nothing that a later call would take for complete.
    """
    home = env_path(name)
    python = home / "bin" / "python"
    if os.access(python, os.X_OK):
        with contextlib.suppress(OSError):  # of another user
            os.utime(home)
        return python
    give_up = time.monotonic() + deadline_s
    with _exclusive(home.parent / f"{home.name}.lock", give_up):
        if not os.access(python, os.X_OK):
            _build(name, home, give_up)
            _prune(name, home)
    return python


def _prune(name: str, keep: Path) -> None:
    """Remove the environments of other locks of ``name`` that nobody uses (``UNUSED_S``) or is linked to."""
    for home in keep.parent.glob(f"{name}-{'[0-9a-f]' * 16}"):
        if home == keep or time.time() - home.stat().st_mtime < UNUSED_S or _is_linked(name, home):
            continue
        with contextlib.suppress(EnvError), _exclusive(keep.parent / f"{home.name}.lock", 0.0):
            aside = keep.parent / f".{home.name}-unused"  # at once out of everyone's sight
            home.rename(aside)
            shutil.rmtree(aside)
            print(f"Removed the unused environment {home.name}.", file=sys.stderr, flush=True)


def _is_linked(name: str, home: Path) -> bool:
    try:
        links = (home / _LINKS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return name in TARGETS  # made before links were noted: it may well be
    return any(_linked(Path(link))[1:2] == [str(home)] for link in links)


@contextlib.contextmanager
def _exclusive(path: Path, give_up: float) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise EnvError(f"another build holds {path}; gave up waiting for it") from None
                time.sleep(0.2)
        yield


def _build(name: str, home: Path, give_up: float) -> None:
    for leftover in home.parent.glob(f".{home.name}-*"):  # of a builder that was killed: we hold its lock now
        shutil.rmtree(leftover, ignore_errors=True)
    if home.exists():  # its interpreter is gone, else we would not be here
        shutil.rmtree(home)
    print(f"Building the {name} environment (once for this machine) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    temporary = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        _run([sys.executable, "-m", "venv", str(temporary)], name, give_up)
        python = str(temporary / "bin" / "python")
        # The lock is complete, so nothing is resolved; wheels only, so that what is hashed is what runs.
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        pip += ["--no-compile", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        _run([*pip, "--requirement", str(REQUIREMENTS / f"{name}.txt")], name, give_up)
        compile_all = [python, "-m", "compileall", "-q", "-j", "0", "-s", str(temporary), "-p", str(home)]
        # Some packages ship templates that are not valid Python; pip ignores those too.
        _run([*compile_all, str(temporary / "lib")], name, give_up, must_succeed=False)
        for script in (temporary / "bin").iterdir():
            _rewrite(script, str(temporary), str(home))
        _rewrite(temporary / "pyvenv.cfg", str(temporary), str(home))
        temporary.chmod(0o755)
        temporary.rename(home)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print(f"Built the {name} environment in {time.monotonic() - began:.0f} s.", file=sys.stderr, flush=True)


def _run(command: list[str], name: str, give_up: float, *, must_succeed: bool = True) -> None:
    """Run a build step; its output is shown only when it fails."""
    # A surrounding environment must not leak in: neither its packages nor its idea of a target folder.
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET"}
    }
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=max(give_up - time.monotonic(), 1.0),
            env=inherited,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        tail = (late.stdout or b"").decode(errors="replace")[-2000:]
        raise EnvError(f"the {name} environment was not built in time:\n{tail}") from late
    if must_succeed and done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-4000:]
        hint = f"It needs Python with venv and pip and a reachable package index; this is {sys.executable}."
        if "+cpu" in (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8"):
            hint += " Its torch: for CPython 3.11 on x86-64, a CPU build that pip must be able to find."
        raise EnvError(f"the {name} environment could not be built:\n{tail}\n{hint}")


def _rewrite(path: Path, old: str, new: str) -> None:
    """Replace ``old`` by ``new`` in a text file; links and binaries stay as they are."""
    if path.is_symlink() or not path.is_file():
        return
    content = path.read_bytes()
    if b"\0" not in content and old.encode() in content:
        path.write_bytes(content.replace(old.encode(), new.encode()))


def link(name: str, *, root: Path = ROOT, deadline_s: float = BUILD_DEADLINE_S) -> Path:
    """Point the folder that environment ``name`` has in ``root`` (``TARGETS``) at it; return its interpreter.

    The environment is built when it is missing. ``base`` on a ``.venv`` that is already linked for tests
    keeps the larger one. A ``.venv`` that is not ours is moved aside to ``.venv-before``, never deleted. The
    new one is complete before it takes the old one's place.
    """
    target = root / TARGETS[name]
    deadline = time.monotonic() + deadline_s
    here = hashlib.sha256(str(target).encode()).hexdigest()[:16]
    with _exclusive(cache_root() / "envs" / f"link-{here}.lock", deadline):
        was = _linked(target)
        if name == "base" and was[:1] == ["test"]:
            name = "test"
        shared = ensure(name, deadline_s=deadline_s).parent.parent
        made_by = (root / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
        mark = [name, str(shared), str(root), hashlib.sha256(made_by).hexdigest()]
        if was == mark:
            (target / _MARK).touch()
        else:
            _relink(target, shared, root, mark, ours=bool(was))
            with contextlib.suppress(OSError), (shared / _LINKS).open("a", encoding="utf-8") as links:
                links.write(f"{target}\n")
    return target / "bin" / "python"


def _relink(target: Path, shared: Path, root: Path, mark: list[str], *, ours: bool) -> None:
    """Make ``target`` anew; what was there is kept aside unless it is ours."""
    fresh = Path(tempfile.mkdtemp(prefix=".venv-", dir=root))
    aside = root / (f".venv-old-{os.getpid()}" if ours else f"{target.name}-before")
    try:
        _fill(fresh, target, shared, root)
        (fresh / _MARK).write_text("\n".join(mark) + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            shutil.rmtree(aside, ignore_errors=True)
            target.rename(aside)
            if not ours:
                note = f"What was {target.name} is now {aside.name}; delete it when nothing uses it."
                print(note, file=sys.stderr)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if ours:
            shutil.rmtree(aside, ignore_errors=True)


def _linked(target: Path) -> list[str]:
    """What ``target`` was made from; empty when it is no ``.venv`` of ours."""
    try:
        return (target / _MARK).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _fill(fresh: Path, target: Path, shared: Path, root: Path) -> None:
    """Make the thin environment in ``fresh`` so that it is right once renamed to ``target``."""
    venv.EnvBuilder(symlinks=True, with_pip=False, clear=True).create(fresh)
    (packages,) = fresh.glob("lib/python*/site-packages")
    (shared_packages,) = shared.glob("lib/python*/site-packages")
    # addsitedir, not a plain path, so that .pth files of the shared packages are honoured as well.
    (packages / "_voxwire.pth").write_text(
        f"import site; site.addsitedir({str(shared_packages)!r})\n{root}\n", encoding="utf-8"
    )
    for script in (shared / "bin").iterdir():
        twin = fresh / "bin" / script.name
        if twin.exists() or script.name.lower().startswith("activate"):
            continue
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!" + str(shared).encode()):
            _write_script(twin, target, rest.decode())
        else:
            twin.symlink_to(script)
    _install_editable(packages, fresh / "bin", target, root)
    for text in [*(fresh / "bin").iterdir(), fresh / "pyvenv.cfg"]:
        _rewrite(text, str(fresh), str(target))


def _install_editable(packages: Path, scripts: Path, target: Path, root: Path) -> None:
    """Write what an editable install of ``root`` has: metadata, entry points, scripts (PEP 376, PEP 610)."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups: dict[str, dict[str, str]] = dict(project.get("entry-points", {}))
    groups["console_scripts"] = project.get("scripts", {})
    info = packages / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    metadata = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    metadata += [f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in groups.items()
    ]
    files = {
        "METADATA": "\n".join(metadata) + "\n",
        "entry_points.txt": "\n".join(sections),
        "INSTALLER": "voxwire\n",
        "direct_url.json": f'{{"url": "{root.as_uri()}", "dir_info": {{"editable": true}}}}\n',
    }
    for file, content in files.items():
        (info / file).write_text(content, encoding="utf-8")
    for command, entry in groups["console_scripts"].items():
        module, _, function = entry.partition(":")
        # Guarded: a process that multiprocessing spawns reads the script again.
        code = (
            f"import sys\n\nfrom {module} import {function}\n\n"
            f'if __name__ == "__main__":\n    sys.exit({function}())\n'
        )
        _write_script(scripts / command, target, code)
    record = [str(path.relative_to(packages)) for path in info.iterdir()]
    record += [f"{info.name}/RECORD", "_voxwire.pth"]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in record), encoding="utf-8")


def _write_script(path: Path, target: Path, code: str) -> None:
    """Write a Python script that runs in ``target``; by sh, as a #! line holds neither blanks nor much."""
    start = f"""#!/bin/sh\n'''exec' '{target}/bin/python' "$0" "$@"\n' '''\n"""
    path.write_text(start + code, encoding="utf-8")
    path.chmod(0o755)


def size(name: str) -> int:
    """Bytes that environment ``name`` takes on disk, interpreter links, pip and compiled modules included."""
    home = ensure(name).parent.parent
    return sum(path.lstat().st_blocks * 512 for path in home.rglob("*"))


def main(arguments: list[str]) -> int:
    """Command line; 0 when done, 1 when an environment failed, 2 for a wrong call."""
    try:
        match arguments:
            case ["ensure", *wanted] if wanted:
                with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # pip keeps one core busy
                    for python in pool.map(ensure, wanted):
                        print(python)
            case ["link", name] if name in TARGETS:
                link(name)
            case ["link", name]:
                raise EnvError(f"there is no environment {name!r} to run in; there are: {', '.join(TARGETS)}")
            case ["size", name]:
                print(f"{name}: {size(name) / 1e6:.0f} MB")
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except EnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
