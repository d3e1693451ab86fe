"""The engine that the settings name. Imports little, so that its workers start before the rest is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tts_core.errors import SettingsError
from tts_core.registry import load_engine

GEPARD = frozenset({"gepard", "gepard-torch"})

if TYPE_CHECKING:
    from gateway.settings import Settings
    from tts_core.engine import Engine


WARM_DEADLINE_S = 120.0
"""An engine that is not up after this long does not come up."""

GEPARD_DEADLINE_S = 900.0
"""The same of one that reads gigabytes, and compiles a model at its first start."""


def make_engine(settings: Settings) -> Engine:
    """Make it; it is not started.

    Raises SettingsError if there is none of that name, or it cannot be made of what the settings name.
    """
    return load_engine(settings.engine, **_options(settings))


def warm_deadline(settings: Settings) -> float:
    """Seconds that the engine may take to start."""
    return GEPARD_DEADLINE_S if settings.engine in GEPARD else WARM_DEADLINE_S


def _options(settings: Settings) -> dict[str, Any]:
    if settings.engine not in GEPARD:
        options: dict[str, Any] = {"workers": settings.workers} if settings.workers else {}
        if settings.engine == "piper":
            options |= {"voices": settings.piper_voices, "python": settings.piper_python}
        return options
    options = {
        "checkpoint": settings.gepard_checkpoint,
        "codec": settings.gepard_codec,
        "dtype": "" if settings.gepard_dtype == "auto" else settings.gepard_dtype,
        "streams": settings.gepard_streams,
        "codec_backend": settings.gepard_codec_backend,
        "codec_processes": settings.gepard_codec_processes,
        "codec_device": settings.gepard_codec_device,
        "guard": settings.gepard_guard,
        "continuity": settings.gepard_continuity,
        "trim": settings.gepard_trim,
        "temperature": settings.gepard_temperature,
        "top_k": settings.gepard_top_k,
        "repetition_penalty": settings.gepard_repetition_penalty,
        "cfg_scale": settings.gepard_guidance,
        "cfg_frames": settings.gepard_guidance_frames or None,
        "cfg_max_text_tokens": settings.gepard_guidance_tokens or None,
    }
    if settings.engine == "gepard":
        options["compiled"] = settings.gepard_compile
    return options


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
