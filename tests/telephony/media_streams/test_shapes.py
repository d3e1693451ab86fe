from __future__ import annotations

import json
from typing import Any

import pytest

from telephony.media_streams.shapes import SHAPES, Messages
from tts_core.errors import LegError

# What each vendor documents (reference, telephony 1.1 to 1.6).
EXPECTED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "twilio": (
        {"event": "media", "streamSid": "S1", "media": {"payload": "AAAA"}},
        {"event": "mark", "streamSid": "S1", "mark": {"name": "m"}},
        {"event": "clear", "streamSid": "S1"},
    ),
    "telnyx": (
        {"event": "media", "media": {"payload": "AAAA"}},
        {"event": "mark", "mark": {"name": "m"}},
        {"event": "clear"},
    ),
    "plivo": (
        {
            "event": "playAudio",
            "streamId": "S1",
            "media": {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": "AAAA"},
        },
        {"event": "checkpoint", "streamId": "S1", "name": "m"},
        {"event": "clearAudio", "streamId": "S1"},
    ),
    "exotel": (
        {"event": "media", "stream_sid": "S1", "media": {"payload": "AAAA"}},
        {"event": "mark", "stream_sid": "S1", "mark": {"name": "m"}},
        {"event": "clear", "stream_sid": "S1"},
    ),
}
EXPECTED["signalwire"] = EXPECTED["twilio"]


def test_every_shape_is_checked() -> None:
    assert set(SHAPES) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_messages_are_the_vendors(name: str) -> None:
    messages = Messages(SHAPES[name], "S1")
    media, mark, clear = EXPECTED[name]
    assert json.loads(messages.media("AAAA")) == media
    assert json.loads(messages.mark("m")) == mark
    assert json.loads(messages.clear()) == clear
    assert json.loads(messages.mark('a"b\\c\n'))  # still JSON


def test_a_stream_id_that_is_no_word_is_refused() -> None:
    for stream in ("", 'a"', "a b", "\x00stream", "a" * 129):
        with pytest.raises(LegError):
            Messages(SHAPES["twilio"], stream)
