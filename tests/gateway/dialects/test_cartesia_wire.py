from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import cartesia_wire as wire
from sessions.context import ContextOptions
from sessions.events import AudioFormat, Encoding, Word
from tts_core.errors import BadRequest, Busy, UnsupportedFormat
from tts_core.text.segment import TextMode

FORMAT = AudioFormat()
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)  # JSON has none
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    *("context_id", "model_id", "transcript", "voice", "output_format", "language", "continue", "flush"),
    *("cancel", "max_buffer_delay_ms", "add_timestamps", "generation_config", "speed", "locale"),
]


def request(**fields: Any) -> wire.Request:
    return wire.parse(json.dumps(fields))


def options(**fields: Any) -> ContextOptions:
    return wire.options_of(
        request(**fields), ContextOptions(), fmt=FORMAT, voice="v", languages=("en-US",), final=False
    )


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_message_is_a_request_or_a_bad_request(raw: str | bytes) -> None:
    try:
        wire.parse(raw)
    except BadRequest as error:
        assert error.message
    assert wire.context_of(raw) is None or isinstance(wire.context_of(raw), str)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6))
def test_any_fields_are_acted_on_or_named(fields: dict[str, Any]) -> None:
    try:
        parsed = request(**fields)
        wire.voice_of(parsed)
        wire.format_of(parsed, containers=("raw", "wav"))
        made = wire.options_of(parsed, ContextOptions(), fmt=FORMAT, voice="v", languages=("en",))
    except BadRequest as error:
        assert error.field is not None
        assert error.field.split(".")[0].split("[")[0] in FIELDS
    else:
        assert 0.5 <= made.speed <= 2.0
        assert 0.0 <= made.volume <= 2.0
        assert 0 < made.max_buffer_delay_s <= 5.0


def test_the_usual_request_is_read() -> None:
    parsed = request(
        context_id="c",
        transcript="Hi",
        voice={"mode": "id", "id": "heart"},
        output_format={"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000},
        **{"continue": True},
    )
    assert (parsed.context_id, parsed.transcript, parsed.continue_) == ("c", "Hi", True)
    assert wire.voice_of(parsed) == "heart"
    assert wire.format_of(parsed) == (AudioFormat(Encoding.MULAW, 8000), "raw")


@pytest.mark.parametrize(
    ("delay", "mode", "seconds"),
    [
        (None, TextMode.DELTA, 3.0),
        (3000, TextMode.DELTA, 3.0),
        (100, TextMode.DELTA, 0.1),
        (0, TextMode.SEGMENT, 3.0),
    ],
)
def test_the_buffer_delay_says_how_text_joins(delay: int | None, mode: TextMode, seconds: float) -> None:
    made = options(max_buffer_delay_ms=delay)
    assert made.text.mode is mode
    assert made.max_buffer_delay_s == seconds
    assert made.hold_s <= made.max_buffer_delay_s


def test_a_whole_text_is_final_whatever_the_delay() -> None:
    made = wire.options_of(
        request(max_buffer_delay_ms=0), ContextOptions(), fmt=FORMAT, voice="v", languages=("en",), final=True
    )
    assert made.text.mode is TextMode.FINAL


@pytest.mark.parametrize(
    ("fields", "speed"),
    [
        ({}, 1.0),
        ({"speed": None}, 1.0),
        ({"speed": "fast"}, 1.2),
        ({"speed": "slowest"}, 0.6),
        ({"speed": 0}, 1.0),
        ({"speed": 1}, 1.0),
        ({"speed": -0.5}, 0.8),
        ({"speed": 1.3}, 1.3),
        ({"generation_config": {"speed": 0.6}}, 0.6),
        ({"generation_config": {"speed": None}, "speed": "fast"}, 1.2),
        ({"generation_config": {"speed": 0.9}, "speed": "fast"}, 0.9),
    ],
)
def test_speeds_of_all_versions(fields: dict[str, Any], speed: float) -> None:
    assert options(**fields).speed == pytest.approx(speed)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"speed": True}, "speed"),
        ({"speed": 2}, "speed"),
        ({"speed": []}, "speed"),
        ({"generation_config": {"speed": 0.59}}, "generation_config.speed"),
        ({"generation_config": {"volume": 0.4}}, "generation_config.volume"),
        ({"max_buffer_delay_ms": -1}, "max_buffer_delay_ms"),
        ({"language": "fr-FR"}, "language"),
    ],
)
def test_what_is_out_of_range_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as error:
        options(**fields)
    assert error.value.field == field


@pytest.mark.parametrize("language", [None, "", "en", "en-GB", "EN_us"])
def test_the_language_belongs_to_the_voice(language: str | None) -> None:
    assert options(language=language).voice == "v"


@pytest.mark.parametrize(
    "fmt", [None, {}, {"encoding": "pcm_s16le"}, {"encoding": "mp3", "sample_rate": 8000}]
)
def test_a_format_that_is_not_whole_is_refused(fmt: dict[str, Any] | None) -> None:
    with pytest.raises(BadRequest) as error:
        wire.format_of(request(output_format=fmt))
    assert (error.value.field or "").startswith("output_format")


def test_wav_is_for_http_only_and_may_leave_out_its_encoding() -> None:
    asked = request(output_format={"container": "wav", "sample_rate": 24000})
    assert wire.format_of(asked, containers=("raw", "wav")) == (AudioFormat(Encoding.PCM_S16LE, 24000), "wav")
    with pytest.raises(UnsupportedFormat):
        wire.format_of(asked)


@given(st.text(max_size=40), st.binary(max_size=100), st.floats(0, 1e6))
def test_chunks_are_json_for_any_context_id(context_id: str, data: bytes, step: float) -> None:
    message = json.loads(wire.Wording(context_id).chunk(data, step))
    assert base64.b64decode(message["data"]) == data
    assert message["context_id"] == context_id
    assert message["type"] == "chunk"
    assert message["done"] is False
    assert message["step_time"] == pytest.approx(step, abs=0.001)


def test_every_wording_has_the_context_id_and_its_own_done() -> None:
    wording = wire.Wording("c")
    made = {
        wording.chunk(b"x", 1.0): ("chunk", False, 206),
        wording.timestamps((Word("Hi", 0, 2, 0.12345, 0.5),)): ("timestamps", False, 206),
        wording.flush_done(3): ("flush_done", False, 206),
        wording.done(): ("done", True, 200),
        wording.error(Busy("full", retry_after=1.5)): ("error", True, 429),
        wording.error(BadRequest("no", field="voice"), done=False): ("error", False, 400),
    }
    for text, expected in made.items():
        message = json.loads(text)
        assert message["context_id"] == "c"
        assert (message["type"], message["done"], message["status_code"]) == expected


def test_an_error_has_both_shapes_and_names_the_field() -> None:
    message = json.loads(wire.Wording(None).error(BadRequest("is wrong", field="voice"), "id-1"))
    assert message["error"] == message["message"] == "voice: is wrong"
    assert message["error_code"] == "bad_request"
    assert message["title"] == "Bad request"
    assert message["request_id"] == "id-1"
    assert message["context_id"] is None
    assert "retry_after" not in message
    assert wire.error_fields(Busy("full", retry_after=2.0))["retry_after"] == 2.0
