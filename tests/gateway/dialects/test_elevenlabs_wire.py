"""The ElevenLabs protocol without I/O: queries, messages and bodies read, events and errors worded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import elevenlabs_wire as wire
from gateway.dialects.elevenlabs_alignment import Slice
from sessions.context import ContextOptions
from sessions.events import Encoding
from tts_core.errors import (
    BadRequest,
    ContextIdle,
    Draining,
    EngineCrashed,
    Forbidden,
    LimitExceeded,
    Unauthorised,
    UnsupportedFormat,
)
from tts_core.text.segment import TextMode


@pytest.mark.parametrize(
    ("name", "container", "encoding", "rate", "bitrate"),
    [
        ("pcm_8000", "pcm", Encoding.PCM_S16LE, 8000, None),
        ("pcm_32000", "pcm", Encoding.PCM_S16LE, 32000, None),
        ("pcm_48000", "pcm", Encoding.PCM_S16LE, 48000, None),
        ("ulaw_8000", "pcm", Encoding.MULAW, 8000, None),
        ("alaw_8000", "pcm", Encoding.ALAW, 8000, None),
        ("mp3_22050_32", "mp3", Encoding.PCM_S16LE, 22050, 32_000),
        ("mp3_44100_192", "mp3", Encoding.PCM_S16LE, 44100, 192_000),
        ("opus_48000_64", "opus", Encoding.PCM_S16LE, 48000, 64_000),
        (None, "mp3", Encoding.PCM_S16LE, 44100, 128_000),
    ],
)
def test_a_format_is_what_its_name_says(
    name: str | None, container: str, encoding: Encoding, rate: int, bitrate: int | None
) -> None:
    found = wire.format_of(name)
    assert (found.container, found.format.encoding, found.format.rate, found.bitrate) == (
        container,
        encoding,
        rate,
        bitrate,
    )


@pytest.mark.parametrize("name", ["pcm_11025", "ulaw_16000", "mp3_8000_32", "wav", "PCM_8000", "opus"])
def test_another_format_is_refused_by_name_r30(name: str) -> None:
    with pytest.raises(UnsupportedFormat) as refused:
        wire.params_of({"output_format": name})
    assert refused.value.field == "output_format"
    assert "pcm_22050" in refused.value.message


def test_a_query_is_read_with_the_vendors_defaults() -> None:
    params = wire.params_of({})
    assert (params.auto_mode, params.inactivity_s, params.sync_alignment) == (False, 20.0, False)
    assert (params.normalise, params.tags, params.seed, params.drain) == (True, None, None, None)
    asked = wire.params_of(
        {
            "output_format": "pcm_22050",
            "auto_mode": "true",
            "inactivity_timeout": "180",
            "sync_alignment": "true",
            "apply_text_normalization": "off",
            "enable_ssml_parsing": "false",
            "seed": "4294967295",
            "language_code": "en",
            "close_context_policy": "drain",
            "model_id": "anything",
            "optimize_streaming_latency": "3",
        }
    )
    assert (asked.auto_mode, asked.inactivity_s, asked.sync_alignment) == (True, 180.0, True)
    assert (asked.normalise, asked.tags, asked.seed, asked.drain) == (False, False, 4294967295, True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"auto_mode": "yes please"}, "auto_mode"),
        ({"sync_alignment": "2"}, "sync_alignment"),
        ({"inactivity_timeout": "181"}, "inactivity_timeout"),
        ({"inactivity_timeout": "0"}, "inactivity_timeout"),
        ({"inactivity_timeout": "nan"}, "inactivity_timeout"),
        ({"inactivity_timeout": "soon"}, "inactivity_timeout"),
        ({"apply_text_normalization": "maybe"}, "apply_text_normalization"),
        ({"seed": "-1"}, "seed"),
        ({"seed": "4294967296"}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"close_context_policy": "never"}, "close_context_policy"),
    ],
)
def test_a_bad_query_is_refused_by_field(query: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.params_of({"output_format": "pcm_24000", **query})
    assert refused.value.field == field


def test_the_options_of_a_context() -> None:
    params = wire.params_of({"output_format": "ulaw_8000", "inactivity_timeout": "60", "seed": "7"})
    options = wire.options_of(params, ContextOptions(), voice="v", languages=("en-US",), speed=1.1)
    assert (options.voice, options.format.rate, options.seed, options.speed) == ("v", 8000, 7, 1.1)
    assert (options.idle_s, options.text.mode) == (60.0, TextMode.DELTA)
    auto = wire.params_of({"auto_mode": "true", "language_code": "en_GB"})
    assert wire.options_of(auto, ContextOptions(), voice="v", languages=("en-US",)).text.mode is (
        TextMode.SEGMENT
    )
    with pytest.raises(BadRequest) as refused:
        wire.options_of(
            wire.params_of({"language_code": "de"}), ContextOptions(), voice="v", languages=("en",)
        )
    assert refused.value.field == "language_code"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ('{"text": 5}', "text"),
        ('{"text": "a", "context_id": 5}', "context_id"),
        ('{"text": "a", "flush": "yes"}', "flush"),
        ('{"text": "a", "voice_settings": {"speed": "fast"}}', "voice_settings.speed"),
        ('{"text": "a", "generation_config": {"chunk_length_schedule": 50}}', "generation_config"),
        ("[]", None),
        ("{", None),
        ("null", None),
        ("", None),
        ("[" * 5000, None),
    ],
)
def test_a_bad_message_is_refused_by_field(raw: str, field: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.parse(raw)
    assert (refused.value.field or "").startswith(field or "")
    assert bool(refused.value.field) is (field is not None)


def test_binary_messages_are_not_of_this_protocol() -> None:
    with pytest.raises(BadRequest):
        wire.parse(b'{"text": "a"}')


def test_a_message_is_read_in_the_spellings_that_occur() -> None:
    assert wire.parse('{"contextId": "x"}').context == "x"
    assert wire.parse('{"context_id": "y", "contextId": "x"}').context == "y"
    assert wire.parse('{"text": ""}').context == wire.parse('{"context_id": ""}').context == "default"
    message = wire.parse('{"text": " ", "voice_settings": null, "unknown": [1]}')
    assert (message.text, message.speed, message.schedule) == (" ", None, None)
    assert wire.parse('{"voice_settings": {"stability": "odd", "speed": 1.2}}').speed == 1.2
    assert wire.parse('{"generator_config": {"chunk_length_schedule": [50, 80.0]}}').schedule == (50, 80)
    assert wire.parse('{"xi-api-key": "k"}').credential == "k"
    assert wire.parse('{"xi_api_key": "k"}').credential == "k"
    assert wire.parse('{"authorization": "Bearer k"}').credential == "k"
    assert wire.parse('{"authorization": 5}').credential == ""
    assert wire.parse('{"text": "a\\ud83d"}').text == "a�"
    assert wire.context_of('{"context_id": "x", "text": 5}') == "x"
    assert wire.context_of("{") is None


@pytest.mark.parametrize("lengths", [[0], [501], [50, -1], [1e9], [50] * 65])
def test_a_schedule_that_nobody_could_mean_is_refused(lengths: list[float]) -> None:
    with pytest.raises(BadRequest) as refused:
        _ = wire.parse(json.dumps({"generation_config": {"chunk_length_schedule": lengths}})).schedule
    assert refused.value.field == "generation_config.chunk_length_schedule"


@pytest.mark.parametrize("speed", [0, 0.2, 4.1, -1])
def test_a_speed_that_nobody_could_mean_is_refused(speed: float) -> None:
    with pytest.raises(BadRequest) as refused:
        _ = wire.parse(json.dumps({"voice_settings": {"speed": speed}})).speed
    assert refused.value.field == "voice_settings.speed"


def test_chunks_are_worded_as_the_vendor_does() -> None:
    found = Slice(("a", '"'), (0, 40), (40, 60))
    arrays = {"chars": ["a", '"'], "charStartTimesMs": [0, 40], "charDurationsMs": [40, 60]}
    assert json.loads(wire.Wording("x\n").chunk(b"\x01\x02", found)) == {
        "audio": "AQI=",
        "isFinal": False,
        "alignment": arrays,
        "normalizedAlignment": arrays,
        "contextId": "x\n",
    }
    assert json.loads(wire.Wording(None).chunk(b"", None)) == {
        "audio": None,
        "isFinal": None,
        "alignment": None,
        "normalizedAlignment": None,
    }
    assert json.loads(wire.Wording(None).final()) == {
        "audio": None,
        "isFinal": True,
        "alignment": None,
        "normalizedAlignment": None,
    }
    assert json.loads(wire.Wording("x").final())["contextId"] == "x"


def test_times_over_http_are_in_seconds() -> None:
    assert wire.timestamps(None) is None
    assert wire.timestamps(Slice(("a", "b"), (0, 40), (40, 60))) == {
        "characters": ("a", "b"),
        "character_start_times_seconds": [0.0, 0.04],
        "character_end_times_seconds": [0.04, 0.1],
    }


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (ContextIdle("no text"), "input_timeout_exceeded", 1008),
        (BadRequest("bad", field="text"), "bad_request", 1008),
        (Unauthorised("no"), "invalid_api_key", 1008),
        (Forbidden("no"), "missing_permissions", 1008),
        (LimitExceeded("full"), "limit_exceeded", 1013),
        (Draining("restart"), "draining", 1012),
        (EngineCrashed("gone"), "engine_crashed", 1011),
    ],
)
def test_errors_have_a_message_a_name_and_a_code(error: Any, name: str, code: int) -> None:
    told = json.loads(wire.Wording("x").error(error, final=True))
    assert (told["error"], told["code"], told["contextId"], told["isFinal"]) == (name, code, "x", True)
    assert told["message"] == ("text: bad" if error.field else error.message)
    assert "isFinal" not in json.loads(wire.Wording("x").error(error, final=False))
    assert set(json.loads(wire.Wording(None).error(error, final=True))) == {"message", "error", "code"}
    assert wire.detail(error) == {"detail": {"status": name, "message": told["message"]}}


@given(st.text())
def test_any_text_as_a_message_is_read_or_refused(raw: str) -> None:
    try:
        wire.parse(raw)
    except BadRequest:
        wire.context_of(raw)


@given(st.binary())
def test_any_bytes_as_a_body_are_read_or_refused(raw: bytes) -> None:
    try:
        wire.body_of(raw)
    except BadRequest:
        pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(wire.Message.__struct_encode_fields__), json_values))
def test_any_fields_are_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        message = wire.parse(json.dumps(fields))
        _ = message.context, message.credential, message.speed, message.schedule
    except BadRequest as error:
        assert error.message
