"""Piper and its voice: in worker processes of their own environment, and here for what is inside."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.peers.piper_engine import RATE, VOICE, bundled, python
from tts_core.piper import PiperEngine
from tts_core.piper.speaker import Model


def add_voice(folder: Path, name: str, **changes: Any) -> Path:
    """The voice "joe" under another name, with another description."""
    model = folder / f"{name}.onnx"
    model.symlink_to(bundled() / f"{VOICE}.onnx")
    config = json.loads((bundled() / f"{VOICE}.onnx.json").read_text())
    model.with_name(model.name + ".json").write_text(json.dumps({**config, **changes}))
    return model


@pytest.fixture(scope="session")
def piper_here() -> Iterator[None]:
    """Piper can be imported here: its environment is of the same Python; our packages come first."""
    (site,) = python().parents[1].glob("lib/python3*/site-packages")
    sys.path.append(str(site))
    yield
    sys.path.remove(str(site))


@pytest.fixture(scope="session")
def model(piper_here: None) -> Model:
    return Model(bundled() / f"{VOICE}.onnx", RATE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[PiperEngine]:
    made = PiperEngine(bundled(), python=python(), workers=2)
    await made.start()
    yield made
    await made.close()
