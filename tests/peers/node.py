"""The official Node.js SDKs in an environment of their own, pinned by ``deploy/requirements/node``.

``folder = ensure()`` gives a folder with them in ``node_modules``, built once per machine and shared by every
checkout (``deploy/envs.py`` says where). None of their install scripts is run. Something missing is an error,
never a skip.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from deploy import envs

PINS = envs.REQUIREMENTS / "node"
SCRIPTS = Path(__file__).resolve().parent
BUILD_S = 600.0
RUN_S = 120.0


def ensure() -> Path:
    """The folder; built where it is missing. Raises EnvError that says why it could not be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise envs.EnvError("the tests need Node.js 18 or newer, with npm")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    pins = [PINS / "package.json", PINS / "package-lock.json"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins) + version.encode())
    final = envs.cache_root() / "envs" / f"node-{digest.hexdigest()[:16]}"
    final.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{final}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.is_dir():
            return final
        made = Path(tempfile.mkdtemp(prefix="node-", dir=final.parent))
        try:
            for path in pins:
                shutil.copy(path, made)
            done = subprocess.run(
                [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=made,
                capture_output=True,
                text=True,
                timeout=BUILD_S,
                check=False,
            )
            if done.returncode:
                raise envs.EnvError(f"npm could not install the SDKs: {done.stderr[-2000:]}")
            made.rename(final)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return final


def run(script: str, *args: str, authority: Path) -> dict[str, Any]:
    """Run a script of this folder with the SDKs; the JSON object that it prints last.

    ``authority`` is the certificate authority that it trusts besides the usual ones.
    """
    folder = ensure()
    done = subprocess.run(
        ["node", str(SCRIPTS / script), str(folder), *args],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(authority)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    print(ensure())
