"""The worker's loop, in a thread of this process, over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.child.cases import ends, in_thread
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError, numbers
from tts_core.child.serve import Channel
from tts_core.embedded import wire
from tts_core.embedded.gain import MAKE_UP
from tts_core.embedded.link import PROGRAM
from tts_core.embedded.speaker import Block, Speaker
from tts_core.embedded.trim import Trim
from tts_core.embedded.voices import available
from tts_core.embedded.worker import Worker, load, warm_up


def configuration(**changes: object) -> wire.Configure:
    voice, path = available("")[0]
    file = wire.VoiceFile(voice.id, str(path), voice.sha256, voice.british)
    values = {"voices": (file,), "trim": Trim(), "gain": MAKE_UP, **changes}
    return wire.Configure(**values)  # type: ignore[arg-type]


Ends = tuple[Channel[wire.Message], socket.socket]


@pytest.fixture
def pair() -> Iterator[Ends]:
    with ends(wire.LANGUAGE) as made:
        yield made


class Scripted:
    """A speaker whose blocks come when the test says so."""

    def __init__(self, blocks: int, fail: bool = False) -> None:
        self.blocks = blocks
        self.fail = fail
        self.made = 0
        self.go = threading.Semaphore(0)

    def speak(self, text: str, speed: float, seed: int | None, stop: Callable[[], bool]) -> Iterator[Block]:
        for k in range(self.blocks):
            self.go.acquire()
            self.made += 1
            yield Block(
                np.full(10, k, np.float32),
                ((0, 1, 0, 10),) if k == 0 else (),
                last=k == self.blocks - 1 and not self.fail,
            )
        if self.fail:
            raise RuntimeError(f"broken by {text}")


def speak_scripted(worker: Worker, scripted: Scripted) -> None:
    worker._speak(wire.Speak(7, "secret", "heart", 1.0, None), {"heart": scripted})


def test_it_loads_warms_up_speaks_and_ends_with_the_socket(pair: Ends) -> None:
    peer, theirs = pair
    thread, errors = in_thread(Worker(theirs).run)
    peer.send(configuration())
    ready = peer.receive()[0]
    assert isinstance(ready, wire.Ready)
    assert 0 < ready.busy_s < ready.audio_s
    for _ in range(2):
        peer.send(wire.Speak(3, "Hello there.", "heart", 1.0, None))
        frames = [peer.receive()]
        while not isinstance(frames[-1][0], wire.Done):
            frames.append(peer.receive())
        audio = [(m, numbers(payload, np.float32)) for m, payload in frames if isinstance(m, wire.Audio)]
        assert [m.last for m, _ in audio] == [False] * (len(audio) - 1) + [True]
        at = 0
        for m, pcm in audio:
            assert m.start == at
            at += len(pcm)
        assert frames[-1][0].audio_s == pytest.approx(at / 24_000)
        assert len(audio[0][0].marks) == 2
    peer.send(wire.Speak(4, "...", "heart", 1.0, None))
    empty, nothing = peer.receive()
    assert isinstance(empty, wire.Audio)
    assert empty.last
    assert len(nothing) == 0
    assert isinstance(peer.receive()[0], wire.Done)
    peer.sock.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(errors[0], EOFError)


def test_a_wrong_model_file_is_said_in_plain_words(pair: Ends, tmp_path: Path) -> None:
    peer, theirs = pair
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    thread, _ = in_thread(Worker(theirs).run)
    peer.send(configuration(voices=(wire.VoiceFile("heart", str(tmp_path / "m.onnx"), "0" * 64, False),)))
    failed = peer.receive()[0]
    assert isinstance(failed, Failed)
    assert failed.id == 0
    assert "not the released one" in failed.message
    assert str(tmp_path) not in failed.message
    thread.join(10)


def test_cancel_stops_at_the_next_block(pair: Ends) -> None:
    peer, theirs = pair
    scripted = Scripted(blocks=50)
    thread, errors = in_thread(lambda: speak_scripted(Worker(theirs), scripted))
    scripted.go.release(2)
    assert isinstance(peer.receive()[0], wire.Audio)
    peer.send(wire.Cancel(7))
    scripted.go.release()
    got = [peer.receive()[0]]
    while not isinstance(got[-1], wire.Done):
        got.append(peer.receive()[0])
    thread.join(10)
    assert not errors
    assert scripted.made <= 3


def test_a_late_cancel_of_another_request_stops_nothing(pair: Ends) -> None:
    peer, theirs = pair
    scripted = Scripted(blocks=3)
    peer.send(wire.Cancel(6))
    thread, errors = in_thread(lambda: speak_scripted(Worker(theirs), scripted))
    scripted.go.release(3)
    audio = [peer.receive()[0] for _ in range(3)]
    assert [m.last for m in audio] == [False, False, True]  # type: ignore[union-attr]
    assert isinstance(peer.receive()[0], wire.Done)
    thread.join(10)
    assert not errors


def test_a_failing_text_costs_only_its_request(pair: Ends, caplog: pytest.LogCaptureFixture) -> None:
    peer, theirs = pair
    scripted = Scripted(blocks=1, fail=True)
    scripted.go.release()
    thread, errors = in_thread(lambda: speak_scripted(Worker(theirs), scripted))
    assert isinstance(peer.receive()[0], wire.Audio)
    failed = peer.receive()[0]
    assert isinstance(failed, Failed)
    assert failed.id == 7
    assert "secret" not in failed.message
    assert isinstance(peer.receive()[0], wire.Done)
    thread.join(10)
    assert not errors


def test_anything_but_cancel_during_a_request_is_a_violation(pair: Ends) -> None:
    peer, theirs = pair
    scripted = Scripted(blocks=3)
    peer.send(wire.Ready(1, 1))
    thread, errors = in_thread(lambda: speak_scripted(Worker(theirs), scripted))
    scripted.go.release(3)
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(errors[0], FrameError)


def test_a_further_voice_is_loaded_beside_the_first() -> None:
    voice, path = available("")[0]
    files = (
        wire.VoiceFile("heart", str(path), voice.sha256, False),
        wire.VoiceFile("emma", str(path), voice.sha256, True),
    )
    speakers: dict[str, Speaker] = load(configuration(voices=files))
    assert list(speakers) == ["heart", "emma"]
    audio_s, busy_s = warm_up(speakers)
    assert audio_s > 1
    assert busy_s > 0


SUICIDE = """
import asyncio, os, sys
from tts_core.embedded import EmbeddedEngine
async def main():
    engine = EmbeddedEngine(workers=2)
    await engine.start()
    print(*engine.worker_pids, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_workers_die_with_their_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", SUICIDE], stdout=subprocess.PIPE, text=True, env=PROGRAM.environment()
    )
    assert parent.stdout is not None
    watched = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(watched) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    import select

    for fd in watched:
        # A process file descriptor is readable once the process has ended.
        assert select.select([fd], [], [], 10)[0]
        os.close(fd)
