"""The driver of the backend: a machine with one CPU device."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

base: Any = import_module("triton.backends.driver")
compiler: Any = import_module("triton.backends.compiler")


class StubDriver(base.DriverBase):
    """Answers what is asked before a kernel is interpreted."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return compiler.GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cpu

    def map_python_to_cpp_type(self, ty: Any) -> Any:
        return ty

    def get_benchmarker(self) -> Any:
        return None

    def __getattr__(self, name: str) -> Any:  # the base class would set up a launcher
        raise AttributeError(name)


for _name in tuple(StubDriver.__abstractmethods__):
    setattr(StubDriver, _name, lambda self, *args, **kwargs: None)
StubDriver.__abstractmethods__ = frozenset()
