"""The real model, loaded once in this process, and a running engine with two workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from tts_core.embedded import EmbeddedEngine
from tts_core.embedded.model import Acoustics
from tts_core.embedded.phones import Pronouncer, vocabulary
from tts_core.embedded.speaker import Speaker
from tts_core.embedded.voices import assets, available, read_verified


@pytest.fixture(scope="session")
def model_bytes() -> bytes:
    voice, path = available("")[0]
    return read_verified(voice.id, path, voice.sha256)


@pytest.fixture(scope="session")
def acoustics(model_bytes: bytes) -> Acoustics:
    return Acoustics(model_bytes)


@pytest.fixture(scope="session")
def pronouncer() -> Pronouncer:
    return Pronouncer(assets())


@pytest.fixture(scope="session")
def ids() -> Mapping[str, int]:
    return vocabulary(assets())


@pytest.fixture(scope="session")
def speaker(acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int]) -> Speaker:
    return Speaker("heart", acoustics, pronouncer, ids)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = EmbeddedEngine(workers=2)
    await made.start()
    yield made
    await made.close()
