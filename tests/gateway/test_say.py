from __future__ import annotations

import asyncio
import os
import stat
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.say import (
    FORMATS,
    LARGEST_PIECE,
    FileSink,
    GatewayError,
    PlayerSink,
    Spoken,
    pieces,
    player_command,
    say,
    stdin_pieces,
)
from sessions.events import AudioFormat, Encoding
from tests.peers.gateway import Running, Start
from tts_core.errors import BadRequest, Unauthorised

TEXT = "Hello there, this is one text. And one more."


class Memory:
    def __init__(self) -> None:
        self.data = b""

    async def write(self, data: bytes) -> None:
        self.data += data


async def deltas(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


@pytest.mark.parametrize("name", FORMATS)
async def test_every_format_arrives_whole(gateway: Running, name: str) -> None:
    audio, sink, seen = FORMATS[name], Memory(), list[float]()
    spoken = await say(
        gateway.url, "any", pieces(TEXT), sink, audio, progress=lambda s: seen.append(s.seconds)
    )
    assert len(sink.data) == spoken.samples * audio.width
    assert spoken.seconds == pytest.approx(spoken.stats["audio_s"], abs=0.5)  # pauses come on top
    assert spoken.seconds > 1
    assert spoken.first_audio >= 0
    assert seen[-1] == spoken.seconds
    assert set(name.split("-")) == {{"pcm_s16le": "pcm"}.get(audio.encoding, audio.encoding), str(audio.rate)}


async def test_any_split_of_the_text_sounds_the_same(gateway: Running) -> None:
    whole, split = Memory(), Memory()
    await say(gateway.url, "any", deltas(TEXT), whole, FORMATS["mulaw-8000"])
    await say(gateway.url, "any", deltas(*TEXT), split, FORMATS["mulaw-8000"])
    assert whole.data == split.data


async def test_a_file_is_made_faster_than_real_time(gateway: Running) -> None:
    spoken = await say(gateway.url, "any", pieces(f"{TEXT} " * 8), Memory(), FORMATS["pcm-24000"])
    assert spoken.seconds > 10
    assert spoken.took < spoken.seconds / 2
    assert spoken.underruns == 0


async def test_voice_and_speed_reach_the_engine(gateway: Running) -> None:
    await say(gateway.url, "any", pieces("Hi."), Memory(), FORMATS["pcm-8000"], voice="other", speed=1.5)
    assert {(r.voice, r.speed) for r in gateway.engine.requests} == {("other", 1.5)}
    with pytest.raises(GatewayError, match="voice"):
        await say(gateway.url, "any", pieces("Hi."), Memory(), FORMATS["pcm-8000"], voice="nobody")


async def test_a_wrong_key_and_a_lost_gateway_are_told_plainly(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys="acme:configured-key-of-test")
    with pytest.raises(Unauthorised, match="--key"):
        await say(gateway.url, "wrong", pieces("Hi."), Memory(), FORMATS["pcm-8000"])
    with pytest.raises(GatewayError, match="no gateway can be reached"):
        await say("http://127.0.0.1:1", "any", pieces("Hi."), Memory(), FORMATS["pcm-8000"])


async def test_a_text_that_cannot_be_read_ends_the_talk(gateway: Running) -> None:
    async def bad() -> AsyncIterator[str]:
        yield "Hello. "
        raise BadRequest("not text")

    with pytest.raises(BadRequest, match="not text"):
        await say(gateway.url, "any", bad(), Memory(), FORMATS["pcm-8000"])


async def test_a_sink_that_fails_ends_the_talk(gateway: Running) -> None:
    class Full:
        async def write(self, data: bytes) -> None:
            raise OSError(28, "full")

    async def endless() -> AsyncIterator[str]:
        yield TEXT
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="full"):
        await asyncio.wait_for(say(gateway.url, "any", endless(), Full(), FORMATS["pcm-8000"]), 20)


async def test_wav_and_raw_files(tmp_path: Path) -> None:
    audio = AudioFormat(Encoding.PCM_S16LE, 8000)
    for name in ("a.wav", "a.raw"):
        with FileSink(str(tmp_path / name), audio) as sink:
            await sink.write(b"\1\0" * 100)
    with wave.open(str(tmp_path / "a.wav")) as read:
        assert (read.getframerate(), read.getnframes()) == (8000, 100)
    assert (tmp_path / "a.raw").read_bytes() == b"\1\0" * 100


def test_a_file_that_no_sound_came_for_is_not_touched(tmp_path: Path) -> None:
    audio = AudioFormat(Encoding.PCM_S16LE, 8000)
    (tmp_path / "old.raw").write_bytes(b"precious")
    for name in ("old.raw", "new.raw"):
        with FileSink(str(tmp_path / name), audio):
            pass
    assert (tmp_path / "old.raw").read_bytes() == b"precious"
    assert not (tmp_path / "new.raw").exists()


async def test_a_new_sound_replaces_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(bytes(500))
    with FileSink(str(tmp_path / "a.raw"), AudioFormat(Encoding.PCM_S16LE, 8000)) as sink:
        await sink.write(b"\1\0" * 3)
    assert (tmp_path / "a.raw").read_bytes() == b"\1\0" * 3


def test_bare_samples_are_not_put_into_a_compressed_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"\.mp3 files are not made"):
        FileSink(str(tmp_path / "a.MP3"), AudioFormat(Encoding.PCM_S16LE, 8000))
    assert not (tmp_path / "a.MP3").exists()


# -- players -----------------------------------------------------------------------------------------


def test_the_first_player_found_is_used_with_the_right_format() -> None:
    def only(name: str) -> list[str]:
        return player_command(AudioFormat(Encoding.MULAW, 8000), lambda tool: tool if tool == name else None)

    assert only("aplay") == ["aplay", "-q", "-t", "raw", "-f", "MU_LAW", "-r", "8000", "-c", "1", "-"]
    assert "--format=ulaw" in only("paplay")
    assert only("ffplay")[-5:] == ["-f", "mulaw", "-ar", "8000", "-"]
    with pytest.raises(BadRequest, match=r"aplay .*paplay .*ffplay"):
        only("none")


def script(folder: Path, body: str) -> list[str]:
    place = folder / "player"
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return [str(place)]


async def test_a_player_gets_every_byte_and_is_waited_for(tmp_path: Path) -> None:
    async with PlayerSink(script(tmp_path, f"cat > {tmp_path}/heard")) as player:
        for _ in range(50):
            await player.write(bytes(5000))
    assert (tmp_path / "heard").stat().st_size == 250_000


async def test_a_player_that_fails_is_told_plainly(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="sound device"):
        async with PlayerSink(script(tmp_path, "exit 1")) as player:
            for _ in range(200):
                await player.write(bytes(50_000))


# -- standard input ------------------------------------------------------------------------------------


async def read_all(data: bytes, step: int) -> str:
    source, sink = os.pipe()
    try:
        reading = asyncio.create_task(collect(source))
        for start in range(0, len(data), step):
            await asyncio.to_thread(os.write, sink, data[start : start + step])
        os.close(sink)
        return await asyncio.wait_for(reading, 20)
    finally:
        os.close(source)


async def collect(source: int) -> str:
    return "".join([text async for text in stdin_pieces(source)])


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
async def test_input_is_never_cut_inside_a_character(step: int) -> None:
    text = "héllo wörld, 你好 🙂 end"
    assert await read_all(text.encode(), step) == text


async def test_input_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        await read_all(b"abc\xff\xfe", 2)


async def test_input_is_spoken_while_it_arrives(gateway: Running) -> None:
    source, sink = os.pipe()
    heard = asyncio.Event()

    class Listener(Memory):
        async def write(self, data: bytes) -> None:
            await super().write(data)
            heard.set()

    talk = asyncio.create_task(say(gateway.url, "any", stdin_pieces(source), Listener(), FORMATS["pcm-8000"]))
    os.write(sink, b"The first sentence is complete. And the")
    await asyncio.wait_for(heard.wait(), 20)
    assert not talk.done()
    os.write(sink, b" second one too.")
    os.close(sink)
    spoken = await asyncio.wait_for(talk, 20)
    os.close(source)
    assert isinstance(spoken, Spoken)
    assert spoken.stats["characters"] == len("The first sentence is complete. And the second one too.")


@given(st.text(max_size=3 * LARGEST_PIECE))
def test_pieces_join_to_the_text(text: str) -> None:
    async def run() -> list[str]:
        return [piece async for piece in pieces(text)]

    made = asyncio.run(run())
    assert "".join(made) == text
    assert all(0 < len(piece) <= LARGEST_PIECE for piece in made)
