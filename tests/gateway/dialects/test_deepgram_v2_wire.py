"""Deepgram's turn-based messages: what is read and refused, and how offsets of the session are counted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import deepgram_v2_wire as wire
from sessions.events import AudioFormat, Encoding, Heard
from tts_core.engine import EngineInfo, VoiceInfo
from tts_core.errors import BadRequest, Busy, TextTooLong, VoxwireError

INFO = EngineInfo(name="tone", revision="1", native_rate=24000, voices=(VoiceInfo("heart", "Heart"),))
FIXED = replace(INFO, speed_range=(1.0, 1.0))


@given(st.binary() | st.text())
def test_any_message_is_one_of_the_dialect_or_a_refusal(raw: str | bytes) -> None:
    try:
        message = wire.parse(raw)
        assert message.type in {"Speak", "Flush", "Interrupt", "Configure", "Close"}
    except BadRequest as error:
        assert json.loads(wire.failure(error))["code"] in {"MESSAGE-0000", "DATA-0000"}


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Speak", "Flush", "Interrupt", "Configure", "Close", "Clear", ""])},
        optional={
            name: st.none() | st.text(max_size=3) | st.floats() | st.integers() | st.dictionaries(
                st.sampled_from(["type", "value"]), st.sampled_from(["time_ms", "x", 1, -1, 2.5, None]),
            )
            for name in ("text", "speed", "playback_offset", "other")
        },
    )
)  # fmt: skip
def test_fields_of_any_type_are_read_or_refused(fields: dict[str, object]) -> None:
    try:
        message = wire.parse(json.dumps(fields))
    except BadRequest as error:
        assert error.message
        return
    assert message.offset_ms is None or isinstance(message.offset_ms, int)


@pytest.mark.parametrize(
    ("raw", "field", "code"),
    [
        ('{"type":"Speak"}', "text", "MESSAGE-0000"),
        ('{"type":"Speak","text":4}', "text", "MESSAGE-0000"),
        ('{"type":"Clear"}', "type", "DATA-0000"),
        ('{"text":"a"}', "type", "MESSAGE-0000"),
        ('{"type":"Configure","speed":"fast"}', "speed", "MESSAGE-0000"),
        ('{"type":"Configure","speed":1e999}', "speed", "MESSAGE-0000"),
        ('{"type":"Interrupt","playback_offset":7}', "playback_offset", "MESSAGE-0000"),
        ('{"type":"Interrupt","playback_offset":{}}', "playback_offset.value", "MESSAGE-0000"),
        ('{"type":"Interrupt","playback_offset":{"value":"7"}}', "playback_offset.value", "MESSAGE-0000"),
        ('{"type":"Interrupt","playback_offset":{"value":1e300}}', "playback_offset.value", "MESSAGE-0000"),
        (
            '{"type":"Interrupt","playback_offset":{"type":"bytes","value":7}}',
            "playback_offset.type",
            "DATA-0000",
        ),
        ("[]", None, "MESSAGE-0000"),
        ("", None, "MESSAGE-0000"),
        ("[" * 100_000, None, "MESSAGE-0000"),
        (b"{}", None, "MESSAGE-0000"),
    ],
)
def test_what_is_wrong_is_named(raw: str | bytes, field: str | None, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.parse(raw)
    assert refused.value.field == field
    told = json.loads(wire.failure(refused.value))
    assert told["code"] == code
    assert field is None or told["description"].startswith(field)


def test_what_the_sdk_leaves_empty_is_read() -> None:
    assert wire.parse('{"type":"Interrupt","playback_offset":null}').offset_ms is None
    assert (
        wire.parse('{"type":"Interrupt","playback_offset":{"type":"time_ms","value":2340}}').offset_ms == 2340
    )
    assert wire.parse('{"type":"Interrupt","playback_offset":{"value":2340.9}}').offset_ms == 2340
    assert wire.parse('{"type":"Configure","speed":null}').speed is None
    assert wire.parse('{"type":"Configure","speed":1}').speed == 1.0
    assert wire.parse('{"type":"Speak","text":"a\\ud83d","x":1}').text == "a�"


def test_a_query_is_that_of_version_one_with_other_controls() -> None:
    params = wire.params_of(
        {"model": "flux-alexis-en", "encoding": "mulaw", "speed": "0.55", "expressivity": "-1", "tag": "a"},
        INFO,
    )
    assert params.format == AudioFormat(Encoding.MULAW, 8000)
    assert (params.model, params.speed) == ("flux-alexis-en", 0.55)
    assert wire.params_of({}, INFO).format == AudioFormat(Encoding.PCM_S16LE, 24000)
    assert wire.params_of({"speed": "1.0"}, FIXED).speed == 1.0
    assert wire.params_of({"encoding": "mp3"}, INFO, file=True).container == "mp3"


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"encoding": "mp3"}, "encoding", "UNSUPPORTED_FORMAT"),
        ({"sample_rate": "11025"}, "sample_rate", "UNSUPPORTED_FORMAT"),
        ({"container": "wav"}, "container", "UNSUPPORTED_FORMAT"),
        ({"speed": "0.45"}, "speed", "SPEED_OUT_OF_RANGE"),
        ({"speed": "1.55"}, "speed", "SPEED_OUT_OF_RANGE"),
        ({"speed": "nan"}, "speed", "SPEED_OUT_OF_RANGE"),
        ({"speed": "1e999"}, "speed", "SPEED_OUT_OF_RANGE"),
        ({"speed": "1.07"}, "speed", "SPEED_INCREMENT_INVALID"),
        ({"speed": "fast"}, "speed", "BAD_REQUEST"),
        ({"expressivity": "3"}, "expressivity", "EXPRESSIVITY_OUT_OF_RANGE"),
        ({"expressivity": "nan"}, "expressivity", "EXPRESSIVITY_OUT_OF_RANGE"),
        ({"expressivity": "1.5"}, "expressivity", "EXPRESSIVITY_INCREMENT_INVALID"),
        ({"expressivity": "calm"}, "expressivity", "BAD_REQUEST"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name_r30(query: dict[str, str], field: str, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.params_of(query, INFO)
    assert refused.value.field == field
    assert wire.error_fields(refused.value, "r")["err_code"] == code


def test_speeds_are_steps_within_what_the_voice_has() -> None:
    for step in range(10, 31):
        assert wire.speed_of(step * 0.05, INFO) == round(step * 0.05, 2)
    slow = replace(INFO, speed_range=(0.9, 1.1))
    assert wire.speed_of(0.9, slow) == 0.9
    for value, info, code in (
        (0.85, slow, "SPEED_OUT_OF_RANGE"),
        (1.15, FIXED, "SPEED_NOT_SUPPORTED"),
        (1.01, slow, "SPEED_INCREMENT_INVALID"),
    ):
        with pytest.raises(wire.ControlRefused) as refused:
            wire.speed_of(value, info)
        told = json.loads(wire.not_configured(refused.value))
        assert (told["code"], told["field"]) == (code, "speed")
        assert told.get("value") == (None if info is FIXED else value)


@given(
    st.sampled_from([8000, 16000, 22050, 24000, 44100, 48000]),
    st.lists(st.tuples(st.integers(0, 10**6), st.none() | st.integers(-5, 10**6)), max_size=20),
)
def test_the_tape_counts_as_its_client_does(rate: int, steps: list[tuple[int, int | None]]) -> None:
    tape = wire.Tape(rate)
    position: int | None = None
    for samples, ms in steps:
        before = tape.produced_ms
        tape.sent(samples)
        assert tape.produced_ms >= before
        if ms is None:
            position = tape.cut(None)
            assert position == tape.ms
        elif tape.advances(ms):
            assert ms >= 0
            assert position is None or ms > position
            position = tape.cut(ms)
            assert position == ms
            assert tape.samples == ms * rate // 1000
        assert tape.position_ms == position
        assert 0 <= tape.produced_ms <= sum(sent for sent, _ in steps) * 1000 / rate + 1


def test_a_late_interrupt_is_a_warning_that_tells_what_was_heard() -> None:
    heard = Heard(24000, 1000, "One two", " three.")
    late = json.loads(wire.interrupted_late("dg_sp_1", played_ms=1000, heard=heard))
    cut = json.loads(wire.speech_interrupted("dg_sp_1", 1500, 14, played_ms=1000, heard=heard))
    assert (late["type"], late["code"], late["speech_id"]) == ("Warning", "NO_ACTIVE_SPEECH", "dg_sp_1")
    assert late["description"]
    for name in ("audio_played_ms", "text_spoken", "text_remaining"):
        assert late[name] == cut[name]
    assert "metadata" not in late  # the turn has been counted
    blank = wire.Tape(24000)
    assert blank.blank
    blank.sent(480)
    blank.cut(0)
    assert (blank.blank, blank.samples) == (False, 0)


def test_an_interrupt_takes_back_what_was_not_played() -> None:
    tape = wire.Tape(24000)
    assert not tape.advances(-1)
    assert tape.advances(0)
    tape.sent(24000 * 6)
    tape.cut(3700)
    assert (tape.ms, tape.produced_ms) == (3700, 3700)
    assert not tape.advances(3700)
    tape.sent(24000)
    assert tape.cut(None) == 4700
    assert not tape.advances(4700)
    tape.cut(5000)  # a client that counts more than we sent goes on from there
    assert (tape.ms, tape.produced_ms) == (5000, 4700)


def test_words_of_the_gateway() -> None:
    told = json.loads(wire.connected("r1", "flux-alexis-en", INFO))
    assert (told["type"], told["request_id"], told["model_name"]) == ("Connected", "r1", "flux-alexis-en")
    assert len(told["model_uuids"]) == 1
    ident = wire.speech_id()
    assert ident.startswith("dg_sp_")
    assert len(ident) == len("dg_sp_") + 12
    told = json.loads(wire.speech_metadata(ident, 3200, 47))
    assert (told["audio_duration_ms"], told["input_character_count"]) == (3200, 47)
    assert told["controls_applied"] == {
        "pronunciations_applied": 0,
        "breaks_applied": 0,
        "pronunciation_warnings": 0,
    }
    told = json.loads(wire.speech_interrupted(ident, 3200, 47, played_ms=2340, heard=Heard(1, 1, "a", "b")))
    assert (told["audio_played_ms"], told["text_spoken"], told["text_remaining"]) == (2340, "a", "b")
    assert told["metadata"]["speech_id"] == ident
    told = json.loads(wire.speech_interrupted(ident, 3200, 47, played_ms=2340, heard=None))
    assert set(told) == {"type", "audio_played_ms", "metadata"}
    assert json.loads(wire.configured(None))["applied"] == {}
    assert json.loads(wire.configured(1.15))["applied"] == {"speed": 1.15}
    assert json.loads(wire.warning(wire.NO_ACTIVE_SPEECH))["code"] == "NO_ACTIVE_SPEECH"
    for error, code in (
        (Busy("full"), "NET-0000"),
        (TextTooLong("x"), "BIG-0000"),
        (VoxwireError(), "NET-0000"),
    ):
        told = json.loads(wire.failure(error))
        assert (told["code"], told["reason"]) == (code, error.code)
