from __future__ import annotations

import json

import msgspec
import pytest

from telephony.media_streams import messages
from tests.peers.twilio import TwilioPeerCore
from tests.virtual import Clock


def test_every_message_of_twilio_decodes_to_its_type() -> None:
    core = TwilioPeerCore(clock=Clock(), params={"a": "b"})
    texts = [core.connected(), core.start(), core.media(), core.dtmf("1"), core.mark("m"), core.stop()]
    kinds = [messages.Connected, messages.Start, messages.Media, messages.Dtmf, messages.Mark, messages.Stop]
    for text, kind in zip(texts, kinds, strict=True):
        message = msgspec.json.decode(text, type=messages.Message)
        assert type(message) is kind


def test_field_names_are_twilios() -> None:
    core = TwilioPeerCore(clock=Clock(), params={"a": "b"})
    text = core.start()
    assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=messages.Message))) == json.loads(
        text
    )


def test_a_field_of_another_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode('{"event":"mark","streamSid":"MZ0","mark":{"name":1}}', type=messages.Message)
