"""The engine over the real plain loop and the real codec, both tiny; and what it makes of its settings."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.envs import ROOT
from tts_core.engine import Engine, SpeechChunk, SpeechRequest
from tts_core.errors import EngineCrashed, EngineError, SettingsError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.engine import GepardEngine, GepardTorchEngine, codec_digest, find_codec
from tts_core.gepard.tiny import make_tiny
from tts_core.nanocodec import fsq
from tts_core.nanocodec.convert import ensure
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.tiny import make_tiny_nemo
from tts_core.registry import load_engine

TEXT = "Hello, thank you for calling."
REQUEST = SpeechRequest("s/c/0", TEXT, "default", seed=1)


on_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="session")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_nemo(tmp_path_factory.mktemp("codec") / "codec.nemo")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(directory: Path, codec: Path) -> AsyncIterator[GepardTorchEngine]:
    made = load_engine("gepard-torch", checkpoint=str(directory), codec=str(codec), codec_backend="torch")
    assert isinstance(made, GepardTorchEngine)
    await made.start()
    yield made
    await made.close()


LONG = " ".join([TEXT] * 8)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def long(engine: GepardTorchEngine) -> SpeechRequest:
    """A request that speaks for some seconds: the tiny model stops when it likes, but a seed is a seed."""
    for seed in range(100):
        request = replace(REQUEST, text=LONG, seed=seed)
        async for chunk in engine.synthesize(request):
            if chunk.start_sample > 60 * fsq.SAMPLES_PER_FRAME:
                return request
    raise AssertionError("the tiny model says nothing long")


async def say(engine: Engine, **fields: Any) -> list[SpeechChunk]:
    return [chunk async for chunk in engine.synthesize(replace(REQUEST, **fields))]


def pcm(chunks: list[SpeechChunk]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.concatenate([chunk.pcm for chunk in chunks])


@on_loop
async def test_a_seed_says_the_same_and_frames_come_whole(engine: GepardTorchEngine) -> None:
    first, again, other = await say(engine), await say(engine), await say(engine, seed=2)
    assert len(pcm(first)) % fsq.SAMPLES_PER_FRAME == 0
    assert len(pcm(first)) == len(pcm(again)) > 0
    assert np.allclose(pcm(first), pcm(again), atol=1e-6)
    assert len(pcm(other)) != len(pcm(first)) or not np.allclose(pcm(other), pcm(first), atol=1e-3)
    assert [c.last for c in first] == [False] * (len(first) - 1) + [True]
    words = [TEXT[w.text_start : w.text_end] for c in first for w in c.words]
    assert words == TEXT.split()


@on_loop
async def test_the_sound_is_that_of_the_models_frames(engine: GepardTorchEngine, codec: Path) -> None:
    made = pcm(await say(engine))
    frames: list[fsq.Codes] = []
    tokenizer = engine._tokenizer
    assert tokenizer is not None
    prefix = engine._prefixes.of("default", None, "")
    asked = engine._frames("direct", tokenizer.encode(TEXT), prefix, cap=fsq.SAMPLE_RATE // 100, seed=1)
    async for batch in engine._model.generate(asked):
        frames += list(batch.codes)
    count = len(made) // fsq.SAMPLES_PER_FRAME
    decoder = TorchDecoder.load(ensure(codec))
    samples, _ = decoder.step(np.stack(frames[:count])[None], [decoder.new_state()])
    assert np.allclose(made[:-256], samples[0, :-256], atol=1e-5)  # the end may have been faded


@on_loop
async def test_voices_sound_apart(engine: GepardTorchEngine) -> None:
    noise = np.random.default_rng(0).standard_normal(2 * fsq.SAMPLE_RATE, np.float32) / np.float32(5)
    voice = await engine.enroll(noise, fsq.SAMPLE_RATE)
    assert len(voice) == engine.info.voice_bytes
    assert voice == await engine.enroll(noise, fsq.SAMPLE_RATE)
    said = [
        pcm(await say(engine, **fields))
        for fields in ({}, {"voice": "plain"}, {"voice": "vc", "conditioning": voice, "salt": "s"})
    ]
    assert len({audio.tobytes()[:4096] for audio in said}) == 3


@on_loop
async def test_closing_the_iterator_frees_the_slot_within_one_step(
    engine: GepardTorchEngine, long: SpeechRequest
) -> None:
    reader = engine.synthesize(long)
    await anext(reader)
    assert engine.capacity().free == engine.capacity().slots - 1
    began = time.monotonic()
    await reader.aclose()
    assert engine.capacity().free == engine.capacity().slots
    assert time.monotonic() - began < 0.1


@on_loop
async def test_the_speed_was_measured(engine: GepardTorchEngine) -> None:
    capacity = engine.capacity()
    assert capacity.xrt > 0
    assert (capacity.alive, capacity.slots, capacity.queued) == (1, 4, 0)


@pytest.mark.slow
@on_loop
async def test_thirty_two_at_once_each_equal_their_solo_run(engine: GepardTorchEngine) -> None:
    """Each with a voice and a seed of its own."""
    generator = np.random.default_rng(3)
    shape = (8, engine.info.voice_bytes // 16)
    requests = [
        replace(
            REQUEST,
            id=f"s{i}/0",
            text=f"This is caller number {i}, and I would like to order {i + 2} of them.",
            voice=f"vc_{i}",
            conditioning=generator.standard_normal(shape).astype("<f2").tobytes(),
            salt=f"salt {i}",
            seed=1000 + i,
        )
        for i in range(32)
    ]

    async def one(request: SpeechRequest) -> np.ndarray[Any, np.dtype[np.float32]]:
        return pcm([chunk async for chunk in engine.synthesize(request)])

    solo = [await one(request) for request in requests]
    crowd = await asyncio.gather(*(one(request) for request in requests))
    assert len({audio.tobytes() for audio in solo}) == 32
    for alone, together in zip(solo, crowd, strict=True):
        assert len(alone) == len(together)
        assert np.allclose(alone, together, atol=1e-5)


@on_loop
async def test_a_model_that_dies_fails_its_requests_and_comes_back(
    engine: GepardTorchEngine, long: SpeechRequest
) -> None:
    reader = engine.synthesize(long)
    await anext(reader)
    pid = engine._model.pid  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        async for _ in reader:
            pass
    assert engine.capacity().alive == 0
    async with asyncio.timeout(60):
        while not engine.capacity().alive:
            await asyncio.sleep(0.02)
    assert len(pcm(await say(engine))) > 0


@on_loop
async def test_a_codec_that_dies_fails_its_requests_and_comes_back(
    engine: GepardTorchEngine, long: SpeechRequest
) -> None:
    reader = engine.synthesize(long)
    await anext(reader)
    (pid,) = engine._codec.pids  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineError):
        async for _ in reader:
            pass
    async with asyncio.timeout(60):
        while not engine.capacity().alive:
            await asyncio.sleep(0.02)
    assert len(pcm(await say(engine))) > 0


@pytest.mark.parametrize("kind", [GepardEngine, GepardTorchEngine])
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"checkpoint": ""}, "gepard_checkpoint is not set"),
        ({"checkpoint": "no/such@" + "0" * 40}, "gepard_checkpoint = "),
        ({"checkpoint": "not a folder"}, "gepard_checkpoint = "),
        ({"codec": "none.nemo"}, "gepard_codec = "),
        ({"codec": ""}, "gepard_codec is not set"),
        ({"dtype": "int8"}, "dtype"),
        ({"top_k": -1}, "gepard_top_k"),
    ],
)
@on_loop
async def test_what_cannot_be_served_is_told_with_its_setting(
    kind: Any, options: dict[str, Any], names: str, directory: Path, codec: Path
) -> None:
    with pytest.raises(SettingsError, match=names):
        kind(**{"checkpoint": str(directory), "codec": str(codec), **options})


def load_in_a_process(directory: Path, codec: Path, before: str) -> str:
    code = (
        f"import sys\n{before}\n"
        "from tts_core.registry import load_engine\n"
        "try:\n"
        f"    load_engine('gepard-torch', checkpoint={str(directory)!r}, codec={str(codec)!r})\n"
        "    print('torch' in sys.modules)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_the_gateways_process_has_no_torch_in_it_and_says_what_is_missing(
    directory: Path, codec: Path
) -> None:
    assert load_in_a_process(directory, codec, "").split() == ["False"]
    told = load_in_a_process(directory, codec, "sys.modules['tokenizers'] = None")
    assert told.startswith("SettingsError")
    assert "gepard-cpu" in told


@on_loop
async def test_engines_are_made_without_being_started(directory: Path, codec: Path) -> None:
    engine = GepardEngine(
        checkpoint=str(directory), codec=str(codec), streams=2, cfg_scale=3.0, continuity=True
    )
    assert (engine.info.name, engine.capacity().slots) == ("gepard", 2)
    assert (
        engine.info.revision == GepardTorchEngine(checkpoint=str(directory), codec=str(codec)).info.revision
    )
    await engine.close()


def test_a_codec_is_found_with_its_checkpoint_and_named_by_its_source(tmp_path: Path, codec: Path) -> None:
    directory = make_tiny(tmp_path / "model")
    with pytest.raises(SettingsError):
        find_codec("", directory)
    nemo = directory / "codec.nemo"
    shutil.copy(codec, nemo)
    assert find_codec("", directory) == nemo
    converted = ensure(nemo)
    assert find_codec("", directory) == nemo
    assert find_codec(str(converted), directory) == converted
    assert codec_digest(nemo) == codec_digest(converted)
    nemo.unlink()
    assert find_codec("", directory) == converted
    converted.write_bytes(b"junk")
    with pytest.raises(SettingsError, match="gepard_codec"):
        codec_digest(converted)
    assert Checkpoint.open(directory).config.cloning is not None
