"""A process of its own that takes a recording in, and then looks for it everywhere: run as a program.

``canary.py make SEED`` writes a WAV file of noise, and behind it pieces of it, inverted. ``canary.py take``
reads both, the file straight into one buffer, and prints how often the pieces are in its memory, whether the
buffer holds something after the intake, and how often they are there with a living and with a wiped clip.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import struct
import sys

import numpy as np

SIZE = 4096  # bytes of sound that are looked for
RATE = 22_050
SECONDS = 5


def sound(seed: int) -> np.ndarray:
    """Noise in place of speech: no piece of it occurs by chance."""
    return np.random.default_rng(seed).integers(-9000, 9000, SECONDS * RATE, dtype=np.int16)


def make(seed: int) -> None:
    """Write the file."""
    data = sound(seed).tobytes()
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = head + b"data" + struct.pack("<I", len(data)) + data
    sys.stdout.buffer.write(b"RIFF" + struct.pack("<I", len(body)) + body + b"".join(needles(seed)))


def needles(seed: int) -> list[bytes]:
    """Pieces of the sound as file and samples have it; inverted, so that they do not find themselves."""
    piece = sound(seed)[RATE : RATE + SIZE // 4]  # SIZE / 2 bytes in the file, SIZE as floats
    floats = piece.astype(np.float32) / 32768
    return [bytes(~np.frombuffer(x.tobytes(), np.uint8)) for x in (piece, floats)]


def hits(inverted: list[bytes]) -> int:
    """How often a piece is in this process's memory."""
    found = 0
    gc.collect()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            span = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if span is None or "[v" in line:
                continue
            first, last = int(span[1], 16), int(span[2], 16)
            try:
                memory.seek(first)
                held = bytearray(memory.read(last - first))
            except (OSError, OverflowError, ValueError):
                continue
            view = np.frombuffer(held, np.uint8)
            np.invert(view, out=view)  # what was read is itself in memory, but not as it was
            found += sum(held.count(needle) for needle in inverted)
    return found


def read(size: int) -> bytearray:
    """So many bytes of the input, without a copy."""
    data = bytearray(size)
    at = 0
    with memoryview(data) as view:
        while at < size:
            got = os.readv(0, [view[at:]])
            if not got:
                raise EOFError
            at += got
    return data


async def take() -> None:
    from gateway.intake.clip import decode_clip

    data = read(44 + 2 * SECONDS * RATE)
    inverted = [bytes(read(SIZE // 2)), bytes(read(SIZE))]
    before = hits(inverted)
    clip = await decode_clip(data)
    print(before, any(data), hits(inverted), end=" ")
    clip.wipe()
    print(hits(inverted))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(int(sys.argv[2]))
    else:
        asyncio.run(take())
