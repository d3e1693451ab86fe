"""Wyoming's events as bytes: every way of arriving, limits, and damage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wyoming import wire
from gateway.wyoming.wire import Broken, Event, Limits, Reader, Voice
from tests.peers.wyoming_client import packed
from tts_core.engine import EngineInfo, VoiceInfo
from tts_core.errors import BadRequest, TextTooLong, UnknownVoice

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    Event, st.text("abcdefgh-", min_size=1, max_size=20), st.dictionaries(TEXT, VALUES), st.just(b"")
)


def take(data: bytes, sizes: list[int], limits: Limits | None = None) -> tuple[Reader, list[Any]]:
    """All that comes of ``data`` in pieces of these sizes, over and over."""
    reader = Reader(limits)
    found: list[Any] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    return reader, found


@given(
    st.lists(st.tuples(EVENTS, st.binary(max_size=40)), max_size=6),
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
)
def test_what_is_written_is_read_however_it_arrives(
    events: list[tuple[Event, bytes]], sizes: list[int]
) -> None:
    stream = b"".join(wire.encode(event.type, event.data, payload) for event, payload in events)
    reader, found = take(stream, sizes)
    assert found == [event for event, _ in events]  # a client's payload is passed over
    assert not reader.within


def test_members_beside_the_head_and_blank_lines_are_taken() -> None:
    stream = b'\r\n\n{"type":"a","data":{"x":1,"y":2},"data_length":7,"z":[]}\n{"y":3}{"type":"b"}\n'
    assert take(stream, [1])[1] == [Event("a", {"x": 1, "y": 3}), Event("b")]


def test_any_number_of_blank_lines_is_nothing_and_costs_one_look() -> None:
    looks = 0

    class Counted(bytearray):
        def find(self, *wanted: Any) -> int:
            nonlocal looks
            looks += 1
            return super().find(*wanted)

        def lstrip(self, *wanted: Any) -> bytearray:
            return Counted(super().lstrip(*wanted))

    reader = Reader(Limits(line=128))
    reader._buffer = Counted()
    assert reader.feed(b" \r\n\n" * 20_000) == []
    assert not reader.within
    assert reader.feed(b'\n \n{"type":"a"}\n\n\n') == [Event("a")]
    assert not reader.within
    assert looks == 3


@given(st.text("ab\n ", max_size=20), st.lists(st.integers(1, 9000), min_size=1, max_size=3))
def test_of_a_long_block_the_members_that_mean_something_are_read(text: str, sizes: list[int]) -> None:
    meant = {"text": text + "é" * wire.SHORT, "voice": {"name": text}, "text_format": None}
    data: dict[str, Any] = {**meant, "other": [[]] * 30_000}
    assert take(wire.encode("synthesize", data), sizes)[1] == [Event("synthesize", meant)]


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"voice": [[]] * 30_000}, "voice", "voice is too large"),
        ({"text": [[]] * 30_000}, "text", "text is too large"),
        ([[]] * 30_000, None, "in the data: Expected `object`, got `array`"),
    ],
)
def test_a_long_block_of_something_else_costs_one_event_alone(
    data: Any, field: str | None, words: str
) -> None:
    body = json.dumps(data).encode()
    head = json.dumps({"type": "synthesize", "data_length": len(body)}).encode()
    fault, event = Reader().feed(head + b"\n" + body + packed("ping", text="x"))
    assert isinstance(fault, BadRequest)
    assert (fault.field, fault.message) == (field, words)
    assert event == Event("ping", {"text": "x"})


@given(st.binary(max_size=400), st.lists(st.integers(1, 60), min_size=1, max_size=3))
def test_no_bytes_do_more_than_break_the_connection(data: bytes, sizes: list[int]) -> None:
    limits = Limits(line=100, data=100, payload=100)
    try:
        reader, found = take(data, sizes, limits)
    except Broken as error:
        assert error.message
        return
    assert all(isinstance(item, Event | BadRequest) for item in found)
    assert len(reader._buffer) <= 200 + max(sizes)


@given(
    st.lists(EVENTS, min_size=1, max_size=3), st.data(), st.lists(st.integers(1, 60), min_size=1, max_size=3)
)
def test_damaged_events_are_read_or_refused(
    events: list[Event], data: st.DataObject, sizes: list[int]
) -> None:
    stream = bytearray(b"".join(wire.encode(event.type, event.data) for event in events))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = take(bytes(stream), sizes)[1]
    except Broken:
        return
    assert all(isinstance(item, Event | BadRequest) for item in found)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"nonsense\n", "JSON"),
        (b"[1]\n", "object"),
        (b"{}\n", "type"),
        (b'{"type": 5}\n', "str"),
        (b'{"type": "a", "data_length": "9"}\n', "int"),
        (b'{"type": "a", "data_length": -1}\n', "int"),
        (b'{"type": "a", "data": []}\n', "object"),
        (b'{"type": "a", "data_length": 65}\n', "at most 64 bytes"),
        (b'{"type": "a", "payload_length": 33}\n', "at most 32 bytes"),
        (b'{"type": "\xff"}\n', "JSON"),
        (b"[" * 100 + b"\n", "object"),
        (b'{"type": "%s"}\n' % (b"a" * 300), "at most 128 bytes"),
        (b"a" * 129, "at most 128 bytes"),
    ],
)
def test_what_is_no_event_breaks_the_connection(line: bytes, words: str) -> None:
    with pytest.raises(Broken, match=words):
        Reader(Limits(line=128, data=64, payload=32)).feed(line)


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a": \xff}', b"null", b"{" * 5000])
@pytest.mark.parametrize("payload", [b"", b"xyz"])
def test_bad_data_costs_one_event_alone(body: bytes, payload: bytes) -> None:
    head = json.dumps({"type": "synthesize", "data_length": len(body), "payload_length": len(payload)})
    stream = head.encode() + b"\n" + body + payload + packed("ping", text="x")
    fault, event = take(stream, [3])[1]
    assert isinstance(fault, BadRequest)
    assert event == Event("ping", {"text": "x"})


def test_a_lone_surrogate_is_taken_for_the_replacement_character() -> None:
    body = rb'{"text": "a\ud800b"}'
    (event,) = Reader().feed(b'{"type": "synthesize", "data_length": %d}\n' % len(body) + body)
    assert isinstance(event, Event)
    assert wire.text_of(event, 10) == "a\ufffdb"


def test_within_an_event() -> None:
    reader = Reader()
    data = packed("a", b"xy", n=1)
    for i, byte in enumerate(data, 1):
        reader.feed(bytes([byte]))
        assert reader.within is (i < len(data))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (Event("synthesize", {}), "text"),
        (Event("synthesize", {"text": 5}), "text"),
        (Event("synthesize", {"text": None}), "text"),
        (Event("synthesize", {"text": ["a"]}), "text"),
    ],
)
def test_a_text_is_a_text(event: Event, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.text_of(event, 100)
    assert caught.value.field == field


def test_a_text_has_an_end() -> None:
    assert wire.text_of(Event("synthesize", {"text": "12345", "new": 1}), 5) == "12345"
    with pytest.raises(TextTooLong):
        wire.text_of(Event("synthesize", {"text": "123456"}), 5)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"voice": "x"}, "voice"),
        ({"voice": {"name": 1}}, "voice.name"),
        ({"voice": {"speaker": {}}}, "voice.speaker"),
        ({"text_format": "html"}, "text_format"),
        ({"text_format": 1}, "text_format"),
    ],
)
def test_bad_fields_are_named(data: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.read(Event("synthesize-start", data), wire.Start)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("voice", "ident"),
    [
        (Voice(), ""),
        (Voice("a"), "a"),
        (Voice("a", "de", "s"), "a#s"),
        (Voice(language="de"), ""),
        (Voice(speaker="s"), ""),
    ],
)
def test_a_voice_and_its_speaker_are_one_of_our_ids(voice: Voice, ident: str) -> None:
    assert voice.id == ident


VOICES = [
    VoiceInfo("us", "Us", "en-US"),
    VoiceInfo("gb", "Gb", "en-GB"),
    VoiceInfo("de", "De", "de-DE"),
    VoiceInfo("de#two", "De, two", "de-DE"),
]


@pytest.mark.parametrize(
    ("language", "default", "found"),
    [
        ("en", "us", "us"),
        ("en", "gb", "gb"),
        ("en", "de", "us"),
        ("en-GB", "us", "gb"),
        ("en_gb", "us", "gb"),
        ("en-AU", "gb", "gb"),
        ("de", "us", "de"),
    ],
)
def test_a_language_finds_a_voice(language: str, default: str, found: str) -> None:
    assert wire.for_language(language, VOICES, default) == found


def test_a_language_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(UnknownVoice, match="de-DE, en-GB, en-US") as caught:
        wire.for_language("fr", VOICES, "us")
    assert caught.value.field == "voice.language"


def opened(data: bytes) -> tuple[str, dict[str, Any], bytes]:
    head, _, rest = data.partition(b"\n")
    fields = json.loads(head)
    size = fields.get("data_length", 0)
    assert len(rest) == size + fields.get("payload_length", 0)
    return fields["type"], json.loads(rest[:size] or b"{}"), rest[size:]


def test_the_list_of_voices() -> None:
    kind, data, payload = opened(wire.info(EngineInfo("tone", "7", 24000, ()), VOICES))
    assert (kind, payload) == ("info", b"")
    assert [name for name, programs in data.items() if programs] == ["tts"]
    (program,) = data["tts"]
    assert program["supports_synthesize_streaming"] is True
    assert program["installed"] is True
    shown = {v["name"]: (v["languages"], v["speakers"]) for v in program["voices"]}
    assert shown == {
        "us": (["en-US"], None),
        "gb": (["en-GB"], None),
        "de": (["de-DE"], [{"name": "two"}]),
    }


@given(st.binary(min_size=2, max_size=64), st.integers(0, 10**7), st.sampled_from([16000, 22050, 24000]))
def test_audio_is_worded_as_any_event(audio: bytes, at: int, rate: int) -> None:
    """The template says what ``encode`` would."""
    wording = wire.Wording(rate)
    ms = at * 1000 // rate
    form = {"rate": rate, "width": 2, "channels": 1}
    assert wording.chunk(audio, at) == wire.encode("audio-chunk", {**form, "timestamp": ms}, audio)
    assert wording.start() == wire.encode("audio-start", {**form, "timestamp": 0})
    assert wording.stop(at) == wire.encode("audio-stop", {"timestamp": ms})


def test_errors_are_in_our_words() -> None:
    assert opened(wire.error(UnknownVoice("no such voice")))[1] == {
        "text": "no such voice",
        "code": "unknown_voice",
    }
    hidden = wire.ours(RuntimeError("/a/path"))
    assert "path" not in hidden.message
    assert opened(wire.pong(None))[:2] == ("pong", {"text": None})
