"""Pinned Python environments, built once per machine and shared by every checkout.

Standard library only: this runs before anything is installed.

    python deploy/envs.py ensure NAME...   build what is missing, print each interpreter's path
    python deploy/envs.py link base|test   point this checkout's .venv at that environment

An environment is the exact content of ``deploy/requirements/NAME.txt`` (a complete lock with hashes). It lives in
``$VOXWIRE_CACHE/envs/NAME-HASH`` (default ``~/.cache/voxwire``), where HASH covers the lock and the interpreter, so
a changed lock is a new folder and an old checkout keeps its own. It is built in a temporary folder beside it and
renamed when complete; a lock file keeps two builders from doing the same work.

``.venv`` is thin: an empty virtual environment whose one ``.pth`` file names the shared packages and this checkout.
The project is installed editable in it (metadata, entry points and scripts), without the network and in well under
a second.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "deploy" / "requirements"
BUILD_DEADLINE_S = 900.0
"""How long one build, waiting for another builder included, may take before it counts as failed."""

_MARK = "voxwire-env"
"""File in a ``.venv`` of ours that holds the folder it points to and the environment's name."""


class EnvironmentError_(RuntimeError):
    """An environment could not be made; the message says which, why, and what to do."""


def cache_root() -> Path:
    """Folder for everything that is kept between checkouts: ``$VOXWIRE_CACHE`` or ``~/.cache/voxwire``."""
    given = os.environ.get("VOXWIRE_CACHE")
    return Path(given).expanduser().resolve() if given else Path.home() / ".cache" / "voxwire"


def names() -> list[str]:
    """Every environment that has a lock, sorted."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def env_path(name: str) -> Path:
    """Where environment ``name`` lives once built. Raises EnvironmentError_ for a name without a lock."""
    lock = REQUIREMENTS / f"{name}.txt"
    if not lock.is_file():
        raise EnvironmentError_(f"no environment is called {name!r}; there are: {', '.join(names())}")
    digest = hashlib.sha256(lock.read_bytes())
    digest.update(f"{sys.implementation.cache_tag} {sys.platform} {platform.machine()}".encode())
    return cache_root() / "envs" / f"{name}-{digest.hexdigest()[:16]}"


def ensure(name: str, *, deadline_s: float = BUILD_DEADLINE_S) -> Path:
    """Interpreter of environment ``name``, built first when it is missing.

    Raises EnvironmentError_ when the build fails or takes longer than ``deadline_s`` seconds. A build that is
    killed leaves nothing that a later call would take for complete.
    """
    home = env_path(name)
    python = home / "bin" / "python"
    if os.access(python, os.X_OK):
        return python
    home.parent.mkdir(parents=True, exist_ok=True)
    give_up = time.monotonic() + deadline_s
    with _exclusive(home.parent / f"{home.name}.lock", give_up):
        if not os.access(python, os.X_OK):
            _build(name, home, give_up)
    return python


@contextlib.contextmanager
def _exclusive(path: Path, give_up: float) -> Iterator[None]:
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise EnvironmentError_(f"another build holds {path}; gave up waiting for it") from None
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
        # The lock is complete, so nothing is resolved; no source build may run, so what is hashed is what runs.
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
    inherited = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET"}}
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
        raise EnvironmentError_(f"the {name} environment was not built in time:\n{tail}") from late
    if must_succeed and done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-4000:]
        hint = f"It needs Python with venv and pip and a reachable package index; this is {sys.executable}."
        raise EnvironmentError_(f"the {name} environment could not be built:\n{tail}\n{hint}")


def _rewrite(path: Path, old: str, new: str) -> None:
    """Replace ``old`` by ``new`` in a text file; links and binaries stay as they are."""
    if path.is_symlink() or not path.is_file():
        return
    content = path.read_bytes()
    if b"\0" not in content and old.encode() in content:
        path.write_bytes(content.replace(old.encode(), new.encode()))


def link(name: str, *, root: Path = ROOT) -> Path:
    """Point ``root/.venv`` at environment ``name`` (built when missing) and return its interpreter.

    ``base`` on a ``.venv`` that is already linked for tests keeps the larger one. A ``.venv`` that is not ours is
    moved aside to ``.venv-before``, never deleted. The swap is two renames, so a reader sees the old or the new.
    """
    target = root / ".venv"
    current = _linked(target)
    if name == "base" and current == "test":
        name = "test"
    shared = ensure(name).parent.parent
    fresh = Path(tempfile.mkdtemp(prefix=".venv-", dir=root))
    try:
        _fill(fresh, target, shared, name, root)
        aside = None
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            aside = root / (".venv-before" if current is None else f".venv-old-{os.getpid()}")
            if aside.exists():
                shutil.rmtree(aside)
            target.rename(aside)
            if current is None:
                print(f"The .venv that was here is now {aside.name}; delete it when you need it no more.")
        fresh.chmod(0o755)
        fresh.rename(target)
        if aside is not None and current is not None:
            shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target / "bin" / "python"


def _linked(target: Path) -> str | None:
    """Name of the environment that ``target`` points to, None when it is no ``.venv`` of ours."""
    try:
        return (target / _MARK).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def _fill(fresh: Path, target: Path, shared: Path, name: str, root: Path) -> None:
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
        content = script.read_bytes()
        if content.startswith(b"#!") and b"\0" not in content:
            twin.write_bytes(content.replace(str(shared).encode(), str(target).encode()))
            twin.chmod(0o755)
        else:
            twin.symlink_to(script)
    _install_editable(packages, fresh / "bin", target, root)
    for text in [*(fresh / "bin").iterdir(), fresh / "pyvenv.cfg"]:
        _rewrite(text, str(fresh), str(target))
    (fresh / _MARK).write_text(f"{name}\n{shared}\n", encoding="utf-8")


def _install_editable(packages: Path, scripts: Path, target: Path, root: Path) -> None:
    """Write the metadata, entry points and scripts that an editable install of ``root`` has (PEP 376, PEP 610)."""
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
        script = scripts / command
        script.write_text(
            f"#!{target}/bin/python\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n",
            encoding="utf-8",
        )
        script.chmod(0o755)
    record = [str(path.relative_to(packages)) for path in info.iterdir()] + [f"{info.name}/RECORD", "_voxwire.pth"]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in record), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Command line; 0 when done, 1 when an environment failed, 2 for a wrong call."""
    match arguments:
        case ["ensure", *wanted] if wanted:
            action = [lambda name=name: ensure(name) for name in wanted]
        case ["link", ("base" | "test") as name]:
            action = [lambda: link(name)]
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    try:
        for step in action:
            print(step())
    except EnvironmentError_ as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):
        sys.exit(f"Voxwire needs Python 3.11 or newer; this is {sys.version.split()[0]}. Set PYTHON=python3.11 or so.")
    sys.exit(main(sys.argv[1:]))
