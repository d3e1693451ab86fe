"""The codec service over real processes: right samples, in order, in bounds, and over again after a death."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tts_core.nanocodec.cases import CLOSE, Codec, some_codes
from tts_core.errors import BadRequest, EngineCrashed, EngineError, EngineTimeout
from tts_core.nanocodec import service as service_module
from tts_core.nanocodec import vigil
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.encoder import Encoder
from tts_core.nanocodec.service import CodecService

WAIT_S = 60.0


@asynccontextmanager
async def running(codec: Codec, **options: Any) -> AsyncIterator[CodecService]:
    service = CodecService(codec.path, **options)
    await service.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield service
    finally:
        await service.close()


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def note(order: list[int], turn: int, _: object) -> None:
    order.append(turn)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def distance(left: Any, right: Any) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


@pytest.mark.parametrize("backend", ["onnx", "torch"])
async def test_streams_come_out_as_they_would_alone(
    codec: Codec, decoder: TorchDecoder, backend: str
) -> None:
    random = np.random.default_rng(3)
    async with running(codec, backend=backend) as service:

        async def speak(seed: int) -> None:
            codes, stream, at, pieces = some_codes(30, seed=seed), service.open(), 0, []
            while at < len(codes):
                size = int(random.integers(1, 9))
                samples = await stream.decode(codes[at : at + size])
                assert samples.dtype == np.float32
                pieces.append(samples)
                at += size
            assert distance(np.concatenate(pieces), decoder.whole(codes)) <= CLOSE
            stream.close()

        await asyncio.gather(*map(speak, range(12)))
        assert service.alive
        assert 0 < service.duty <= 1
        assert (service.streams, service.queued) == (0, 0)
    assert not service.alive


async def test_calls_are_served_in_their_order_awaited_or_not(codec: Codec, decoder: TorchDecoder) -> None:
    codes = some_codes(45)
    async with running(codec) as service:
        stream = service.open()
        order: list[int] = []
        futures = []
        for turn, (start, end) in enumerate([(0, 20), (20, 21), (21, 21), (21, 40), (40, 45)]):
            future = stream.decode(codes[start:end])
            future.add_done_callback(partial(note, order, turn))
            futures.append(future)
        assert service.queued == 45
        samples = np.concatenate(await asyncio.gather(*futures))
    assert distance(samples, decoder.whole(codes)) <= CLOSE
    assert [turn for turn in order if turn != 2] == [0, 1, 3, 4]


async def test_a_cancelled_call_leaves_the_stream_unharmed(codec: Codec, decoder: TorchDecoder) -> None:
    codes = some_codes(12)
    async with running(codec) as service:
        stream = service.open()
        first, second = stream.decode(codes[:4]), stream.decode(codes[4:8])
        second.cancel()
        third = stream.decode(codes[8:])
        samples = [await first, await third]
    whole = decoder.whole(codes)
    assert distance(samples[0], whole[: 4 * 1024]) <= CLOSE
    assert distance(samples[1], whole[8 * 1024 :]) <= CLOSE


async def test_a_dead_process_fails_its_streams_and_comes_back(codec: Codec, decoder: TorchDecoder) -> None:
    codes = some_codes(300)
    async with running(codec, processes=2) as service:
        doomed, safe = service.open(), service.open()
        first, second = service.pids
        assert first != second
        lost = doomed.decode(codes)
        kept = safe.decode(codes[:60])
        os.kill(first, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await lost
        with pytest.raises(EngineCrashed):
            await doomed.decode(codes)
        assert service.alive
        assert distance(await kept, decoder.whole(codes[:60])) <= CLOSE
        doomed.close()
        await until(lambda: len(service.pids) == 2)
        assert first not in service.pids
        stream = service.open()
        assert distance(await stream.decode(codes[:3]), decoder.whole(codes[:3])) <= CLOSE


async def test_while_no_process_lives_nothing_can_be_opened(codec: Codec) -> None:
    async with running(codec) as service:
        stream = service.open()
        os.kill(service.pids[0], signal.SIGKILL)
        await until(lambda: not service.alive)
        with pytest.raises(EngineError):
            service.open()
        with pytest.raises(EngineCrashed):
            await stream.decode(some_codes(1))
        await until(lambda: service.alive)
        assert len(await service.open().decode(some_codes(1))) == 1024


async def test_a_process_that_does_not_come_back_is_tried_again(codec: Codec, tmp_path: Path) -> None:
    path = tmp_path / "codec.safetensors"
    path.write_bytes(codec.path.read_bytes())
    async with running(Codec(codec.nemo, path)) as service:
        path.write_bytes(b"damaged")
        os.kill(service.pids[0], signal.SIGKILL)
        await until(lambda: service._seats[0].deaths >= 2)
        assert not service.alive
        path.write_bytes(codec.path.read_bytes())
        await until(lambda: service.alive)
        assert len(await service.open().decode(some_codes(1))) == 1024
        await until(lambda: service._seats[0].deaths == 0)


async def test_a_process_that_hangs_is_replaced(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "IDLE_S", 1.0)
    monkeypatch.setattr(service_module, "LOOK_S", 0.1)
    async with running(codec) as service:
        (pid,) = service.pids
        stream = service.open()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineCrashed):
            await stream.decode(some_codes(1))
        await until(lambda: service.alive)
        assert service.pids != (pid,)


async def test_an_idle_process_is_not_taken_for_hanging(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vigil, "IDLE_S", 1.0)
    monkeypatch.setattr(service_module, "LOOK_S", 0.1)
    async with running(codec) as service:
        pids = service.pids
        stream, other = service.open(), service.open()
        await stream.decode(some_codes(2))
        other.close()
        assert service._seats[0].watchdog is None
        assert service.pids == pids


async def test_the_queue_is_bounded(codec: Codec) -> None:
    async with running(codec, max_queue=10) as service:
        stream, other = service.open(), service.open()
        with pytest.raises(EngineError, match="too much"):
            stream.decode(some_codes(11))
        waiting = [stream.decode(some_codes(6)), other.decode(some_codes(4))]
        with pytest.raises(EngineError, match="too much"):
            stream.decode(some_codes(1))
        await asyncio.gather(*waiting)
        assert len(await stream.decode(some_codes(10))) == 10 * 1024


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((1, 31), np.uint8),
        np.full((1, 32), 8, np.uint8),
        np.zeros((2, 1, 32), np.uint8),
        np.zeros(32, np.uint8),
        np.zeros((2049, 32), np.uint8),
    ],
)
async def test_what_cannot_be_decoded_is_refused_at_the_door(codec: Codec, bad: Any) -> None:
    service = CodecService(codec.path)
    service._seats[0].ready = True
    with pytest.raises(EngineError):
        service.open().decode(bad)
    await service.close()


async def test_a_closed_stream_takes_nothing_and_disturbs_nobody(codec: Codec) -> None:
    async with running(codec) as service:
        stream, other = service.open(), service.open()
        dropped = stream.decode(some_codes(200))
        kept = other.decode(some_codes(1))
        stream.close()
        stream.close()
        with pytest.raises(EngineError, match="closed"):
            await dropped
        with pytest.raises(EngineError, match="closed"):
            stream.decode(some_codes(1))
        assert len(await kept) == 1024
        assert service.queued == 0


async def test_closing_ends_what_waits_and_the_processes(codec: Codec) -> None:
    async with running(codec) as service:
        pids = service.pids
        stream = service.open()
        waiting = stream.decode(some_codes(200))
        await service.close()
        await service.close()
        with pytest.raises(EngineError, match="closed"):
            await waiting
        with pytest.raises(EngineError):
            stream.decode(some_codes(1))
        with pytest.raises(EngineError):
            service.open()
        with pytest.raises(EngineError):
            await service.encode(np.zeros(9, np.float32))
        with pytest.raises(EngineError):
            await service.start()
        assert not any(map(exists, pids))


async def test_a_nemo_is_converted_at_the_start(codec: Codec, tmp_path: Path) -> None:
    nemo = tmp_path / "codec.nemo"
    nemo.write_bytes(codec.nemo.read_bytes())
    service = CodecService(nemo)
    await service.start()
    await service.start()
    assert len(await service.open().decode(some_codes(1))) == 1024
    await service.close()
    assert (tmp_path / "codec.safetensors").exists()


async def test_a_model_that_does_not_load_is_an_engine_error(codec: Codec, tmp_path: Path) -> None:
    for name, data in (("x.nemo", b"?"), ("x.safetensors", b"?"), ("none.nemo", None)):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        service = CodecService(tmp_path / name)
        with pytest.raises(EngineError):
            await service.start()
        assert not service.alive
    service = CodecService(codec.path, backend="tensorrt")
    with pytest.raises(EngineError, match="backend"):
        await service.start()


async def test_before_the_start_there_is_nothing(codec: Codec) -> None:
    service = CodecService(codec.path)
    assert not service.alive
    assert service.duty == 0
    with pytest.raises(EngineError):
        service.open()
    with pytest.raises(EngineError):
        await service.encode(np.zeros(9, np.float32))


# -- references ---------------------------------------------------------------------------------------


async def test_references_are_encoded_in_their_order(codec: Codec, encoder: Encoder, clip: Any) -> None:
    async with running(codec) as service:
        clips = [clip, clip[:5000], clip[:1]]
        order: list[int] = []

        async def encode(turn: int) -> Any:
            codes = await service.encode(clips[turn])
            order.append(turn)
            return codes

        for codes, original in zip(await asyncio.gather(*map(encode, range(3))), clips, strict=True):
            assert codes.dtype == np.uint8
            assert np.array_equal(codes, encoder.encode(original))
        assert order == [0, 1, 2]
        with pytest.raises(BadRequest):
            await service.encode(np.zeros(0, np.float32))


async def test_an_idle_encoder_ends_and_another_comes(
    codec: Codec, clip: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "IDLE_S", 0.0)
    async with running(codec) as service:
        first = await service.encode(clip[:3000])
        await until(lambda: service._encoder.pid is None)
        assert np.array_equal(first, await service.encode(clip[:3000]))


async def test_a_dead_encoder_fails_its_clip_alone(codec: Codec, clip: Any) -> None:
    async with running(codec) as service:
        codes = await service.encode(clip)
        pid = service._encoder.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        lost = asyncio.ensure_future(service.encode(clip))
        following = asyncio.ensure_future(service.encode(clip))
        await until(lambda: service._encoder._answer is not None)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await lost
        assert np.array_equal(await following, codes)


async def test_an_abandoned_clip_keeps_nobody_waiting(codec: Codec, clip: Any) -> None:
    async with running(codec) as service:
        codes = await service.encode(clip)
        pid = service._encoder.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        abandoned = asyncio.ensure_future(service.encode(clip))
        await until(lambda: service._encoder._answer is not None)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert np.array_equal(await service.encode(clip), codes)
        assert service._encoder.pid != pid


async def test_a_clip_has_a_deadline(codec: Codec, clip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "ENCODE_S", 0.05)
    async with running(codec) as service:
        with pytest.raises(EngineTimeout):
            await service.encode(clip)


async def test_clips_that_wait_are_bounded(codec: Codec, clip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_CLIPS", 2)
    async with running(codec) as service:
        waiting = [asyncio.ensure_future(service.encode(clip)) for _ in range(2)]
        await until(lambda: service._encoder._waiting == 2)
        with pytest.raises(EngineError, match="too many"):
            await service.encode(clip)
        await asyncio.gather(*waiting)


async def test_closing_ends_the_encoder_while_it_starts(codec: Codec, clip: Any) -> None:
    async with running(codec) as service:
        encoding = asyncio.ensure_future(service.encode(clip))
        await until(lambda: service._encoder.pid is not None)
        pid = service._encoder.pid
        assert pid is not None
        await service.close()
        with pytest.raises(EngineError):
            await encoding
        assert not exists(pid)
