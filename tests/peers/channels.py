"""What speech may pass on its way to a listener: real encoders (ffmpeg), and what networks do to packets.

A channel maps float32 samples and their rate to samples and a rate.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np

from telephony.dsp.pcm import decode, encode
from telephony.dsp.resample import Resampler
from tts_core.engine import Samples

Channel = Callable[[Samples, int], tuple[Samples, int]]
DEADLINE_S = 60.0
PACKET = 160


def at_rate(x: Samples, have: int, want: int) -> Samples:
    """Resample the whole of ``x``."""
    resampler = Resampler(have, want)
    return np.concatenate([resampler.process(x), resampler.flush()])


def mulaw(x: Samples, rate: int) -> tuple[Samples, int]:
    """A telephone line: mu-law at 8 kHz."""
    return decode(encode(at_rate(x, rate, 8000), "mulaw"), "mulaw"), 8000


def ffmpeg(container: str, *options: str, rate: int) -> Channel:
    """Through an encoder of ffmpeg and back, at ``rate``."""

    def run(x: Samples, have: int) -> tuple[Samples, int]:
        raw = ["-f", "f32le", "-ar", str(rate), "-ac", "1"]
        coded = _run([*raw, "-i", "-", *options, "-f", container, "-"], at_rate(x, have, rate).tobytes())
        source = ["-f", container, "-i", "-"]
        return np.frombuffer(_run([*source, *raw, "-"], coded), "<f4").astype(np.float32), rate

    return run


def _run(arguments: list[str], data: bytes) -> bytes:
    command = ["ffmpeg", "-hide_banner", "-loglevel", "error", *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=DEADLINE_S, check=True).stdout


def lossy(share: float, *, seed: int = 0) -> Channel:
    """A telephone line that loses packets of 20 ms and repeats the one before, quieter."""

    def run(x: Samples, rate: int) -> tuple[Samples, int]:
        y, rate = mulaw(x, rate)
        packets = y[: len(y) // PACKET * PACKET].reshape(-1, PACKET).copy()
        lost = np.random.default_rng(seed).random(len(packets)) < share
        for at in np.flatnonzero(lost):
            packets[at] = 0.7 * packets[at - 1] if at else 0
        return packets.reshape(-1), rate

    return run


def jumpy(*, seed: int = 3) -> Channel:
    """A jitter buffer that leaves out or repeats 5 to 15 ms every second or two."""

    def run(x: Samples, rate: int) -> tuple[Samples, int]:
        y, rate = mulaw(x, rate)
        chance, pieces, at = np.random.default_rng(seed), [], 0
        while at < len(y):
            length = int(chance.uniform(1, 2) * rate)
            pieces.append(y[at : at + length])
            at += length + int(chance.choice([-1, 1]) * chance.uniform(0.005, 0.015) * rate)
        return np.concatenate(pieces), rate

    return run


def off_clock(ppm: float) -> Channel:
    """Played by a clock that is off: interpolated with 32 taps."""

    def run(x: Samples, rate: int) -> tuple[Samples, int]:
        y, rate = mulaw(x, rate)
        where = np.arange(int(len(y) / (1 + ppm * 1e-6)) - 20) * (1 + ppm * 1e-6)
        whole, taps = np.floor(where).astype(int), np.arange(-15, 17)
        weights = np.sinc(taps - (where - whole)[:, None]) * np.hanning(34)[1:-1]
        around = np.pad(y, 16)[whole[:, None] + taps + 16]
        return np.asarray((around * weights).sum(1), np.float32), rate

    return run


CHANNELS: dict[str, Channel] = {
    "mu-law": mulaw,
    "mu-law, 5 % loss": lossy(0.05),
    "mu-law, jitter jumps": jumpy(),
    "mu-law, clock -100 ppm": off_clock(-100),
    "G.722": ffmpeg("g722", "-c:a", "g722", rate=16_000),
    "MP3 32k": ffmpeg("mp3", "-c:a", "libmp3lame", "-b:a", "32k", rate=24_000),
    "Opus 16k": ffmpeg("ogg", "-c:a", "libopus", "-b:a", "16k", "-application", "voip", rate=16_000),
    "Opus 10k narrow": ffmpeg("ogg", "-c:a", "libopus", "-b:a", "10k", "-application", "voip", rate=8000),
}
"""By name; all but the last are those through which every clip must be found (trust.md M2)."""
