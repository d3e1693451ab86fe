"""One door to all encoders: what is refused, and what a gateway without the extra says."""

from __future__ import annotations

import sys
import threading

import pytest

from gateway.encoding import CONTAINERS, encode, open_encoder
from sessions.events import AudioFormat, Encoding
from tts_core.errors import UnsupportedFormat

PCM = AudioFormat(Encoding.PCM_S16LE, 24000)


@pytest.mark.parametrize("container", CONTAINERS)
async def test_every_container_takes_a_second_of_speech(container: str) -> None:
    encoder = open_encoder(container, PCM)
    body = b"".join([await encode(encoder, bytes(4800)) for _ in range(10)]) + await encode(encoder, None)
    assert len(body) > 40
    assert await encode(encoder, None) == b""


@pytest.mark.parametrize("container", ["", "MP3", "ogg", "m4a", "../mp3"])
def test_an_unknown_container_is_refused_by_name(container: str) -> None:
    with pytest.raises(UnsupportedFormat) as refused:
        open_encoder(container, PCM)
    assert refused.value.field == "response_format"


@pytest.mark.parametrize("container", ["mp3", "opus", "aac", "flac"])
def test_without_the_extra_it_is_named(container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.encoding.compressed", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedFormat, match="make run WITH=compressed"):
        open_encoder(container, PCM)
    assert open_encoder("wav", PCM).feed(b"\0\0")[:4] == b"RIFF"


async def test_compressed_audio_is_made_off_the_loop() -> None:
    at: list[int] = []

    class Slow:
        content_type = "audio/mpeg"
        compressed = True

        def feed(self, data: bytes) -> bytes:
            at.append(threading.get_ident())
            return data

        def finish(self) -> bytes:
            at.append(threading.get_ident())
            return b""

    slow = Slow()
    assert await encode(slow, b"ab") == b"ab"
    assert await encode(slow, None) == b""
    assert threading.get_ident() not in at
