from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.media_streams.protocol import (
    Connected,
    Dtmf,
    MarkPlayed,
    Media,
    Protocol,
    Started,
    Stopped,
    Warned,
)
from tests.peers.twilio import TwilioPeerCore
from tests.virtual import Clock
from tts_core.errors import LegError, PeerViolation

# As in Twilio's documentation of Media Streams messages.
START = {
    "event": "start",
    "sequenceNumber": "1",
    "start": {
        "accountSid": "AC0",
        "streamSid": "MZ0",
        "callSid": "CA0",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"FirstName": "Jane", "RemoteParty": "Bob"},
    },
    "streamSid": "MZ0",
}
CONNECTED = {"event": "connected", "protocol": "Call", "version": "1.0.0"}


def media(sequence: int = 2, **changes: Any) -> dict[str, Any]:
    body = {"track": "inbound", "chunk": "1", "timestamp": "5", "payload": "/38="}
    return {"event": "media", "sequenceNumber": str(sequence), "streamSid": "MZ0", "media": body | changes}


def started() -> Protocol:
    protocol = Protocol()
    protocol.receive_text(json.dumps(CONNECTED))
    protocol.receive_text(json.dumps(START))
    return protocol


def test_a_whole_call() -> None:
    core = TwilioPeerCore(clock=Clock(), params={"agent": "x"})
    protocol = Protocol()
    assert protocol.receive_text(core.connected()) == [Connected("1.0.0")]
    assert protocol.receive_text(core.start()) == [
        Started(core.stream_sid, core.call_sid, core.account_sid, {"agent": "x"}, ("inbound",), "mulaw", 8000)
    ]
    assert protocol.receive_text(core.media(b"\x01\x02")) == [Media(2, 1, 0, b"\x01\x02", "inbound")]
    assert protocol.receive_text(core.media(b"\x03")) == [Media(3, 2, 20, b"\x03", "inbound")]
    assert [protocol.two_way] == [False]
    assert protocol.receive_text(core.dtmf("#")) == [Dtmf("#")]
    assert [protocol.two_way] == [True]
    assert protocol.receive_text(core.mark("m")) == [MarkPlayed("m")]
    assert protocol.receive_text(core.stop()) == [Stopped()]
    assert [protocol.stopped] == [True]
    assert not protocol.warnings


def test_what_we_send_is_what_twilio_takes() -> None:
    clock = Clock()
    core = TwilioPeerCore(clock=clock)
    protocol = Protocol()
    protocol.receive_text(core.start())
    for name in ("plain", 'quote " and \\ and é and \x00 and "}', "0.1:160"):
        core.receive(protocol.mark(name))
    core.receive(protocol.media(bytes(range(160))))
    core.receive(protocol.clear())
    assert not core.violations
    assert [item.event for item in core.received] == ["mark"] * 3 + ["media", "clear"]
    assert [name for _, name in core.marks_played] == [
        "plain",
        'quote " and \\ and é and \x00 and "}',
        "0.1:160",
    ]
    assert core.received[3].value == bytes(range(160))


@given(st.binary(min_size=1, max_size=700))
def test_any_payload_survives(payload: bytes) -> None:
    protocol = started()
    text = protocol.media(payload)
    assert json.loads(text) == {
        "event": "media",
        "streamSid": "MZ0",
        "media": {"payload": base64.b64encode(payload).decode()},
    }
    (event,) = protocol.receive_text(json.dumps(media(payload=base64.b64encode(payload).decode())))
    assert isinstance(event, Media)
    assert event.payload == payload


@given(st.text(max_size=100))
def test_any_mark_name_survives(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    assert json.loads(started().mark(name)) == {"event": "mark", "streamSid": "MZ0", "mark": {"name": name}}


def test_nothing_is_sent_before_start_or_after_stop() -> None:
    protocol = Protocol()
    with pytest.raises(LegError):
        protocol.media(b"\xff")
    protocol = started()
    protocol.receive_text(json.dumps({"event": "stop", "sequenceNumber": "2", "streamSid": "MZ0"}))
    with pytest.raises(LegError):
        protocol.clear()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        '{"event":"media"',
        "[]",
        "7",
        "null",
        "{}",
        '{"event":7}',
        '{"event":null}',
        "\x00",
        '{"event":"media"}',
        '{"event":"start","streamSid":"MZ0"}',
        '{"event":"media","streamSid":"MZ0"}',
        '{"event":"media","streamSid":"MZ0","media":{}}',
        '{"event":"media","streamSid":"MZ0","media":{"payload":5}}',
        '{"event":"mark","streamSid":"MZ0","mark":{}}',
        '{"event":"dtmf","streamSid":"MZ0","dtmf":{"digit":["1"]}}',
        '{"event":"stop"}',
        '{"event":"connected","protocol":"Fax"}',
        json.dumps(media() | {"streamSid": "MZother"}),
        json.dumps(media() | {"sequenceNumber": "two"}),
        json.dumps(media() | {"sequenceNumber": "-2"}),
        json.dumps(media() | {"sequenceNumber": -2}),
        json.dumps(media(timestamp="1.5")),
        json.dumps({"event": "x" * 70_000}),
    ],
)
def test_violations(text: str) -> None:
    protocol = Protocol()
    if "connected" not in text:
        protocol = started()
    with pytest.raises(PeerViolation) as caught:
        protocol.receive_text(text)
    assert "MZother" not in caught.value.message


def start_with(**changes: Any) -> str:
    return json.dumps(START | {"start": START["start"] | changes})  # type: ignore[operator]


@pytest.mark.parametrize("tracks", [["outbound"], ["inbound", "outbound"], ["both_tracks"]])
def test_a_stream_of_other_tracks_is_one_way_and_refused(tracks: list[str]) -> None:
    with pytest.raises(PeerViolation, match="one-way"):
        Protocol().receive_text(start_with(tracks=tracks))


def test_audio_of_the_other_track_shows_a_one_way_stream() -> None:
    with pytest.raises(PeerViolation, match="one-way"):
        started().receive_text(json.dumps(media(track="outbound")))


@pytest.mark.parametrize(
    "form",
    [
        {"encoding": "audio/x-l16", "sampleRate": 8000, "channels": 1},
        {"encoding": "audio/x-mulaw", "sampleRate": 16000, "channels": 1},
        {"encoding": "audio/x-mulaw", "sampleRate": "8000", "channels": "2"},
    ],
)
def test_another_format_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(PeerViolation, match="8000"):
        Protocol().receive_text(start_with(mediaFormat=form))


def test_numbers_are_taken_as_strings_and_as_numbers() -> None:
    protocol = Protocol()
    form = {"encoding": "audio/x-mulaw", "sampleRate": "8000", "channels": "1"}
    protocol.receive_text(start_with(mediaFormat=form))
    body = media(timestamp=40, chunk=3) | {"sequenceNumber": 2}
    assert protocol.receive_text(json.dumps(body)) == [Media(2, 3, 40, b"\xff\x7f", "inbound")]


@pytest.mark.parametrize("sid", ["", 'MZ"},{"', "MZ 0", "M" * 129, "MZ\n"])
def test_a_stream_id_that_would_need_escaping_is_refused(sid: str) -> None:
    body = START | {"streamSid": sid, "start": START["start"] | {"streamSid": sid}}  # type: ignore[operator]
    with pytest.raises(PeerViolation, match="stream id"):
        Protocol().receive_text(json.dumps(body))


def test_a_second_start_is_tolerated_if_the_same_and_refused_if_not() -> None:
    protocol = started()
    assert [type(event) for event in protocol.receive_text(json.dumps(START))] == [Warned]
    with pytest.raises(PeerViolation, match="second"):
        protocol.receive_text(start_with(callSid="CAother"))
    with pytest.raises(PeerViolation, match="two streams"):
        Protocol().receive_text(start_with(streamSid="MZother"))


def test_odd_orders_are_tolerated_and_counted() -> None:
    protocol = Protocol()
    assert protocol.receive_text(json.dumps(media())) == [
        Warned("before_start", "a message came before start and was dropped")
    ]
    assert protocol.receive_text(json.dumps(media(3))) == []
    assert [type(event) for event in protocol.receive_text(json.dumps(START))] == [Warned, Started]
    assert [type(event) for event in protocol.receive_text(json.dumps(CONNECTED))] == [Connected]
    protocol.receive_text(json.dumps(CONNECTED))
    protocol.receive_text(json.dumps({"event": "stop", "streamSid": "MZ0", "sequenceNumber": "4"}))
    protocol.receive_text(json.dumps(media(5)))
    assert protocol.warnings == {
        "before_start": 2,
        "order": 1,
        "duplicate_connected": 1,
        "sequence_gap": 1,
        "after_stop": 1,
    }
    assert protocol.lost == 2


def test_gaps_and_steps_back_in_the_numbering_are_counted_and_the_audio_is_kept() -> None:
    protocol = started()
    kinds = []
    for sequence in (2, 3, 7, 5, 8, 8, 9):
        events = protocol.receive_text(json.dumps(media(sequence)))
        assert isinstance(events[-1], Media)
        kinds += [event.kind for event in events if isinstance(event, Warned)]
    assert kinds == ["sequence_gap", "sequence_back"]
    assert protocol.warnings == {"sequence_gap": 1, "sequence_back": 2}
    assert protocol.lost == 3


def test_other_oddities_are_tolerated() -> None:
    protocol = started()
    assert protocol.receive_text('{"event":"shrug","streamSid":"MZ0"}') == [
        Warned("unknown_event", "an event we do not know was ignored")
    ]
    assert [type(e) for e in protocol.receive_text(json.dumps(media(payload="***")))] == [Warned]
    assert [type(e) for e in protocol.receive_text(json.dumps(media(2, payload="")))] == [Warned]
    body = {"event": "dtmf", "streamSid": "MZ0", "sequenceNumber": "3", "dtmf": {"digit": "1 OR 1"}}
    assert [type(e) for e in protocol.receive_text(json.dumps(body))] == [Warned]
    assert set(protocol.warnings) == {"unknown_event", "bad_payload", "empty_media", "bad_digit"}
    body = {"event": "mark", "streamSid": "MZ0", "mark": {"name": "m", "new": 1}, "extra": []}
    assert protocol.receive_text(json.dumps(body))[-1] == MarkPlayed("m")
    odd = {"event": "connected", "version": "2.0"}
    assert [type(e) for e in Protocol().receive_text(json.dumps(odd))] == [Warned, Connected]
    assert [type(e) for e in Protocol().receive_text(start_with(tracks=[]))][-2:] == [Warned, Started]


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("MZ0") | st.just("inbound"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["streamSid", "media", "payload", "mark", "name", "dtmf", "digit", "start", "chunk"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
Message = st.fixed_dictionaries(
    {"event": st.sampled_from(["connected", "start", "media", "mark", "dtmf", "stop", "x"]) | Json},
    optional={
        "streamSid": st.just("MZ0") | Json,
        "sequenceNumber": Json,
        "media": Json,
        "mark": Json,
        "dtmf": Json,
        "start": st.just(START["start"]) | Json,
        "stop": Json,
    },
)


def test_half_a_surrogate_pair_is_a_violation() -> None:
    with pytest.raises(PeerViolation, match="JSON"):
        Protocol().receive_text('{"event":"connected\ud83d"}')


@given(st.lists(st.text(max_size=60) | Message.map(json.dumps), max_size=12))
def test_anything_gives_events_or_a_violation_and_nothing_else(messages: list[str]) -> None:
    protocol = Protocol()
    stops = 0
    for message in messages:
        try:
            events = protocol.receive_text(message)
        except PeerViolation:
            continue
        for event in events:
            if isinstance(event, Media | Dtmf | MarkPlayed | Stopped):
                assert protocol.started is not None
            if isinstance(event, Media):
                assert event.payload
            stops += isinstance(event, Stopped)
    assert stops <= 1
