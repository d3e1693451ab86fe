"""The head of an MP3 stream, read by a decoder that is not ours."""

from __future__ import annotations

import io

import av
import pytest

from gateway.encoding.info_frame import VERSIONS, frame_samples, info_frame


@pytest.mark.parametrize("rate", sorted(VERSIONS))
@pytest.mark.parametrize("delay", [0, 576, 4095])
def test_it_is_one_whole_frame_that_tells_the_delay(rate: int, delay: int) -> None:
    frame = info_frame(rate, delay)
    assert frame[0] == 0xFF
    assert frame[1] & 0xE0 == 0xE0
    at = frame.index(b"Info")
    # Flags, name, revision and filter, six fields of a byte or more; then the delay in 12 bits.
    assert int.from_bytes(frame[at + 29 : at + 32], "big") >> 12 == delay
    # Cut at its own length by a decoder: two of them in a row are two packets.
    with av.open(io.BytesIO(frame * 3), "r", format="mp3") as file:
        assert file.streams.audio[0].codec_context.sample_rate == rate
        sizes = [packet.size for packet in file.demux(audio=0) if packet.size]
    assert sizes == [len(frame)] * len(sizes)
    assert len(sizes) >= 2


def test_frame_lengths() -> None:
    assert frame_samples(44100) == frame_samples(32000) == 1152
    assert frame_samples(24000) == frame_samples(8000) == 576
