"""Audio in the container that a client asked for: raw, WAV, and with an extra MP3, Opus, AAC, FLAC.

    encoder = open_encoder("mp3", AudioFormat(Encoding.PCM_S16LE, 24000), bitrate=64_000)
    await write(await encode(encoder, event.data))
    await write(await encode(encoder, None))

One encoder is one stream. All of them take the context's own audio in any pieces of whole samples and give
bytes as soon as there are some; ``finish`` gives the rest and ends the stream.
"""

from __future__ import annotations

import asyncio
from functools import partial

from sessions.events import AudioFormat
from tts_core.errors import UnsupportedFormat

from .encoder import Encoder, RawEncoder, WavEncoder

CONTAINERS = ("pcm", "wav", "mp3", "opus", "aac", "flac")
"""What may be asked for; those after ``wav`` need the extra ``compressed``."""


def open_encoder(container: str, fmt: AudioFormat, *, bitrate: int | None = None) -> Encoder:
    """An encoder for one stream.

    Args:
        container: one of CONTAINERS; ``pcm`` is the audio as it is, without a header.
        fmt: of the audio that will be fed; for the compressed ones PCM of 16 bits.
        bitrate: bits a second for mp3, opus and aac (None: a fair choice for speech at this rate).

    Raises:
        UnsupportedFormat: an unknown container, a rate or encoding that it cannot hold, or the extra
            ``compressed`` is not installed; the message says which.
    """
    if container == "pcm":
        return RawEncoder(fmt)
    if container == "wav":
        return WavEncoder(fmt)
    if container not in CONTAINERS:
        raise UnsupportedFormat(f"the format must be one of {', '.join(CONTAINERS)}", field="response_format")
    try:
        from .compressed import CompressedEncoder
    except ImportError:
        raise UnsupportedFormat(
            f"{container} needs the extra 'compressed' on this gateway (make run WITH=compressed); "
            "ask for pcm or wav",
            field="response_format",
        ) from None
    return CompressedEncoder(container, fmt, bitrate=bitrate)


async def encode(encoder: Encoder, data: bytes | None) -> bytes:
    """Feed ``data``, or finish for None; compressed audio is made in a thread, off the event loop.

    Cancelled, it waits for no more than the piece under way, which is lost.
    """
    work = encoder.finish if data is None else partial(encoder.feed, data)
    return await asyncio.to_thread(work) if encoder.compressed else work()


__all__ = ["CONTAINERS", "Encoder", "encode", "open_encoder"]
