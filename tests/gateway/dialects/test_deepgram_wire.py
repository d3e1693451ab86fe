"""Deepgram's messages: what is read, what is refused and under which name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import deepgram_wire as wire
from sessions.events import AudioFormat, Encoding
from tts_core.engine import EngineInfo, VoiceInfo
from tts_core.errors import BadRequest, Busy, UnknownVoice, VoxwireError

INFO = EngineInfo(
    name="tone",
    revision="1",
    native_rate=24000,
    voices=(VoiceInfo("heart", "Heart", gender="female"), VoiceInfo("adam", "Adam", gender="male")),
)
KNOWN = ["heart", "adam"]


@given(st.binary() | st.text())
def test_any_message_is_one_of_the_dialect_or_a_refusal(raw: str | bytes) -> None:
    try:
        message = wire.parse(raw)
        assert message.type in {"Speak", "Flush", "Clear", "Close", "KeepAlive"}
    except BadRequest as error:
        assert error.message
    try:
        assert wire.body_of(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass"))
    except BadRequest as error:
        assert error.message


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ('{"type":"Speak"}', "text"),
        ('{"type":"Speak","text":4}', "text"),
        ('{"type":"Speak","text":null}', "text"),
        ('{"type":"Shout","text":"a"}', "type"),
        ('{"text":"a"}', "type"),
        ('{"type":4}', "type"),
        ("[]", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_what_is_wrong_is_named(raw: str, field: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.parse(raw)
    assert refused.value.field == field


def test_unknown_fields_do_no_harm_and_lone_surrogates_are_mended() -> None:
    assert wire.parse('{"type":"Speak","text":"a\\ud83d","x":1}').text == "a\ufffd"


@pytest.mark.parametrize(
    ("query", "fmt"),
    [
        ({}, AudioFormat(Encoding.PCM_S16LE, 24000)),
        ({"encoding": "linear16", "sample_rate": "48000"}, AudioFormat(Encoding.PCM_S16LE, 48000)),
        ({"encoding": "mulaw"}, AudioFormat(Encoding.MULAW, 8000)),
        (
            {"encoding": "alaw", "sample_rate": "16000", "container": "none"},
            AudioFormat(Encoding.ALAW, 16000),
        ),
    ],
)
def test_formats_of_the_socket(query: dict[str, str], fmt: AudioFormat) -> None:
    params = wire.params_of({"model": "heart", "mip_opt_out": "false", **query})
    assert (params.format, params.container, params.speed) == (fmt, "pcm", 1.0)


@pytest.mark.parametrize(
    ("query", "container", "rate"),
    [
        ({}, "mp3", 22050),
        ({"encoding": "linear16"}, "wav", 24000),
        ({"encoding": "linear16", "container": "none"}, "pcm", 24000),
        ({"encoding": "mulaw", "container": "none"}, "pcm", 8000),
        ({"encoding": "opus", "container": "ogg"}, "opus", 48000),
        ({"encoding": "flac", "sample_rate": "16000"}, "flac", 16000),
        ({"encoding": "aac"}, "aac", 22050),
    ],
)
def test_formats_of_files(query: dict[str, str], container: str, rate: int) -> None:
    params = wire.params_of(query, file=True)
    assert (params.container, params.format.rate) == (container, rate)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"encoding": "mp3"}, "encoding"),
        ({"encoding": "pcm"}, "encoding"),
        ({"sample_rate": "11025"}, "sample_rate"),
        ({"sample_rate": "-8000"}, "sample_rate"),
        ({"sample_rate": "8e3"}, "sample_rate"),
        ({"sample_rate": "٨٠٠٠"}, "sample_rate"),
        ({"container": "wav"}, "container"),
        ({"speed": "0.5"}, "speed"),
        ({"speed": "2"}, "speed"),
        ({"speed": "nan"}, "speed"),
        ({"speed": "fast"}, "speed"),
    ],
)
def test_what_the_socket_cannot_make_is_refused_by_name_r30(query: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequest) as refused:
        wire.params_of(query)
    assert refused.value.field == field


def test_the_vendors_voices_stand_for_ours() -> None:
    def voice(model: str) -> str:
        return wire.voice_for(model, INFO, "heart", KNOWN)

    assert voice("aura-2-thalia-en") == "heart"
    assert voice("aura-2-orion-en") == voice("aura-orion-en") == voice("flux-zeus-en") == "adam"
    assert voice("") == voice("gepard-1.0") == voice("tone") == "heart"
    assert wire.voice_for("aura-2-orion-en", INFO, "heart", ["heart"]) == "heart"
    for model in ("aura-2-thalia-es", "andrew", "aura-2"):
        with pytest.raises(UnknownVoice) as refused:
            voice(model)
        assert refused.value.field == "model"


def test_words_of_the_gateway() -> None:
    told = json.loads(wire.metadata("r1", "aura-2-thalia-en", INFO))
    assert told["type"] == "Metadata"
    assert (told["request_id"], told["model_name"], told["model_version"]) == ("r1", "aura-2-thalia-en", "1")
    assert told["model_uuid"] == wire.model_uuid(INFO)
    assert json.loads(wire.flushed(3)) == {"type": "Flushed", "sequence_id": 3}
    assert json.loads(wire.cleared(0)) == {"type": "Cleared", "sequence_id": 0}
    # The SDK, LiveKit and pipecat read a warning under different names.
    said = json.loads(wire.warning(BadRequest("odd", field="text")))
    assert said["description"] == said["warn_msg"] == "text: odd"
    assert said["code"] == said["warn_code"] == "bad_request"
    assert json.loads(wire.failure(Busy("full"), "r2"))["err_msg"] == "full"
    assert set(wire.error_fields(VoxwireError("x"), "r3")) == {"err_code", "err_msg", "request_id"}
