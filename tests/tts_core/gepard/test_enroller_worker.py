from __future__ import annotations

import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.tts_core.gepard.cases import random_codes
from tts_core.errors import SettingsError
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.enroller_worker import ANSWER, MAX_FRAMES, QUESTION, answer, load, serve
from tts_core.gepard.frames import Rows
from tts_core.gepard.speaker import Speaker, load_speaker
from tts_core.nanocodec import fsq


@pytest.fixture(scope="module")
def speaker(checkpoint: Checkpoint) -> Speaker:
    return load_speaker(checkpoint)


def parsed(data: bytes) -> tuple[int, Rows | str]:
    status, rows, size = ANSWER.unpack(data[: ANSWER.size])
    body = data[ANSWER.size :]
    assert len(body) == size
    return status, body.decode() if status else np.frombuffer(body, "<f4").reshape(rows, -1)


def test_rows_come_back(speaker: Speaker) -> None:
    codes = random_codes(70)
    status, rows = parsed(answer(speaker, codes))
    assert status == 0
    assert np.array_equal(rows, speaker.prefix(codes))
    status, rows = parsed(answer(speaker, codes[:0]))
    assert status == 0
    assert np.array_equal(rows, speaker.null_prefix)


def test_faults_are_told_apart(speaker: Speaker) -> None:
    assert parsed(answer(speaker, random_codes(1300)))[0] == 1
    assert parsed(answer(SettingsError("no speakers here"), random_codes(3))) == (2, "no speakers here")

    class Broken:
        null_prefix: Rows

        def prefix(self, codes: fsq.Codes) -> Rows:
            raise ZeroDivisionError("inner words")

    status, words = parsed(answer(Broken(), random_codes(3)))
    assert status == 2
    assert "inner" not in words


def test_a_checkpoint_that_cannot_be_served_is_told_to_who_asks(tmp_path: Path, directory: Path) -> None:
    assert isinstance(load(str(tmp_path)), SettingsError)
    assert isinstance(load(str(directory)), Speaker)


def test_questions_are_answered_until_the_other_end_goes(speaker: Speaker) -> None:
    ours, theirs = socket.socketpair()
    ended: list[type[BaseException]] = []

    def run() -> None:
        try:
            serve(theirs, speaker)
        except (EOFError, OSError) as error:
            ended.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    with theirs, ours:
        codes = random_codes(5)
        question = QUESTION.pack(5) + codes.tobytes()
        for part in (question[:3], question[3:50], question[50:]):
            ours.sendall(part)
        status, _, size = ANSWER.unpack(ours.recv(ANSWER.size, socket.MSG_WAITALL))
        body = ours.recv(size, socket.MSG_WAITALL)
        assert status == 0
        assert body == speaker.prefix(codes).astype("<f4").tobytes()
        ours.sendall(QUESTION.pack(MAX_FRAMES + 1))
        thread.join(10)
    assert ended == [EOFError]
