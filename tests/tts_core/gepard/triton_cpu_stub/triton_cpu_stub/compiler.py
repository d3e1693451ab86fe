"""The compiler of the backend, which is never asked to compile."""

from __future__ import annotations

from importlib import import_module
from typing import Any

base: Any = import_module("triton.backends.compiler")


class StubBackend(base.BaseBackend):
    """Exists."""


for _name in tuple(StubBackend.__abstractmethods__):
    setattr(StubBackend, _name, lambda self, *args, **kwargs: None)
StubBackend.__abstractmethods__ = frozenset()
