"""The worker's side, in a thread of this process or as a process of its own, over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.tts_core.child.cases import LANGUAGE, Echo, Load, Message, Ready, ended, ends, spawned
from tts_core.child import serve as serve_module
from tts_core.child.failure import Failed
from tts_core.child.frames import FrameError
from tts_core.child.program import Program
from tts_core.child.serve import Channel, handshake, serve
from tts_core.errors import SettingsError

Ends = tuple[Channel[Message], socket.socket]


@pytest.fixture
def pair() -> Iterator[Ends]:
    with ends(LANGUAGE) as made:
        yield made


def shake(sock: socket.socket, load: Callable[[Load], tuple[Message, Callable[[], None]]]) -> None:
    handshake(Channel(sock, LANGUAGE), Load, load, failure="it could not be loaded")


def test_frames_go_both_ways_and_the_end_is_seen(pair: Ends) -> None:
    peer, theirs = pair
    channel = Channel(theirs, LANGUAGE)
    assert not channel.waiting()
    peer.send(Echo(1), b"abc")
    peer.send(Echo(2))
    assert channel.waiting()
    assert [(m, bytes(p)) for m, p in (channel.receive(), channel.receive())] == [
        (Echo(1), b"abc"),
        (Echo(2), b""),
    ]
    assert not channel.waiting()
    channel.send(Echo(3), bytes(9))
    message, payload = peer.receive()
    assert (message, bytes(payload)) == (Echo(3), bytes(9))
    peer.sock.close()
    assert channel.waiting()
    with pytest.raises(EOFError):
        channel.receive()


def test_it_loads_says_so_and_serves(pair: Ends) -> None:
    peer, theirs = pair
    served: list[str] = []
    peer.send(Load("x"))
    shake(theirs, lambda order: (Ready(5), lambda: served.append(order.error)))
    assert peer.receive()[0] == Ready(5)
    assert served == ["x"]


def test_an_error_of_ours_is_told_in_its_own_words(pair: Ends) -> None:
    peer, theirs = pair

    def load(_: Load) -> tuple[Message, Callable[[], None]]:
        raise SettingsError("no such model", field="VOXWIRE_MODEL")

    peer.send(Load())
    shake(theirs, load)
    assert peer.receive()[0] == Failed(0, "bad_settings", "no such model", "VOXWIRE_MODEL")


def test_any_other_error_is_told_without_its_words(pair: Ends, caplog: pytest.LogCaptureFixture) -> None:
    peer, theirs = pair

    def load(_: Load) -> tuple[Message, Callable[[], None]]:
        raise OSError("a secret place")

    peer.send(Load())
    shake(theirs, load)
    assert peer.receive()[0] == Failed(0, "engine_error", "it could not be loaded")
    assert "a secret place" in caplog.text


def test_the_first_message_must_say_what_to_load(pair: Ends) -> None:
    peer, theirs = pair
    peer.send(Echo(1))
    with pytest.raises(FrameError, match="Load"):
        shake(theirs, lambda order: (Ready(1), lambda: None))


def test_no_error_while_serving_is_taken_for_one_of_the_start(pair: Ends) -> None:
    peer, theirs = pair

    def serving() -> None:
        raise SettingsError("late")

    peer.send(Load())
    with pytest.raises(SettingsError):
        shake(theirs, lambda order: (Ready(1), serving))


@pytest.mark.parametrize(
    ("error", "status"), [(None, 0), (EOFError(), 0), (ConnectionResetError(), 0), (FrameError("x"), 1)]
)
def test_the_process_ends_with_its_work(
    error: Exception | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    status_of: list[int] = []
    guarded: list[bool] = []
    monkeypatch.setattr(os, "_exit", status_of.append)
    monkeypatch.setattr(serve_module, "_die_with_parent", lambda: guarded.append(True))
    ours, theirs = socket.socketpair()

    def work(sock: socket.socket) -> None:
        assert sock.getblocking()
        if error is not None:
            raise error

    with ours:
        serve(theirs.detach(), work)
        assert ours.recv(1) == b""
    assert (status_of, guarded) == ([status], [True])


def test_no_group_is_ended_that_others_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours may be led by the shell that started the tests; a worker leads its own."""
    groups: list[int] = []
    monkeypatch.setattr(os, "getpgrp", lambda: os.getpid() + 1)
    monkeypatch.setattr(os, "killpg", lambda group, sign: groups.append(group))
    serve_module._end_group()
    assert groups == []


OWNER = """
import sys
from tests.tts_core.child.cases import spawned
with spawned(sys.argv[1]) as (process, _, ready):
    print(process.pid, ready.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("name", "count"), [("echo", 1), ("loop", 1), ("deaf", 1), ("family", 2)])
def test_a_worker_and_its_own_die_with_the_owner(name: str, count: int) -> None:
    """The owner is killed; ``deaf`` and ``family``, which has started another process, look at no socket."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=Program("", "", 0.0).environment(),
        text=True,
    )
    assert owner.stdin is not None and owner.stdout is not None
    with owner.stdin, owner.stdout:
        watched = [os.pidfd_open(pid) for pid in {*map(int, owner.stdout.readline().split())}]
        assert len(watched) == count
        owner.send_signal(signal.SIGKILL)
        owner.wait(30)
    assert all(map(ended, watched))


def test_a_family_ends_with_its_work() -> None:
    with spawned("heir") as (process, peer, ready):
        watch = os.pidfd_open(ready.pid)
        peer.send(Echo(1))
        assert ended(watch)
        assert process.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("hold", [False, True])
def test_a_family_ends_when_the_socket_is_closed(hold: bool) -> None:
    """Also with something unread in the socket."""
    with spawned("family") as (process, peer, ready):
        watch = os.pidfd_open(ready.pid)
        if hold:
            peer.send(Echo(1), bytes(1000))
    assert process.wait(30) == -signal.SIGKILL
    assert ended(watch)
