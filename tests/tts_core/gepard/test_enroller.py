from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.gepard.cases import random_codes
from tts_core.errors import BadRequest, EngineCrashed, EngineError, EngineTimeout
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.enroller import MAX_WAITING, Enroller
from tts_core.gepard.speaker import load_speaker


@pytest.fixture
async def enroller(directory: Path) -> AsyncIterator[Enroller]:
    made = Enroller(directory)
    yield made
    await made.close()


async def test_prefixes_are_those_of_the_compressor(enroller: Enroller, checkpoint: Checkpoint) -> None:
    speaker = load_speaker(checkpoint)
    codes = random_codes(80)
    assert enroller.pid is None
    null, made = await asyncio.gather(enroller.null_prefix(), enroller.prefix(codes))
    assert np.array_equal(null, speaker.null_prefix)
    assert np.array_equal(made, speaker.prefix(codes))
    pid = enroller.pid
    with pytest.raises(BadRequest):
        await enroller.prefix(random_codes(1300))
    with pytest.raises(BadRequest):
        await enroller.prefix(codes[:0])
    with pytest.raises(EngineError):
        await enroller.prefix(codes + 200)
    assert np.array_equal(await enroller.prefix(codes), made)
    assert enroller.pid == pid  # a bad reference is no reason for another process


async def test_a_process_that_dies_fails_its_question_and_the_next_gets_another(enroller: Enroller) -> None:
    first = await enroller.null_prefix()
    pid = enroller.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        await enroller.prefix(random_codes(9))
    assert np.array_equal(await enroller.null_prefix(), first)
    assert enroller.pid != pid


def there(enroller: Enroller) -> bool:
    return enroller.pid is not None


async def test_it_ends_when_nobody_asks_and_a_question_given_up_ends_it(directory: Path) -> None:
    enroller = Enroller(directory, idle_s=0.0)
    await enroller.null_prefix()
    while there(enroller):
        await asyncio.sleep(0)
    asking = asyncio.ensure_future(enroller.null_prefix())
    while not there(enroller):
        await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not there(enroller)
    await enroller.close()


async def test_no_answer_in_time(directory: Path) -> None:
    enroller = Enroller(directory, answer_s=0.0)
    with pytest.raises(EngineTimeout):
        await enroller.null_prefix()
    await enroller.close()


async def test_closing_fails_who_waits(directory: Path) -> None:
    enroller = Enroller(directory)
    asking = [asyncio.ensure_future(enroller.null_prefix()) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="too many"):
        await enroller.null_prefix()
    await enroller.close()
    for future in asking:
        with pytest.raises(EngineError):
            await future
    with pytest.raises(EngineError):
        await enroller.null_prefix()
    await enroller.close()


async def test_a_directory_that_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    enroller = Enroller(tmp_path)
    with pytest.raises(EngineError):
        await enroller.null_prefix()
    await enroller.close()
