"""The process of ``Enroller``: codes of clips in, speaker prefixes out, one after another.

A question is a number of frames (u32) and 32 bytes for each; none asks for the model's null prefix. An answer
is a byte (0 fine, 1 the reference is at fault, 2 we are), a number of rows and of bytes (u32 each), and then
rows in float32 or words in UTF-8. All little-endian.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Protocol

import numpy as np

from tts_core.errors import BadRequest, VoxwireError
from tts_core.nanocodec import fsq

from .frames import Rows

log = logging.getLogger(__name__)

QUESTION = struct.Struct("<I")
ANSWER = struct.Struct("<BII")

MAX_FRAMES = 1 << 16
"""More than any reference: a question beyond it is none of ours."""

_NICENESS = 10
"""A voice is never as urgent as a call in progress on the same core."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Compressor(Protocol):
    """What is needed of ``speaker.Speaker``."""

    @property
    def null_prefix(self) -> Rows:
        """Float32 ``[K, hidden]``."""
        ...

    def prefix(self, codes: fsq.Codes) -> Rows:
        """Float32 ``[K, hidden]`` of codes ``[T, 32]``."""
        ...


def main(fd: int, directory: str) -> None:
    """Answer at ``fd`` until the other end goes away; never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.nice(_NICENESS)
    with socket.socket(fileno=fd) as sock:
        try:
            serve(sock, load(directory))
        except (EOFError, OSError):
            log.debug("the gateway is gone")
    os._exit(0)


def load(directory: str) -> Compressor | VoxwireError:
    """The compressor of a checkpoint, or why there is none: whoever asks is told."""
    import torch

    from .checkpoint import Checkpoint
    from .speaker import load_speaker

    torch.set_num_threads(1)
    try:
        return load_speaker(Checkpoint.open(Path(directory)))
    except VoxwireError as error:
        return error


def serve(sock: socket.socket, compressor: Compressor | VoxwireError) -> None:
    """Answer one question after another. Raises EOFError when the other end is gone."""
    while True:
        (count,) = QUESTION.unpack(_read(sock, QUESTION.size))
        if count > MAX_FRAMES:
            raise EOFError
        codes = np.frombuffer(_read(sock, count * fsq.CHANNELS), np.uint8).reshape(count, fsq.CHANNELS)
        sock.sendall(answer(compressor, codes))


def answer(compressor: Compressor | VoxwireError, codes: fsq.Codes) -> bytes:
    """The answer to a question."""
    try:
        if isinstance(compressor, VoxwireError):
            raise compressor
        rows = compressor.prefix(codes) if len(codes) else compressor.null_prefix
    except VoxwireError as error:
        words = error.message.encode()
        return ANSWER.pack(1 if isinstance(error, BadRequest) else 2, 0, len(words)) + words
    except Exception:
        log.exception("a voice could not be made")
        words = b"the voice could not be made"
        return ANSWER.pack(2, 0, len(words)) + words
    body = np.ascontiguousarray(rows, "<f4").tobytes()
    return ANSWER.pack(0, len(rows), len(body)) + body


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
