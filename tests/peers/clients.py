"""Runs an unmodified client in its own environment against a gateway, and listens to what it got."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from telephony.dsp.level import rms_dbfs
from telephony.dsp.pcm import decode
from tests import envs
from tests.peers.process import GatewayProcess

PEERS = Path(__file__).resolve().parent
SENTENCES = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
"""What the clients' scripts have spoken."""
CLIENT_S = 120


def drive(gateway: GatewayProcess, env: str, script: str, *args: str) -> dict[str, Any]:
    """Run ``script`` of this folder in environment ``env``; the JSON object that it prints last."""
    done = subprocess.run(
        [str(envs.ensure(env)), "-P", str(PEERS / script), gateway.url, *args],
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def audible(audio: str, encoding: str = "pcm_s16le", rate: int = 22050) -> float:
    """Seconds of audio (base64), after checking that it is speech and not silence."""
    pcm = decode(base64.b64decode(audio), encoding)
    assert -35 < rms_dbfs(pcm) < -10
    assert np.abs(pcm).max() < 1.0
    return len(pcm) / rate
