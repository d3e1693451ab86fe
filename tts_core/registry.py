"""Finds engines by name.

Engines register under the entry point group ``voxwire.engines``, so that a third party can add one in its own
package.
The built-in ones are also found without package metadata, as in a checkout that was never installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from .engine import Engine
from .errors import SettingsError

GROUP = "voxwire.engines"

BUILT_IN = {
    "embedded": "tts_core.embedded:EmbeddedEngine",
    "gepard": "tts_core.gepard.engine:GepardEngine",
    "gepard-torch": "tts_core.gepard.engine:GepardTorchEngine",
    "piper": "tts_core.piper:PiperEngine",
}
"""Engines of this package: name -> ``module:attribute``."""


def engine_names() -> tuple[str, ...]:
    """Names that ``load_engine`` accepts, sorted."""
    return tuple(sorted({*BUILT_IN, *(e.name for e in entry_points(group=GROUP))}))


def load_engine(name: str, **options: Any) -> Engine:
    """Make the engine called ``name`` with its options; it is not started.

    A registered engine wins over a built-in one of the same name.

    Raises:
        SettingsError: no such engine, it cannot be imported here, or it does not take these options.

    """
    try:
        factory = _find(name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"the engine '{name}' cannot be loaded: is its extra installed?") from error
    try:
        return factory(**options)
    except TypeError as error:
        raise SettingsError(f"the engine '{name}' does not take these options: {sorted(options)}") from error


def _find(name: str) -> Callable[..., Engine]:
    found: list[EntryPoint] = [e for e in entry_points(group=GROUP) if e.name == name]
    if found:
        return cast("Callable[..., Engine]", found[0].load())
    target = BUILT_IN.get(name)
    if target is None:
        raise SettingsError(f"no engine is called '{name}'; there are: {', '.join(engine_names())}")
    module, _, attribute = target.partition(":")
    return cast("Callable[..., Engine]", getattr(import_module(module), attribute))
