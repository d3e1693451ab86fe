"""jambonz's messages: what is read, what is refused and under which name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import jambonz_wire as wire
from sessions.events import AudioFormat, Encoding
from tts_core.errors import BadRequest, Busy


@given(st.binary() | st.text())
def test_any_message_is_one_of_the_dialect_or_a_refusal(raw: str | bytes) -> None:
    try:
        assert wire.parse(raw).type in {"stream", "flush", "stop"}
    except BadRequest as error:
        assert error.message
    try:
        assert wire.body_of(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")).text
    except BadRequest as error:
        assert error.message


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ('{"type":"stream"}', "text"),
        ('{"type":"stream","text":3}', "text"),
        ('{"type":"connect"}', "type"),
        ('{"text":"a"}', "type"),
        ("{", None),
    ],
)
def test_what_is_wrong_is_named(raw: str, field: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.parse(raw)
    assert refused.value.field == field


@given(st.text())
def test_ssml_keeps_no_frame(text: str) -> None:
    made = wire.plain(f'<speak version="1.0">{text}</speak>')
    assert not made.startswith("<speak")


def test_ssml_keeps_tags_for_the_front_end_and_reads_entities() -> None:
    made = wire.plain('<?xml version="1.0"?><speak>Fish &amp; chips<break time="1s"/> &#8364;5</speak>')
    assert made == 'Fish & chips<break time="1s"/> €5'


def test_formats() -> None:
    assert wire.socket_format({}) == AudioFormat(Encoding.PCM_S16LE, 8000)
    assert wire.socket_format({"sampleRate": "16000"}).rate == 16000
    assert wire.file_format({}) == ("", AudioFormat(Encoding.PCM_S16LE, 24000))
    assert wire.file_format({"format": "l16"}) == ("l16", AudioFormat(Encoding.PCM_S16LE, 8000))
    for query in ({"sampleRate": "11025"}, {"sampleRate": "x"}, {"sampleRate": "٨"}, {"format": "ogg"}):
        with pytest.raises(BadRequest) as refused:
            wire.file_format(query)
        assert refused.value.field in query


def test_languages() -> None:
    for fine in (None, "", "en", "en-US", "EN_gb"):
        wire.check_language(fine, ("en",))
    with pytest.raises(BadRequest):
        wire.check_language("de-DE", ("en",))


def test_words_of_the_gateway() -> None:
    told = json.loads(wire.connect(AudioFormat(Encoding.PCM_S16LE, 16000)))
    assert told == {"type": "connect", "data": {"sample_rate": 16000, "base64_encoding": False}}
    assert json.loads(wire.failure(Busy("full"))) == {"type": "error", "error": "full", "code": "busy"}
    assert wire.error_fields(BadRequest("odd", field="text"))["error"] == "text: odd"
