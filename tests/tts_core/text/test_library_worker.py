"""The worker's line protocol, over real pipes."""

from __future__ import annotations

import json
import subprocess
import sys

from tts_core.text import library_worker


def test_lines_in_lines_out() -> None:
    lines = [json.dumps(t) for t in ("5 kg", "₺20", "plain words")]
    done = subprocess.run(
        [sys.executable, "-P", library_worker.__file__],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(x) for x in done.stdout.splitlines()] == [
        "ready",
        "five kilograms",
        None,
        "plain words",
    ]
