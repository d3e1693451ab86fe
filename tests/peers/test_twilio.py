from __future__ import annotations

import base64
import json

from tests.peers.twilio import TwilioPeerCore, Violation
from tests.virtual import Clock


def media(core: TwilioPeerCore, payload: bytes) -> str:
    body = {"payload": base64.b64encode(payload).decode()}
    return json.dumps({"event": "media", "streamSid": core.stream_sid, "media": body})


def mark(core: TwilioPeerCore, name: str) -> str:
    return json.dumps({"event": "mark", "streamSid": core.stream_sid, "mark": {"name": name}})


def names(answers: list[str]) -> list[str]:
    return [json.loads(answer)["mark"]["name"] for answer in answers]


def test_marks_come_back_when_the_audio_before_them_has_played() -> None:
    clock = Clock()
    core = TwilioPeerCore(clock=clock)
    assert names(core.receive(mark(core, "empty"))) == ["empty"]
    core.receive(media(core, b"\x01" * 160))
    core.receive(mark(core, "one"))
    core.receive(media(core, b"\x02" * 160))
    core.receive(mark(core, "two"))
    assert core.next_mark() == clock.now + 0.02
    clock.now += 0.0199
    assert core.advance() == []
    clock.now += 0.0001
    assert names(core.advance()) == ["one"]
    clock.now += 1
    assert names(core.advance()) == ["two"]
    assert bytes(core.heard) == b"\x01" * 160 + b"\x02" * 160
    assert not core.violations


def test_clear_drops_the_buffer_and_returns_pending_marks() -> None:
    clock = Clock()
    core = TwilioPeerCore(clock=clock)
    core.receive(media(core, bytes(range(160)) * 2))
    core.receive(mark(core, "end"))
    clock.now += 0.01
    answers = core.receive(json.dumps({"event": "clear", "streamSid": core.stream_sid}))
    assert names(answers) == ["end"]
    assert len(core.heard) == 80
    assert core.dropped == 240
    clock.now += 1
    assert core.advance() == []
    assert len(core.heard) == 80


def test_gaps_are_recorded_and_a_clear_makes_none() -> None:
    clock = Clock()
    core = TwilioPeerCore(clock=clock)
    core.receive(media(core, b"\x01" * 160))
    clock.now += 0.05
    core.receive(media(core, b"\x01" * 160))
    assert [round(gap.seconds, 6) for gap in core.starved()] == [0.03]
    core.receive(json.dumps({"event": "clear", "streamSid": core.stream_sid}))
    clock.now += 1
    core.receive(media(core, b"\x01" * 160))
    assert len(core.gaps) == 1


def test_violations_carry_twilios_codes() -> None:
    core = TwilioPeerCore(clock=Clock())
    core.receive(b"\x00")
    core.receive("[")
    core.receive(json.dumps({"event": "hello", "streamSid": core.stream_sid}))
    core.receive(json.dumps({"event": "clear", "streamSid": "MZother"}))
    core.receive(json.dumps({"event": "mark", "streamSid": core.stream_sid}))
    core.receive(json.dumps({"event": "media", "streamSid": core.stream_sid, "media": {"payload": "!"}}))
    core.receive(media(core, b"RIFF" + bytes(156)))
    core.receive(media(core, bytes(100)))
    assert core.violations == [
        Violation(31950, "binary frame"),
        Violation(31951, "not a JSON object with an event"),
        Violation(31951, "unknown event hello"),
        Violation(31951, "wrong streamSid"),
        Violation(31951, "mark without a name"),
        Violation(31951, "media without a base64 payload"),
        Violation(0, "a file header in the audio"),
        Violation(0, "not whole frames"),
    ]


def test_a_one_way_stream_answers_nothing() -> None:
    core = TwilioPeerCore(clock=Clock(), one_way=True)
    assert core.receive(mark(core, "probe")) == []
    assert core.violations == [Violation(31951, "mark on a one-way stream")]
