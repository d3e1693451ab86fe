"""One small checkpoint for all tests of this folder, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.tiny import make_tiny

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint; not to be changed."""
    return make_tiny(tmp_path_factory.mktemp("gepard") / "tiny")


@pytest.fixture(scope="session")
def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint.open(directory)


@pytest.fixture(scope="session")
def model(checkpoint: Checkpoint) -> ReferenceModel:
    return ReferenceModel.load(checkpoint)
