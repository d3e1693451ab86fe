"""The worker's loop in a thread of this process, with the real voice, and which voices it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.peers.piper_engine import RATE
from tests.tts_core.child.cases import ends, in_thread
from tests.tts_core.piper.conftest import add_voice
from tts_core.child.frames import numbers
from tts_core.errors import EngineError
from tts_core.piper import wire
from tts_core.piper.worker import RETRY_S, Voices, Worker


@pytest.fixture
def configure(tmp_path: Path, piper_here: None) -> wire.Configure:
    files = [
        wire.VoiceFile(str(add_voice(tmp_path, name)), ((name, None), (f"{name}#0", 0)))
        for name in ("one", "two", "three")
    ]
    return wire.Configure(tuple(files), RATE, 2)


@pytest.mark.slow
def test_it_loads_speaks_and_ends(configure: wire.Configure) -> None:
    with ends(wire.LANGUAGE) as (peer, theirs):
        thread, errors = in_thread(Worker(theirs).run)
        peer.send(configure)
        ready = peer.receive()[0]
        assert isinstance(ready, wire.Ready)
        assert 0 < ready.busy_s < ready.audio_s
        peer.send(wire.Speak(1, "Hello there.", "three#0", 1.0, None))
        (audio, payload), (done, _) = peer.receive(), peer.receive()
        assert isinstance(audio, wire.Audio)
        assert isinstance(done, wire.Done)
        assert audio.last
        assert [m[:2] for m in audio.marks] == [(0, 5), (6, 12)]
        assert done.audio_s == pytest.approx(len(numbers(payload, np.float32)) / RATE)
        peer.sock.close()
        thread.join(10)
        assert isinstance(errors[0], EOFError)


@pytest.mark.slow
def test_a_voice_that_cannot_be_loaded_costs_the_others_their_place_but_once(
    configure: wire.Configure,
) -> None:
    Path(configure.voices[2].path).unlink()
    voices = Voices(configure)
    assert voices["one"]
    assert voices["two"]
    with pytest.raises(EngineError, match=r"^the voice three\.onnx could not be loaded$"):
        voices["three#0"]
    assert voices["one"]
    assert voices.loaded == ["two.onnx", "one.onnx"]
    for name in ("three", "three#0"):
        with pytest.raises(EngineError, match=r"^the voice three\.onnx could not be loaded$"):
            voices[name]
    assert voices.loaded == ["two.onnx", "one.onnx"]


@pytest.mark.slow
def test_a_voice_that_could_not_be_loaded_is_tried_again_after_a_minute(configure: wire.Configure) -> None:
    now = 1000.0
    voices = Voices(configure, lambda: now)
    file = Path(configure.voices[2].path)
    aside = file.rename(file.with_suffix(".away"))

    def fails() -> bool:
        try:
            voices["three"]
        except EngineError as error:
            assert error.message == "the voice three.onnx could not be loaded"
            return True
        return False

    assert fails()
    aside.rename(file)
    now += RETRY_S - 1
    assert fails()  # it is not looked at
    now += 1
    assert not fails()
    file.rename(aside)
    assert not fails()  # it is held
    assert voices["one"]
    assert voices["two"]
    assert fails()
    now += RETRY_S
    assert fails()
    aside.rename(file)
    now += RETRY_S - 1
    assert fails()  # the minute begins with each try
    now += 1
    assert not fails()


@pytest.mark.slow
def test_it_holds_those_used_last(configure: wire.Configure) -> None:
    voices = Voices(configure)
    assert len(voices) == len(list(voices)) == 6
    for name in ("one", "two", "one#0", "three"):
        assert voices[name]
    assert voices.loaded == ["one.onnx", "three.onnx"]
