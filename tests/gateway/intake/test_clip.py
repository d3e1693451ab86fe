from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gateway.intake import clip as module
from gateway.intake.activity import RATE
from gateway.intake.clip import WAITING, Clip, decode_clip, overwrite
from gateway.intake.decoder import Decoding, Limits
from gateway.intake.refusal import ReferenceRefused
from tests.envs import ROOT
from tests.gateway.intake import canary
from tests.gateway.intake.media import KINDS, ffmpeg, header, hours_in_a_kilobyte, voice_like, wav
from tts_core.errors import Busy, SettingsError

REASONS = {
    *("too_large", "empty", "unsupported", "damaged", "rate", "channels", "too_long", "undecodable"),
    "decoder_limit",
}


def children() -> list[int]:
    """Our processes, zombies too."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += [int(pid) for pid in (task / "children").read_text().split()]
        except FileNotFoundError:
            continue
    return found


async def reason(data: bytes | bytearray, limits: Limits | None = None) -> str:
    with pytest.raises(ReferenceRefused) as caught:
        await decode_clip(data, limits=limits)
    assert caught.value.code == f"reference_{caught.value.reason}"
    return caught.value.reason


async def test_every_format_gives_the_same_trimmed_sound(files: dict[str, bytes]) -> None:
    clips = {name: await decode_clip(data) for name, data in files.items()}
    one = clips["wav"]
    for name, found in clips.items():
        assert found.kind == KINDS.get(name, name)
        assert found.notes == ()
        assert found.pcm.dtype == np.float32 and found.pcm.ndim == 1
        assert found.seconds == pytest.approx(one.seconds, abs=0.12), name
        assert 1.0 < found.seconds < 2.5  # of the three that it had with the silence around
        n = min(len(found.pcm), len(one.pcm))
        ours, theirs = (np.abs(np.fft.rfft(x[:n].astype(np.float64)))[200:6000] for x in (found.pcm, one.pcm))
        assert np.corrcoef(ours, theirs)[0, 1] > 0.9, name
    again = await decode_clip(files["wav"])
    assert np.array_equal(again.pcm, one.pcm)


async def test_what_was_handed_over_is_overwritten(files: dict[str, bytes]) -> None:
    data = bytearray(files["mp3"])
    await decode_clip(data)
    assert not any(data)
    part = bytearray(b"left" + files["mp3"])
    await decode_clip(memoryview(part)[4:])
    assert part[:4] == b"left" and not any(part[4:])
    refused = bytearray(b"no recording at all")
    assert await reason(refused) == "unsupported"
    assert not any(refused)
    data.append(1)  # nothing holds it any more
    with pytest.raises(TypeError):
        await decode_clip(memoryview(bytes(8))[::2])


def test_overwrites_in_pieces() -> None:
    for size in (0, 1, 2**18 - 1, 2**18, 2**18 + 1, 10**6):
        data = bytearray(b"\1" * size)
        overwrite(memoryview(data))
        assert data == bytes(size)


async def test_a_clip_has_its_best_part_and_forgets(speech: np.ndarray) -> None:
    found = await decode_clip(wav(np.tile(speech, 4), 24_000))
    assert found.seconds > 25
    assert 14 < len(found.best) / RATE <= 15
    assert np.shares_memory(found.best, found.pcm)
    found.wipe()
    found.wipe()
    assert not found.pcm.any() and not found.best.any()


async def test_refusals_have_names(files: dict[str, bytes]) -> None:
    assert await reason(b"") == "empty"
    assert await reason(bytes(1001), Limits(max_bytes=1000)) == "too_large"
    assert await reason(b"#EXTM3U\n") == "unsupported"
    assert await reason(header(rate=0, data=2) + bytes(2)) == "rate"
    assert await reason(header(channels=255, data=510) + bytes(510)) == "channels"
    assert await reason(files["flac"][:200]) in {"undecodable", "empty"}
    assert await reason(files["mp3"], Limits(wall_s=0.001)) == "decoder_limit"
    assert await reason(hours_in_a_kilobyte()) == "too_long"
    floats = np.full(RATE, np.nan, np.float32).tobytes()
    assert await reason(header(tag=3, bits=32, data=len(floats)) + floats) == "undecodable"


async def test_louder_than_full_scale_is_limited_and_told() -> None:
    floats = (voice_like(2.0) * 10).astype("<f4").tobytes()
    found = await decode_clip(header(tag=3, bits=32, data=len(floats)) + floats)
    assert np.abs(found.pcm).max() == 1.0
    assert found.measures.peak == pytest.approx(4.0, rel=0.02)
    assert found.measures.clipped > 0.05


async def test_without_ffmpeg_only_wav_is_read(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it = await decode_clip(files["wav24"])
    monkeypatch.setenv("PATH", str(tmp_path))
    without = await decode_clip(files["wav24"])
    assert without.kind == "wav"
    n = min(len(with_it.pcm), len(without.pcm))
    assert abs(len(with_it.pcm) - len(without.pcm)) <= 0.03 * RATE
    assert np.abs(with_it.pcm[:n]).max() == pytest.approx(np.abs(without.pcm[:n]).max(), rel=0.05)
    with pytest.raises(SettingsError, match="has no ffmpeg: only uncompressed WAV"):
        await decode_clip(files["mp3"])
    assert await reason(files["alaw"]) == "unsupported"


def mutations(data: bytes, seed: int, truncated: int, flipped: int) -> list[bytes]:
    rng = random.Random(seed)
    made = [data[: rng.randrange(1, len(data))] for _ in range(truncated)]
    for _ in range(flipped):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 8, 64))):
            at = rng.randrange(len(bad) if rng.random() < 0.5 else min(len(bad), 600))
            bad[at] ^= 1 << rng.randrange(8)
        made.append(bytes(bad))
    return made


async def hold(data: bytes) -> str:
    """Take a damaged file in: a clip within its bounds, or a refusal with a name."""
    try:
        found = await decode_clip(data)
    except ReferenceRefused as error:
        assert error.reason in REASONS
        return error.reason
    assert isinstance(found, Clip)
    assert 0 < len(found.pcm) <= 60.25 * RATE
    assert np.isfinite(found.pcm).all() and np.abs(found.pcm).max(initial=0) <= 1
    return "clip"


@pytest.mark.parametrize("name", ["wav", "wav24", "wav32f", "mulaw", "flac", "mp3", "opus", "vorbis", "m4a"])
async def test_damaged_files_do_no_harm(files: dict[str, bytes], name: str) -> None:
    outcomes = [await hold(bad) for bad in mutations(files[name], 1, 3, 5)]
    assert len(outcomes) == 8
    assert children() == []
    assert await hold(files[name]) == "clip"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wav32f", "flac", "mp3", "opus", "vorbis", "m4a"])
async def test_many_damaged_files_do_no_harm(files: dict[str, bytes], name: str) -> None:
    for bad in mutations(files[name], 2, 20, 60):
        await hold(bad)
    assert children() == []
    assert await hold(files[name]) == "clip"


async def test_an_index_at_the_end_is_found(files: dict[str, bytes], tmp_path: Path) -> None:
    file = tmp_path / "a.m4a"
    await asyncio.to_thread(ffmpeg, files["wav"], "-c:a", "aac", "-f", "ipod", str(file), "-f", "null")
    data = file.read_bytes()
    assert data.index(b"mdat") < data.index(b"moov")
    assert (await decode_clip(data)).kind == "m4a"


async def test_a_picture_and_a_tag_are_not_looked_at(files: dict[str, bytes]) -> None:
    picture = b"ID3\4\0\0" + bytes((0, 0, 8, 0)) + b"APIC\0\0\7\x76\0\0\0image/png\0\3\0" + bytes(1007)
    start = (
        files["mp3"].index(b"\xff\xf3") if b"\xff\xf3" in files["mp3"] else files["mp3"].index(b"\xff\xfb")
    )
    assert (await decode_clip(picture + files["mp3"][start:])).kind == "mp3"
    video = ffmpeg(
        files["wav"], "-f", "lavfi", "-i", "color=s=64x64:d=1", "-c:a", "aac", "-c:v", "mpeg4", "-f", "mp4",
        "-movflags", "frag_keyframe+empty_moov",
    )  # fmt: skip
    assert (await decode_clip(video)).seconds > 1


async def test_cancelling_ends_the_decoder(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    began, stopped = threading.Event(), threading.Event()

    def endless(self: Decoding, data: memoryview) -> None:
        with_process = subprocess.Popen(["/bin/sleep", "600"])
        self._process = with_process
        began.set()
        with_process.wait()
        stopped.set()
        raise ReferenceRefused("decoder_limit", "stopped")

    monkeypatch.setattr(Decoding, "run", endless)
    data = bytearray(files["flac"])
    task = asyncio.create_task(decode_clip(data))
    assert await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    assert children() == []
    assert not any(data)


async def test_a_clip_that_came_too_late_is_forgotten(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()
    made: list[Clip] = []
    real = module._clip

    def slow(*arguments: object) -> Clip:
        began.set()
        assert go.wait(30)
        made.append(real(*arguments))  # type: ignore[arg-type]
        return made[0]

    monkeypatch.setattr(module, "_clip", slow)
    task = asyncio.create_task(decode_clip(files["wav"]))
    assert await asyncio.to_thread(began.wait, 30)
    task.cancel()
    asyncio.get_running_loop().call_soon(go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(made) == 1 and not made[0].pcm.any()


async def test_stopped_before_its_turn_nothing_is_started(files: dict[str, bytes]) -> None:
    intake = module._Intake(memoryview(bytearray(files["flac"])), Limits())
    intake.stop()
    with pytest.raises(ReferenceRefused) as caught:
        intake.run()
    assert caught.value.reason == "decoder_limit"


async def test_only_so_many_wait(files: dict[str, bytes]) -> None:
    tasks = [asyncio.create_task(decode_clip(files["opus"])) for _ in range(WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Busy) as caught:
        await decode_clip(files["opus"])
    assert caught.value.retry_after == 2.0
    found = await asyncio.gather(*tasks)
    assert {len(one.pcm) for one in found} == {len(found[0].pcm)}
    assert len(await asyncio.gather(decode_clip(files["opus"]))) == 1


async def test_the_loop_goes_on_meanwhile(speech: np.ndarray) -> None:
    data = wav(np.tile(speech, 7)[: 60 * 24_000], 24_000)
    task = asyncio.create_task(decode_clip(data))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert task.result().seconds > 50
    assert turns > 30


PLACES = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", str(Path.cwd())}


def new_files(since: float) -> list[Path]:
    found = []
    for place in PLACES:
        for folder, _, names in os.walk(place):
            if "/." in folder:
                continue
            for name in names:
                path = Path(folder, name)
                try:
                    if path.stat().st_mtime >= since - 1 and path.is_file():
                        found.append(path)
                except OSError:
                    continue
    return found


def content(path: Path) -> bytes:
    """What the file holds; nothing where another program has removed it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_the_sound_is_nowhere_afterwards(tmp_path: Path) -> None:
    since, seed = time.time(), random.SystemRandom().randrange(2**32)
    script = [sys.executable, str(ROOT / "tests/gateway/intake/canary.py")]
    with subprocess.Popen([*script, "make", str(seed)], stdout=subprocess.PIPE) as maker:
        done = subprocess.run(
            [*script, "take"],
            stdin=maker.stdout,
            capture_output=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0, done.stderr.decode()
    before, handed_over, living, wiped = done.stdout.decode().split()
    assert handed_over == "False"
    assert int(before) >= 1 and int(living) >= 1  # the search finds what is there
    assert int(wiped) == 0
    pieces = [bytes(~np.frombuffer(needle, np.uint8)) for needle in canary.needles(seed)]
    (tmp_path / "control").write_bytes(b"x" + pieces[1])
    places = new_files(since)
    found = [path for path in places if any(piece in content(path) for piece in pieces)]
    assert [path for path in found if path.parent != tmp_path] == []
    assert list(tmp_path.iterdir()) == [tmp_path / "control"]
