"""Runs the decoder on one file: a process of its own, fed and read through memory alone.

The file goes to an anonymous memory file that becomes the decoder's standard input, the samples come back
through a pipe into one buffer; nothing has a name or touches a disk. What the process may do is in
:mod:`gateway.intake.decoder_worker`; here it gets an empty environment, the one demuxer and codec that the
file's header named, and a deadline, and is cut off at the first sample beyond the longest clip.

ffmpeg's own resampler (swr: in every build, unlike soxr) makes 22,050 Hz with a filter of 64 taps a phase,
and mixes to mono with coefficients that sum to 1: its default would play two equal channels 3 dB too loud.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tts_core.errors import SettingsError

from .activity import RATE, Samples
from .decoder_worker import NOT_RUN, UNCONFINED
from .refusal import ReferenceRefused
from .sniff import Media

WORKER = Path(__file__).with_name("decoder_worker.py")

_STOPPED = 255  # how ffmpeg ends after a signal that it could still handle, as SIGXCPU
_BLOCK = 1 << 18
_WORDS = 8192  # bytes of its messages that we look at


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one decoding.

    Attributes:
        max_bytes: of the file: a minute of 24-bit stereo at 48 kHz and some.
        max_seconds: of the sound, counted on decoded samples; ``slack_s`` more for the padding that codecs
            add.
        cpu_s: processor seconds, whole.
        memory: bytes of address space; a Debian ffmpeg maps 290 MiB of libraries alone.
        wall_s: deadline from the start of the process to its end.
    """

    max_bytes: int = 24 << 20
    max_seconds: float = 60.0
    slack_s: float = 0.25
    cpu_s: int = 5
    memory: int = 512 << 20
    wall_s: float = 15.0

    @property
    def most(self) -> int:
        """Most samples of a clip."""
        return int((self.max_seconds + self.slack_s) * RATE)


def find_ffmpeg() -> str | None:
    """Absolute path of the ffmpeg on this machine, or None."""
    found = shutil.which("ffmpeg")
    return None if found is None else str(Path(found).resolve())


def arguments(media: Media) -> list[str]:
    """What ffmpeg is told: one demuxer, codec and stream, no protocol but those of its input and output."""
    protocol, source = ("file", "/dev/fd/0") if media.seek else ("pipe", "pipe:0")
    return [
        *("-nostdin", "-hide_banner", "-loglevel", "error", "-max_alloc", str(64 << 20)),
        *(
            "-protocol_whitelist",
            protocol,
            "-format_whitelist",
            media.demuxer,
            "-codec_whitelist",
            media.codec,
        ),
        *("-max_streams", "8", "-probesize", str(1 << 20), "-analyzeduration", "5000000", "-threads", "1"),
        *(("-enable_drefs", "0", "-use_absolute_path", "0") if media.kind == "m4a" else ()),
        *("-err_detect", "crccheck", "-f", media.demuxer, "-c:a", media.codec, "-i", source),
        *(
            "-map",
            "0:a:0",
            "-vn",
            "-sn",
            "-dn",
            "-map_metadata",
            "-1",
            "-filter_threads",
            "1",
            "-threads",
            "1",
        ),
        *("-rematrix_maxval", "1.0", "-filter_size", "64", "-ac", "1", "-ar", str(RATE)),
        *("-f", "f32le", "-c:a", "pcm_f32le", "pipe:1"),
    ]


def sandbox(ffmpeg: str, limits: Limits | None = None) -> tuple[str, ...]:
    """Names of what confines the decoder on this machine.

    Of limits, nobody, no_new_privs, landlock, seccomp, network. Blocks for some 50 ms: it starts the process,
    which tells.
    """
    done = subprocess.run(  # noqa: S603 - our own interpreter and arguments
        _command(limits or Limits(), "--report", ffmpeg), capture_output=True, env={}, timeout=10, check=False
    )
    return tuple(done.stdout.decode("ascii", "replace").split())


def _command(limits: Limits, *rest: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", str(WORKER), str(limits.cpu_s), str(limits.memory), *rest]


class Decoding:
    """One run of the decoder. ``run`` blocks (in a thread); ``stop``, from any other, ends it at once."""

    def __init__(
        self, ffmpeg: str, media: Media, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._command = _command(limits, ffmpeg, *arguments(media))
        self._media, self._limits, self._clock = media, limits, clock
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Kill the process; ``run`` then ends with ``decoder_limit``."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def run(self, data: memoryview) -> tuple[Samples, bool]:
        """Decode a file.

        Returns:
            float32 ``[n]`` mono at 22,050 Hz in a buffer of its own, and whether the decoder found faults in
            the file.

        Raises:
            ReferenceRefused: ``too_long``, ``undecodable``, ``empty``, or ``decoder_limit`` (time or memory).
            SettingsError: ffmpeg does not run here, or cannot be confined.
        """
        memory = _memory(data[self._media.start :])
        try:
            return self._decode(memory)
        finally:
            _overwrite(memory)
            os.close(memory)

    def _decode(self, memory: int) -> tuple[Samples, bool]:
        # Not the descriptor that wrote it: the decoder gets one for reading.
        reading = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with self._lock:
                if self._stopped:
                    raise _limit()
                process = self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                    self._command,
                    stdin=reading,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env={},
                    cwd="/",
                    bufsize=0,
                )
        finally:
            os.close(reading)
        buffer = np.empty(self._limits.most + 1, np.float32)
        kept = False
        try:
            count, words = self._read(process, buffer.data.cast("B"))
            self._judge(process.returncode)
            if not count:
                raise ReferenceRefused("empty", "the recording holds no sound")
            kept = True
            return buffer[:count], b" @ 0x" in words
        finally:
            if not kept:
                buffer.fill(0)

    def _read(self, process: subprocess.Popen[bytes], out: memoryview) -> tuple[int, bytes]:
        """Read until the process has ended: how many samples, and its messages. It is gone afterwards."""
        assert process.stdout is not None and process.stderr is not None
        until = self._clock() + self._limits.wall_s
        at, words = 0, b""
        try:
            with selectors.DefaultSelector() as selector:
                for pipe in (process.stdout, process.stderr):
                    os.set_blocking(pipe.fileno(), False)
                    selector.register(pipe, selectors.EVENT_READ)
                while selector.get_map():
                    ready = selector.select(max(0.0, until - self._clock()))
                    if not ready or self._clock() > until:
                        raise _limit()
                    for key, _ in ready:
                        if key.fileobj is process.stderr:
                            said = os.read(key.fd, _WORDS)
                            words, got = (words + said)[-_WORDS:], len(said)
                        else:
                            got = os.readv(key.fd, [out[at : at + _BLOCK]])
                            at += got
                            if at == len(out):
                                raise self._too_long()
                        if not got:
                            selector.unregister(key.fileobj)
            process.wait(max(0.01, until - self._clock()))
        except subprocess.TimeoutExpired:
            raise _limit() from None
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        return at // 4, words

    def _too_long(self) -> ReferenceRefused:
        most = f"{self._limits.max_seconds:g} seconds"
        return ReferenceRefused("too_long", f"the recording must not be longer than {most}")

    def _judge(self, status: int) -> None:
        if status == 0:
            return
        if self._stopped or status in {_STOPPED, -signal.SIGXCPU, -signal.SIGKILL}:
            raise _limit()
        if status == UNCONFINED:
            raise SettingsError("the media decoder cannot be confined on this system: references are refused")
        if status == NOT_RUN:
            raise SettingsError("ffmpeg does not run on this gateway within the limits of the media decoder")
        raise ReferenceRefused("undecodable", "the recording cannot be decoded")


def _limit() -> ReferenceRefused:
    return ReferenceRefused("decoder_limit", "the recording takes too much time or memory to decode")


def _memory(data: memoryview) -> int:
    """An anonymous memory file with these bytes, to be read from its start."""
    fd = os.memfd_create("reference", os.MFD_CLOEXEC)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:])
    except OSError:
        os.close(fd)
        raise
    return fd


def _overwrite(fd: int) -> None:
    size = os.fstat(fd).st_size
    zeros = bytes(min(size, _BLOCK))
    for at in range(0, size, _BLOCK):
        os.pwrite(fd, zeros[: size - at], at)


__all__ = ["WORKER", "Decoding", "Limits", "arguments", "find_ffmpeg", "sandbox"]
