from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.tone import ToneEngine
from tts_core.embedded import EmbeddedEngine
from tts_core.engine import Capacity, Engine, EngineInfo, SpeechChunk, SpeechRequest, VoiceInfo, WordMark
from tts_core.registry import load_engine

INFO = EngineInfo("tone", "1", 24000, (VoiceInfo("a", "A", gender="female"),))
REQUEST = SpeechRequest("r1", "Hello.", "a", b"\x00\x01", seed=7, speed=1.2, continues="And", deadline=5.0)


@pytest.mark.parametrize("value", [INFO, REQUEST, Capacity(3.5, 4, 2, 1, 4), WordMark(0, 5, 0, 2400)])
def test_the_contract_goes_over_a_wire(value: Any) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(value), type=type(value)) == value


def test_the_values_do_not_change() -> None:
    for value in (INFO, REQUEST, Capacity(1, 1, 1, 0, 1), WordMark(0, 1, 0, 1)):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, None)


def test_a_chunk_is_not_the_last_unless_it_says_so() -> None:
    chunk = SpeechChunk(np.zeros(3, np.float32), 0)
    assert (chunk.words, chunk.last) == ((), False)


def test_defaults_are_a_built_in_voice_at_normal_speed() -> None:
    request = SpeechRequest("r", "Hi.", "a")
    assert (request.conditioning, request.seed, request.speed, request.continues) == (None, None, 1.0, "")
    assert request.deadline is None
    assert (INFO.can_clone, INFO.text_form, INFO.languages) == (False, "spoken", ("en",))


@pytest.mark.parametrize("make", [ToneEngine, EmbeddedEngine, lambda: load_engine("embedded")])
def test_engines_fulfil_the_contract_before_they_start(make: Any) -> None:
    engine: Engine = make()
    assert engine.info.voices
    assert engine.info.native_rate > 0
    low, high = engine.info.speed_range
    assert low <= 1.0 <= high
    assert engine.capacity().free <= engine.capacity().slots
    for name, member in inspect.getmembers(Engine, inspect.isfunction):
        if name.startswith("_"):
            continue
        own = inspect.signature(getattr(type(engine), name))
        assert list(own.parameters) == list(inspect.signature(member).parameters), name
