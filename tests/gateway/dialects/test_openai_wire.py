"""OpenAI's speech messages: what is read, what is refused and under which name."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import openai_wire as wire
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest, Busy, LimitExceeded, Unauthorised, UnknownVoice, VoxwireError

OURS = (
    VoiceInfo("heart", "Heart", gender="female"),
    VoiceInfo("bella", "Bella", gender="female"),
    VoiceInfo("adam", "Adam", gender="male"),
)


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "input": "Hi.", "voice": "heart"} | fields).encode()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": 4}, "input"),
        ({"input": ["a"]}, "input"),
        ({"speed": 0.2}, "speed"),
        ({"speed": 4.1}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"response_format": "ogg"}, "response_format"),
        ({"response_format": 1}, "response_format"),
        ({"stream_format": "ws"}, "stream_format"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.parse(body(**fields))
    assert refused.value.field == field


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"null", b"[" * 100_000])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        wire.parse(raw)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_request_or_a_refusal(raw: bytes) -> None:
    try:
        assert wire.parse(raw).input
    except BadRequest as error:
        assert error.message


def test_unknown_fields_and_empty_ones_do_no_harm() -> None:
    asked = wire.parse(
        body(seed=4, instructions="softly", speed=None, response_format=None, stream_format=None)
    )
    assert wire.format_of(asked)[0] == "mp3"  # the vendor's default
    assert wire.voice_of(asked) == "heart"
    assert wire.voice_of(wire.parse(body(voice={"id": "adam"}))) == "adam"
    assert wire.voice_of(wire.parse(body(voice=None))) == ""


@pytest.mark.parametrize("voice", [3, ["heart"], {}, {"id": 3}, True])
def test_a_voice_that_is_no_name_is_refused(voice: object) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.voice_of(wire.parse(body(voice=voice)))
    assert refused.value.field == "voice"


def test_lone_surrogates_are_spoken_around() -> None:
    assert wire.parse(b'{"input":"a\\ud83d b"}').input == "a\ufffd b"


def test_the_vendors_voices_stand_for_ours_by_gender() -> None:
    found = {name: wire.stand_in(name, OURS, "heart") for name in wire.VOICES}
    gender = {v.id: v.gender for v in OURS}
    assert all(gender[str(ours)] == wire.VOICES[name] for name, ours in found.items())
    assert found["alloy"] != found["coral"]  # two voices for two names, where there are two
    assert wire.stand_in("onyx", OURS[:1], "heart") == "heart"
    assert wire.stand_in("andrew", OURS, "heart") is None


@given(st.binary())
def test_events_are_json_that_the_sdk_reads(data: bytes) -> None:
    told = json.loads(wire.delta(data))
    assert told["type"] == "speech.audio.delta"
    assert base64.b64decode(told["audio"]) == data


def test_the_end_counts_what_was_spoken() -> None:
    assert json.loads(wire.done(12, 1.5)) == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 12, "output_tokens": 30, "total_tokens": 42},
    }


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (Unauthorised("no key"), "invalid_request_error", "invalid_api_key"),
        (LimitExceeded("slower"), "rate_limit_error", "rate_limit_exceeded"),
        (Busy("full"), "rate_limit_error", "rate_limit_exceeded"),
        (UnknownVoice("none", field="voice"), "invalid_request_error", "unknown_voice"),
        (BadRequest("odd", field="input"), "invalid_request_error", "bad_request"),
        (VoxwireError(), "server_error", VoxwireError.code),
    ],
)
def test_errors_have_the_vendors_shape(error: VoxwireError, kind: str, code: str) -> None:
    said = wire.error_fields(error)["error"]
    assert set(said) == {"message", "type", "param", "code"}
    assert (said["type"], said["param"]) == (kind, error.field)
    assert said["code"] == code or error.status == 429
    assert json.loads(wire.failed(error)) == {"type": "error", "error": said}
