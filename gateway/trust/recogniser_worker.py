"""Hears recordings, one after the other: run as a program, ``python -I -B recogniser_worker.py MODEL FD``.

The interpreter has faster-whisper; nothing of ours is imported. It loads the model, says ``{"ready": true}``,
and waits. Each line on standard input, ``{"language": "en"}``, says that the memory file FD holds a WAV file
by now, and is answered by ``{"text": ...}``, or ``{"failed": the error's class}``; then the sound is
overwritten here. It ends with its input.

It dies with the gateway, runs at a lower priority than calls and leaves no core dump (a limit of 1 and not 0,
which a kernel that pipes dumps to a program would not heed: core(5)).
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

NICE = 10
THREADS = 2
BEFORE_S, AFTER_S = 0.3, 0.5
"""Silence around a recording, without which a first or last word is missed at times."""
RATE = 16_000
_PR_SET_PDEATHSIG = 1


def say(answer: dict[str, object]) -> None:
    """One line of JSON."""
    print(json.dumps(answer), flush=True)


def confine() -> None:
    """See the module."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    os.nice(NICE)


def hear(model: Any, fd: int, language: str) -> str:
    """What is said in the WAV file of ``fd``.

    No prompt: words that are expected would be heard. The default fallback of temperatures stays on: without
    it a model may repeat itself for ever.
    """
    import numpy as np
    from faster_whisper import decode_audio

    sound = decode_audio(f"/proc/self/fd/{fd}", sampling_rate=RATE)
    padded = np.pad(sound, (int(BEFORE_S * RATE), int(AFTER_S * RATE)))
    try:
        segments, _ = model.transcribe(
            padded, language=language, without_timestamps=True, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)
    finally:
        sound.fill(0)
        padded.fill(0)


def main(path: str, fd: int) -> int:
    """Returns the exit status."""
    confine()
    try:
        from faster_whisper import WhisperModel

        model = WhisperModel(
            path, device="cpu", compute_type="int8", cpu_threads=THREADS, local_files_only=True
        )
        say({"ready": True})
        for line in sys.stdin:
            say({"text": hear(model, fd, json.loads(line)["language"])})
    except Exception as error:  # whatever it is, the gateway is told its kind alone
        say({"failed": type(error).__name__})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
