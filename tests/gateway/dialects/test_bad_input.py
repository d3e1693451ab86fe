"""What nobody should send, at every door: it is refused in the dialect's shape, by name, and harms nobody.

Beside each hostile client another one speaks; its audio must be what it is on a quiet gateway, to the sample.
Each runs on a virtual loop, where a pause takes no time. ``on_gateway`` fails on a task that is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.dialects import cartesia_wire, deepgram_v2_wire, elevenlabs_wire, jambonz_wire, openai_wire, vapi
from gateway.native import messages as native
from tests.peers.doors import POSTS, SOCKETS, DoorClient, PostDoor, SocketDoor, door_client, on_doors, post
from tests.peers.gateway import Running
from tests.peers.raw import RawSocket, frame
from tests.tone import RATE

STEADY = "Alpha beta gamma delta. " * 5
STEADY_BYTES = round((20 * 0.2 + 4 * 0.18) * RATE) * 2
"""Twenty words, and a gap between the sentences."""
LEAKS = re.compile(
    r'Traceback|File "|\.py\b|msgspec|aiohttp|numpy|site-packages|/usr/|/home/|Error\(|NoneType|object at'
)
NAMED = tuple(door for door in SOCKETS if door.ids)
EVIL = {"Origin": "https://evil.example"}

NOT_JSON = [
    *(
        "",
        " ",
        "{",
        "}",
        "[",
        '{"a":',
        "nul",
        "{'a':1}",
        "\x00",
        "\ufeff{}",
        "\u202e{}",
        '{"a":1}{"a":1}',
        "1e999",
    ),
    *(
        '{"a":NaN}',
        '{"a":\u0001}',
        '"\x00"',
        "[" * 30_000,
        '{"a":' * 8_000,
        "\U0001f600" * 5_000,
        "GET / HTTP/1.1",
    ),
]
NO_OBJECT = ["null", "true", "5", '"x"', "[]", "[{}]", "[" * 500 + "]" * 500, '""', "-0", "1e400"]
TEXTS = [
    *(
        "\x00\x01\x1b[31m\x7f",
        "\u202eabc\u2066 def",
        "\ufeff",
        "\ud83d",
        "\ude00 a \ud83d",
        "a" + "\u0300" * 5000,
    ),
    *(
        "\ufdfd" * 1000,
        "1" * 3000,
        "<" * 20_000,
        "<break time='99999999s'/>",
        "]]>&lt;&#0;",
        "\u2028\u2029\x85\r",
    ),
    *("```\n" * 1000, "|" * 5000, "a" * 40_000, "\U000e0041" * 100, "%s%n{}$(id)`id`", "\uffff\ufffe"),
]
"""Any of them is a text: it is spoken, or it is silence."""
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufeff]")
"""What no engine is given."""


@contextlib.asynccontextmanager
async def beside(gateway: Running, door: SocketDoor) -> AsyncIterator[None]:
    """Someone who speaks for the while, whom nothing may touch."""
    async with door_client(gateway, door) as client:
        await client.say("steady", STEADY)
        yield
        await client.end("steady")
        await client.over("steady")
        await asyncio.sleep(0.05)
        assert len(client.audio("steady")) == STEADY_BYTES
        assert client.faults == []
        assert {told.context for _, told in client.told} <= {"", "steady"}


def clean(client: DoorClient) -> None:
    """Nothing of our inside was told, and no fault of ours."""
    assert not [text for text in client.texts if LEAKS.search(text)]
    assert client.ws.close_code not in {1006, 1011}
    assert all(told.words for told in client.faults)


async def speaks(client: DoorClient, context: str = "after") -> None:
    """It still does what it should."""
    if not client.door.one_turn:
        before = len(client.audio(context))
        await client.speak(context, "One two.")
        assert len(client.audio(context)) - before == round(0.4 * RATE) * 2


# Messages


@on_doors(SOCKETS)
async def test_what_is_no_message_is_refused_and_the_socket_lives(gateway: Running, door: SocketDoor) -> None:
    hostile: list[str | bytes] = [
        *NOT_JSON,
        *NO_OBJECT,
        '{"type":null}',
        '{"type":"dance"}',
        b"",
        b"\0\xff" * 9,
    ]
    if door.name.startswith(
        "elevenlabs"
    ):  # whose messages have no type, and whose fields may all be left out
        hostile = [raw for raw in hostile if not isinstance(raw, str) or "type" not in raw]
    if door.name == "cartesia":
        hostile += ["{}", '{"transcript":"x"}', '{"context_id":"x"}']
    if door.name == "native":
        hostile += ['{"type":"text","text":"x"}', '{"type":"open"}', '{"type":"flush"}', '{"type":"cancel"}']
    async with beside(gateway, door):
        for at in range(0, len(hostile), 20 if not door.one_turn else 1):
            async with door_client(gateway, door) as client:
                part = hostile[at : at + (20 if not door.one_turn else 1)]
                for i, raw in enumerate(part):
                    await (client.ws.send_bytes(raw) if isinstance(raw, bytes) else client.ws.send_str(raw))
                    await asyncio.sleep(0.01)
                    assert len(client.faults) == i + 1, (raw[:80], client.texts[-1:])
                clean(client)
                await speaks(client)
                await asyncio.sleep(0.01)
                assert client.ws.closed is door.one_turn
    assert gateway.idle


def wrong_fields(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path of a field, a value that is not of its type), for every field of a message."""
    for field in msgspec.structs.fields(kind):
        name = f"{path}{field.encode_name}"
        for value in (5, -1, 1.5, True, "\u202ex", [], {}, ["x"], {"x": 1}, None, -(10**15)):
            try:
                msgspec.convert(value, field.type, strict=True)
            except msgspec.ValidationError:
                yield name, value
        for inner in getattr(field.type, "__args__", (field.type,)):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from wrong_fields(inner, f"{name}.")


def placed(message: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The message with this value at this path."""
    first, _, rest = path.partition(".")
    if not rest:
        return message | {first: value}
    inner = message.get(first)
    return message | {first: placed(inner if isinstance(inner, dict) else {}, rest, value)}


NATIVE = (native.Open, native.TextDelta, native.Flush, native.End, native.Cancel, native.Played, native.Ping)
MESSAGES: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "native": [
        ({"type": kind.__struct_config__.tag, "context": "w", "text": "x", "sample": 1}, kind)
        for kind in NATIVE
    ],
    "cartesia": [({}, cartesia_wire.Request)],
    "elevenlabs": [({}, elevenlabs_wire.Message)],
    "elevenlabs-single": [({}, elevenlabs_wire.Message)],
    "deepgram": [({"type": "Speak"}, jambonz_wire.Message)],
    "deepgram-v2": [({"type": "Speak"}, deepgram_v2_wire.Message)],
    "jambonz": [({"type": "stream"}, jambonz_wire.Message)],
}


@on_doors(SOCKETS)
async def test_every_field_of_a_wrong_type_is_named(gateway: Running, door: SocketDoor) -> None:
    cases = [
        (
            path,
            placed(
                (door.say("w", "One.", first=True)[0] if door.name != "native" else {}) | base, path, value
            ),
        )
        for base, kind in MESSAGES[door.name]
        for path, value in wrong_fields(kind)
        if not (path == "text" and value is None)
    ]
    assert len(cases) >= 10
    size = 1 if door.one_turn else 40
    async with beside(gateway, door):
        for at in range(0, len(cases), size):
            async with door_client(gateway, door) as client:
                for i, (path, message) in enumerate(cases[at : at + size]):
                    await client.ws.send_str(json.dumps(message))
                    await asyncio.sleep(0.01)
                    assert len(client.faults) == i + 1, (message, client.texts[-1:])
                    assert path.rpartition(".")[2] in client.faults[-1].words, (message, client.faults[-1])
                clean(client)
                await speaks(client)
    assert all(text == "One two." or text in STEADY for text in gateway.engine.spoken)
    assert gateway.idle


@on_doors(SOCKETS)
async def test_unknown_fields_and_doubled_keys_are_no_fault(gateway: Running, door: SocketDoor) -> None:
    async with beside(gateway, door), door_client(gateway, door) as client:
        (message,) = door.say("a", "One two.", first=True)
        raw = json.dumps(message | {"x_unknown": {"deep": [1, {}]}, "constructor": None, "__class__": "os"})
        await client.ws.send_str(raw[:-1] + f',"{door.text_field}":"One two."}}')
        await client.end("a")
        await client.over("a")
        assert len(client.audio("a")) == round(0.4 * RATE) * 2
        assert client.faults == []
    assert gateway.idle


@on_doors(SOCKETS)
async def test_any_text_is_spoken_or_silence_or_refused(gateway: Running, door: SocketDoor) -> None:
    async with beside(gateway, door):
        for text in TEXTS:
            async with door_client(gateway, door) as client:
                await client.say("a", text)
                await client.end("a")
                await asyncio.sleep(1.0)
                ends = client.ends("a")
                if door.one_turn and not ends:  # a long one goes on; only its connection ends it
                    continue
                if door.ends and not ends:  # a long one is cut
                    await client.cancel("a")
                    await asyncio.sleep(0.1)
                    ends = client.ends("a")
                elif not door.ends:
                    await client.cancel("a")
                assert ends == (1 if door.ends else 0), (text[:20], client.texts)
                clean(client)
                await speaks(client)
    for said in gateway.engine.spoken:
        assert not HIDDEN.search(said)
    assert gateway.idle


# Frames


@on_doors(SOCKETS)
async def test_broken_utf8_and_broken_frames_close_their_own_socket_only(
    gateway: Running, door: SocketDoor
) -> None:
    frames = {
        "utf8": (frame(1, b'{"text":"\xff\xfe\xed\xa0\x80"}'), 1007),
        "cut utf8": (frame(1, b"\xf0\x9f\x98"), 1007),
        "opcode": (frame(3, b"x"), 1002),
        "long ping": (frame(9, b"x" * 200), 1002),
        "split ping": (frame(9, b"x", fin=False), 1002),
        "continuation": (frame(0, b"x"), 1002),
        "too long": (frame(1, b'"' + b"x" * 70_000 + b'"'), 1009),
        "claims much": (frame(1, b"x", length=1 << 40), 1009),
    }
    async with beside(gateway, door):
        for name, (data, code) in frames.items():
            raw = RawSocket(gateway.port)
            await raw.upgrade(door.path, door.headers)
            for message in door.hello():
                await raw.text(json.dumps(message))
            await raw.send(data)
            seen = b""
            while b"\x88" not in seen or code.to_bytes(2, "big") not in seen:
                more = await raw.read()
                assert more, (name, seen[-100:])
                seen += more
            assert not LEAKS.search(seen.decode("latin-1")), name
            raw.close()
        await asyncio.sleep(0.1)
    if door.name == "native":  # sessions wait for their clients to come back
        await asyncio.sleep(gateway.services.settings.resume_s + 1)
    assert gateway.idle


@on_doors(SOCKETS)
async def test_more_text_than_a_turn_may_have_is_refused(gateway: Running, door: SocketDoor) -> None:
    async with beside(gateway, door), door_client(gateway, door) as client:
        with contextlib.suppress(ConnectionError):  # where the connection ends with its turn
            for _ in range(20):  # 1.2 MB
                await client.say("a", "word " * 12_000)
        await asyncio.sleep(1)
        assert client.faults
        assert all("text" in told.words or "character" in told.words for told in client.faults)
        if not door.one_turn:
            await client.cancel("a")
        await asyncio.sleep(0.1)
        clean(client)
        await speaks(client)
    assert gateway.idle


# Contexts


@on_doors(NAMED)
async def test_thousands_of_contexts_are_refused_one_by_one(gateway: Running, door: SocketDoor) -> None:
    async with beside(gateway, door), door_client(gateway, door) as client:
        for i in range(3000):
            await client.say(f"c{i}", "One two three.")
        await asyncio.sleep(4)
        refused = [told.context for told in client.faults]
        assert len(refused) == len(set(refused)) >= 2900
        assert gateway.services.in_flight.count <= gateway.services.settings.max_contexts_per_socket + 1
        for i in range(3000):
            if f"c{i}" not in refused:
                await client.cancel(f"c{i}")
        await asyncio.sleep(5)
        assert gateway.services.limits.active <= 1  # the one beside
        clean(client)
        await speaks(client)
    assert gateway.idle


@on_doors(NAMED)
async def test_ids_of_any_kind_are_taken_or_refused_by_name(gateway: Running, door: SocketDoor) -> None:
    names = ["\x00", "\u202e", "\U0001f600" * 64, "a" * 256, "../../etc/passwd", '"}{', "\ud83d", "__proto__"]
    async with beside(gateway, door), door_client(gateway, door) as client:
        for name in names:
            await client.say(name, "One.")
            await client.end(name)
            await asyncio.sleep(0.5)
        assert client.faults == []
        for name in ("a" * 257, "\U0001f600" * 5000):
            await client.say(name, "One.")
            await asyncio.sleep(0.05)
            assert "context" in client.faults[-1].words
        clean(client)
        await speaks(client)
    assert len(gateway.engine.requests) == len(names) + 6
    assert gateway.idle


@on_doors(SOCKETS)
async def test_two_sockets_may_use_one_id(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as one, door_client(gateway, door) as two:
        await one.say("a", "One two three four five.")
        await two.say("a", "One two.")
        await two.end("a")
        await asyncio.sleep(0.05)
        if not door.one_turn:
            await two.cancel("a")
        await one.end("a")
        await one.over("a")
        assert len(one.audio("a")) == 5 * round(0.2 * RATE) * 2
        assert len(two.audio("a")) <= 2 * round(0.2 * RATE) * 2
        assert one.ends("a") == (1 if door.ends else 0)
    assert gateway.idle


@on_doors(SOCKETS)
async def test_words_after_the_end_never_join_what_was_ended(gateway: Running, door: SocketDoor) -> None:
    async with beside(gateway, door), door_client(gateway, door) as client:
        await client.say("a", "One two three.")
        await client.end("a")
        for _ in range(3):
            await client._send(door.say("a", "Late.", first=False))
            await client.end("a")
        await asyncio.sleep(10)
        # A close of what is closing cuts it: there the last word is the client's, and it may be silence.
        assert client.audio("a") or door.name == "elevenlabs"
        assert client.ends("a") <= 4
        if (door.ids and door.name != "elevenlabs") or door.one_turn:
            assert "One two three." in gateway.engine.spoken
        clean(client)
        await speaks(client)
    assert gateway.idle


# Doors


@on_doors(SOCKETS)
async def test_a_page_of_another_site_is_turned_away(gateway: Running, door: SocketDoor) -> None:
    for headers in ({**door.headers, **EVIL}, {**door.headers, "Sec-Fetch-Site": "cross-site"}, {**EVIL}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with door_client(gateway, door, headers=headers):
                pass
        assert refused.value.status == 403 or (headers == EVIL and refused.value.status in {401, 403})
    async with beside(gateway, door):
        pass


@on_doors(POSTS)
async def test_a_page_of_another_site_is_turned_away_over_http(gateway: Running, door: PostDoor) -> None:
    status, data = await post(gateway, door, door.body("One."), {**door.headers, **EVIL})
    assert status == 403
    assert "Origin" in str(json.loads(data)) or "origin" in str(json.loads(data))
    assert gateway.engine.requests == []


QUERIES = [
    *(
        ("elevenlabs", f"output_format={name}", "output_format")
        for name in ("pcm_7", "ulaw_16000", "mp3", "\x00")
    ),
    ("elevenlabs", "output_format=pcm_8000&inactivity_timeout=nan", "inactivity_timeout"),
    ("elevenlabs", "output_format=pcm_8000&auto_mode=perhaps", "auto_mode"),
    ("elevenlabs", "output_format=pcm_8000&seed=-1", "seed"),
    *(
        ("deepgram", f"encoding=linear16&sample_rate={rate}", "sample_rate")
        for rate in ("7", "-1", "nan", "9" * 99)
    ),
    *(("deepgram", f"encoding={name}", "encoding") for name in ("mp3", "\u202e", "linear32")),
    ("deepgram", "encoding=linear16&speed=inf", "speed"),
    *(("jambonz", f"sampleRate={rate}", "sampleRate") for rate in ("7", "8e3", "\u0661", "9" * 99)),
    ("jambonz", "language=xx", "language"),
]


@on_doors(SOCKETS[:1])
async def test_what_an_address_asks_for_in_vain_is_refused_by_name(
    gateway: Running, door: SocketDoor
) -> None:
    paths = {other.name: other.path.partition("?")[0] for other in SOCKETS}
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    async with aiohttp.ClientSession() as http:
        for name, query, field in QUERIES:
            asked = dict(pair.split("=", 1) for pair in query.split("&"))
            async with http.get(
                gateway.url + paths[name],
                params=asked,
                headers={**door.headers, **upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="},
            ) as response:
                told = await response.text()
                assert response.status == 400, (name, query, told)
                assert field in told, (name, query, told)
                assert not LEAKS.search(told)


# HTTP

BODIES: dict[str, Any] = {
    "cartesia": cartesia_wire.Request,
    "elevenlabs": elevenlabs_wire.Body,
    "openai": openai_wire.Request,
    "vapi": vapi.VoiceRequest,
    "jambonz": jambonz_wire.Body,
}


def told_well(door: PostDoor, status: int, data: bytes) -> str:
    """The words of a refusal, checked."""
    assert 400 <= status < 500, data[:300]
    words = door.words(json.loads(data))
    assert words
    assert not LEAKS.search(data.decode()), data
    return words


@on_doors(POSTS)
async def test_a_body_that_is_none_is_refused(gateway: Running, door: PostDoor) -> None:
    hostile = [raw.encode("utf-8", "surrogatepass") for raw in [*NOT_JSON, *NO_OBJECT, "{}"]]
    hostile += [
        b"\xff\xfe",
        b'{"' + door.text_field.encode() + b'":"\xed\xa0\x80"}',
        b"\0" * 100,
        b"\x1f\x8b\x08",
    ]
    for raw in hostile:
        status, data = await post(gateway, door, raw)
        told_well(door, status, data)
    assert gateway.engine.requests == []
    assert gateway.idle


@on_doors(POSTS)
async def test_every_field_of_a_body_of_a_wrong_type_is_named(gateway: Running, door: PostDoor) -> None:
    kind = BODIES.get(door.name.partition("-")[0], jambonz_wire.Body)
    cases = [
        (path, value)
        for path, value in wrong_fields(kind)
        if value is not None or path == "text"  # which is needed
    ]
    if door.name.startswith("deepgram"):
        cases = [(path, value) for path, value in cases if path == "text"]
    cases += [(door.text_field, ""), (door.text_field, None)]
    for path, value in cases:
        body = placed(door.body("One."), f"{door.within}.{path}" if door.within else path, value)
        status, data = await post(gateway, door, body)
        assert path.rpartition(".")[2] in told_well(door, status, data), (path, value, data)
    assert gateway.engine.requests == []


@on_doors(POSTS)
async def test_any_text_is_answered_over_http(gateway: Running, door: PostDoor) -> None:
    for text in TEXTS:
        status, data = await post(gateway, door, door.body(text[:2000]))
        if status == 200:
            assert data
        else:
            told_well(door, status, data)
    for said in gateway.engine.spoken:
        assert not HIDDEN.search(said)
    assert gateway.idle


@on_doors(POSTS)
async def test_enormous_bodies_are_413(gateway: Running, door: PostDoor) -> None:
    status, data = await post(gateway, door, door.body("word " * 210_000))
    assert status == 413
    told_well(door, status, data)
    status, data = await post(gateway, door, door.body("word " * 30_000))
    assert status == 413
    words = told_well(door, status, data)
    assert door.text_field in words or "character" in words
    assert gateway.engine.requests == []
    assert gateway.idle


@on_doors(POSTS)
async def test_doubled_and_unknown_keys_are_no_fault_over_http(gateway: Running, door: PostDoor) -> None:
    body = door.body("Nobody hears this.", x_unknown=[{}], constructor=1)
    raw = json.dumps(body).replace('"Nobody hears this."', f'"Nobody.","{door.text_field}":"One two."')
    status, data = await post(gateway, door, raw.encode())
    assert status == 200
    assert len(door.pcm(data)) == round(0.4 * RATE) * 2


VALUES = [
    *(("cartesia", "output_format.sample_rate", value) for value in (7, 0, -8000, 10**9)),
    ("cartesia", "output_format.encoding", "pcm_s24le"),
    ("cartesia", "output_format.container", "ogg"),
    ("cartesia", "voice", {"mode": "embedding", "embedding": [0.1]}),
    ("cartesia", "generation_config.speed", 99),
    ("cartesia", "generation_config.volume", -1),
    ("cartesia", "language", "xx"),
    ("openai", "response_format", "ogg"),
    ("openai", "speed", 9),
    ("openai", "speed", 1e300),
    ("openai", "stream_format", "ws"),
    ("elevenlabs", "voice_settings.speed", 99),
    ("elevenlabs", "seed", -1),
    ("elevenlabs", "apply_text_normalization", "perhaps"),
    *(("vapi", "sampleRate", value) for value in (7, 0, -1, 10**12)),
    ("vapi", "type", "tool-calls"),
    ("jambonz", "type", "html"),
    ("jambonz", "language", "xx"),
]


@on_doors(POSTS[:1])
async def test_what_cannot_be_made_is_refused_by_name_over_http(gateway: Running, door: PostDoor) -> None:
    for name, path, value in VALUES:
        (door,) = (other for other in POSTS if other.name == name)
        body = placed(door.body("One."), f"{door.within}.{path}" if door.within else path, value)
        status, data = await post(gateway, door, body)
        assert path.rpartition(".")[2] in told_well(door, status, data), (name, path, value, data)
    assert gateway.engine.requests == []
