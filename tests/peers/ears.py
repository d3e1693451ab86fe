"""What it takes to check spoken consents, on this machine: a Whisper model, its interpreter, and readers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from deploy.envs import cache_root
from gateway.services import Services
from tests import envs
from tests.peers.clips import wav
from tests.peers.speakers import Clip, heart, joe, model_file, over_the_phone

SCRIPT = Path(__file__).with_name("whisper.py")


@cache
def whisper(name: str = "base") -> Path:
    """The folder of a model, made once for this machine."""
    folder = cache_root() / f"whisper-{name}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_root()) as temporary:
            made = Path(temporary) / "made"
            subprocess.run([python(), SCRIPT, name, made], check=True, timeout=120)
            if not folder.exists():
                os.rename(made, folder)
    return folder


def python() -> Path:
    """An interpreter with faster-whisper."""
    return envs.ensure("asr")


def configured(**more: Any) -> dict[str, Any]:
    """Settings of a gateway that can check spoken consents."""
    return {
        "consent_asr": whisper(), "consent_python": python(), "speaker_model": model_file()
    } | more  # fmt: skip


def patient(services: Services) -> None:
    """Let a gateway listen for longer than in production: a machine that runs tests is busy."""
    assert services.verifier is not None
    services.verifier.recogniser.deadline = 120.0


def read_by(reader: str, text: str, *, phone: bool = False) -> bytes:
    """``text`` read by ``heart`` or ``joe``, as a WAV file."""
    (said,) = {"heart": heart, "joe": joe}[reader]((text,))
    return _file(over_the_phone(said) if phone else said)


def _file(said: Clip) -> bytes:
    pcm, rate = said
    return wav(pcm, rate)
