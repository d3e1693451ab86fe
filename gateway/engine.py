"""The engine that the settings name. Imports little, so that its workers start before the rest is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts_core.registry import load_engine

if TYPE_CHECKING:
    from gateway.settings import Settings
    from tts_core.engine import Engine


def make_engine(settings: Settings) -> Engine:
    """Make it; it is not started. Raises SettingsError if there is none of that name."""
    options = {"workers": settings.workers} if settings.workers else {}
    return load_engine(settings.engine, **options)
