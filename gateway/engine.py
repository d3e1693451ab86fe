"""The engine that the settings name. Imports little, so that its workers start before the rest is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts_core.errors import SettingsError
from tts_core.registry import load_engine

if TYPE_CHECKING:
    from gateway.settings import Settings
    from tts_core.engine import Engine


def make_engine(settings: Settings) -> Engine:
    """Make it; it is not started. Raises SettingsError if there is none of that name."""
    options = {"workers": settings.workers} if settings.workers else {}
    return load_engine(settings.engine, **options)


def check_voices(settings: Settings, engine: Engine) -> None:
    """Raise SettingsError, with every fault, if a setting names a voice that ``engine`` does not have."""
    known = [voice.id for voice in engine.info.voices]
    faults = []
    if settings.default_voice and settings.default_voice not in {*known, *settings.voice_aliases}:
        faults.append(f"default_voice = {settings.default_voice!r} is not a voice")
    faults += [
        f"voice_aliases: {name}={voice} names no voice"
        for name, voice in settings.voice_aliases.items()
        if voice not in {*known, "default"}
    ]
    if faults:
        raise SettingsError("\n".join(f"{fault}; accepted: {', '.join(known)}" for fault in faults))
