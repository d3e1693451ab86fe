"""Connections of Wyoming clients, in virtual time: room, deadlines, drain, and where it listens."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.app import drain
from gateway.settings import Settings
from gateway.sockets import SEND_DEADLINE_S
from gateway.wyoming import server as module
from tests.peers.gateway import Running, on_gateway
from tests.peers.wyoming_client import packed, port_of, wyoming
from tests.tone import ToneEngine
from tts_core.errors import SettingsError

HERE = "127.0.0.1:0"


@on_gateway()
async def test_it_is_off_by_default(gateway: Running) -> None:
    assert gateway.services.wyoming is None
    assert gateway.services.settings.wyoming == ""


@on_gateway(wyoming="[::1]:0")
async def test_an_address_of_version_6(gateway: Running) -> None:
    assert gateway.services.wyoming is not None
    assert gateway.services.wyoming.url == f"tcp://[::1]:{port_of(gateway)}"
    reader, writer = await asyncio.open_connection("::1", port_of(gateway))
    writer.write(packed("ping"))
    assert b"pong" in await reader.readline()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", ""),
        ("10200", "127.0.0.1:10200"),
        (":10200", "127.0.0.1:10200"),
        ("localhost:0", "localhost:0"),
        ("[::1]:10200", "[::1]:10200"),
        ("127.0.0.1:65535", "127.0.0.1:65535"),
    ],
)
def test_where_it_listens(value: str, address: str, tmp_path: Path) -> None:
    environ = {"VOXWIRE_WYOMING": value, "VOXWIRE_DATA_DIR": str(tmp_path)}
    assert Settings.load(environ).wyoming == address


@pytest.mark.parametrize("value", ["host", "127.0.0.1:70000", "a b:1", "127.0.0.1:", "tcp://127.0.0.1:10200"])
def test_what_is_no_address(value: str) -> None:
    with pytest.raises(SettingsError, match="VOXWIRE_WYOMING"):
        Settings.load({"VOXWIRE_WYOMING": value})


@pytest.mark.parametrize(
    "value", ["0.0.0.0:10200", "[::]:10200", "192.0.2.1:10200", "voice.example.com:10200"]
)
def test_others_may_come_only_where_that_is_meant(value: str) -> None:
    with pytest.raises(SettingsError, match="knows no keys"):
        Settings.load({"VOXWIRE_WYOMING": value})
    assert Settings.load({"VOXWIRE_WYOMING": value, "VOXWIRE_WYOMING_OPEN": "on"}).wyoming == value


@pytest.mark.parametrize("value", ["", "Home", "a b"])
def test_a_tenant_has_a_proper_name(value: str) -> None:
    with pytest.raises(SettingsError, match="tenant"):
        Settings.load({}, overrides={"wyoming_tenant": value})


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        @on_gateway(wyoming=address)
        async def never(gateway: Running) -> None:
            raise AssertionError("it started")

        with pytest.raises(SettingsError, match=f"{address}.*free port"):
            never(tmp_path)


@on_gateway(wyoming=HERE, wyoming_tenant="home")
async def test_it_speaks_for_the_tenant_of_the_settings(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One.")
        await client.heard()
    (request,) = gateway.engine.requests
    assert request.salt == gateway.services.voices.salt("home", "tone")


@on_gateway(wyoming=HERE)
async def test_there_is_room_for_so_many(gateway: Running) -> None:
    before = module.CONNECTIONS
    module.CONNECTIONS = 2
    try:
        async with wyoming(gateway) as one, wyoming(gateway) as two:
            for client in (one, two):
                await client.send("ping")
                assert (await client.next())[0] == "pong"
            metrics = gateway.services.metrics.text().decode()
            assert 'voxwire_sessions{dialect="wyoming"} 2.0' in metrics
            async with wyoming(gateway) as third:
                assert (await third.next())[1]["code"] == "busy"
                assert await third.ends() == b""
        async with wyoming(gateway) as again:
            await asyncio.sleep(1)
            await again.send("ping")
            assert (await again.next())[0] == "pong"
    finally:
        module.CONNECTIONS = before
    await asyncio.sleep(1)
    metrics = gateway.services.metrics.text().decode()
    assert 'voxwire_sessions{dialect="wyoming"} 0.0' in metrics
    assert 'voxwire_socket_bytes_total{dialect="wyoming",direction="in"}' in metrics


@on_gateway(wyoming=HERE)
async def test_an_idle_connection_stays_open_for_an_hour_r10(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await asyncio.sleep(3700)
        await client.send("ping")
        assert (await client.next())[0] == "pong"


@on_gateway(wyoming=HERE, socket_idle_s=600.0)
async def test_an_idle_connection_ends_at_last(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    async with wyoming(gateway) as client:
        began = loop.time()
        assert await client.ends() == b""
        assert loop.time() - began == pytest.approx(600, abs=1)


@on_gateway(lambda: ToneEngine(second="other", work_s=0.5), wyoming=HERE, socket_idle_s=1.0)
async def test_waiting_for_speech_is_not_idle(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="one two three four five six seven eight nine.")
        assert (await client.heard())[0] == ["audio-start", "audio-chunk", "audio-stop"]


@on_gateway(wyoming=HERE)
async def test_half_an_event_is_not_waited_for(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    async with wyoming(gateway) as client:
        await client.raw(b'{"type": "ping", "data_length": 5}\n{')
        began = loop.time()
        assert await client.ends() == b""
        assert loop.time() - began == pytest.approx(module.WITHIN_S, abs=1)


@on_gateway(wyoming=HERE)
async def test_nor_one_that_comes_a_byte_at_a_time(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    async with wyoming(gateway) as client:
        await client.raw(packed("ping") + b'{"type": "ping", "data_length": 500}\n')
        began = loop.time()
        assert (await client.next())[0] == "pong"
        ending = asyncio.ensure_future(client.ends())
        while not ending.done():
            client.writer.write(b" ")
            await asyncio.wait({ending}, timeout=module.WITHIN_S / 4)
        assert await ending == b""
        assert loop.time() - began == pytest.approx(module.WITHIN_S, abs=1)


@on_gateway(wyoming=HERE)
async def test_each_event_has_that_long(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        event = packed("ping", text="One.")
        for _ in range(5):
            await client.raw(event[:9])
            await asyncio.sleep(module.WITHIN_S * 0.75)
            await client.raw(event[9:])
            assert (await client.next())[0] == "pong"


@on_gateway(wyoming=HERE, socket_idle_s=600.0)
async def test_a_text_of_which_nothing_comes_is_idle(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        began = loop.time()
        assert await client.ends() == b""
        assert loop.time() - began == pytest.approx(600, abs=1)
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text=" \n")
        await asyncio.sleep(1)
        draining = asyncio.ensure_future(drain(gateway.services))
        began = loop.time()
        assert await client.ends() == b""
        assert loop.time() - began < 1
        assert await draining


@on_gateway(wyoming=HERE)
async def test_others_have_their_turn_between_the_events_of_a_flood(gateway: Running) -> None:
    async with wyoming(gateway) as many, wyoming(gateway) as one:
        await one.send("ping")
        assert (await one.next())[0] == "pong"
        sent = gateway.services.metrics.bytes.labels("wyoming", "out")
        before = sent._value.get()
        many.writer.write(packed("ping") * 1900)
        await one.send("ping")
        assert (await one.next())[0] == "pong"
        assert sent._value.get() - before < 50 * len(packed("pong", text=None))


@on_gateway(wyoming=HERE)
async def test_after_an_error_nothing_is_begun_any_more(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.raw(packed("synthesize") + packed("synthesize", text="One.") * 20)
        assert (await client.next())[0] == "error"
        assert await client.ends() == b""
    await asyncio.sleep(1)
    assert gateway.engine.requests == []
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_who_does_not_take_the_end_is_cut(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    sessions = gateway.services.metrics.sessions.labels("wyoming")
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        raw.setblocking(False)
        await loop.sock_connect(raw, ("127.0.0.1", port_of(gateway)))
        await asyncio.sleep(0.1)
        assert gateway.services.wyoming is not None
        (connection,) = gateway.services.wyoming._connections
        transport = connection._writer.transport
        while not transport.get_write_buffer_size():
            await loop.sock_sendall(raw, packed("describe") * 20)
            await asyncio.sleep(0.1)
        await loop.sock_sendall(raw, packed("synthesize"))
        async with asyncio.timeout(3 * SEND_DEADLINE_S):
            while sessions._value.get():
                await asyncio.sleep(0.1)


@on_gateway(wyoming=HERE, max_message_bytes=1024, max_body_bytes=2048)
async def test_limits_come_before_parsing(gateway: Running) -> None:
    for data, words in (
        (b"x" * 1100, "1024"),
        (b'{"type": "synthesize", "data_length": 2049}\n', "2048"),
        (b'{"type": "audio-chunk", "payload_length": 999999999999}\n', "payload"),
    ):
        async with wyoming(gateway) as client:
            await client.raw(data)
            kind, told, _ = await client.next()
            assert (kind, told["code"]) == ("error", "bad_request")
            assert words in told["text"]
            assert await client.ends() == b""


@on_gateway(wyoming=HERE)
async def test_who_does_not_read_is_cut_and_nothing_is_spoken_any_more(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await client.send("synthesize", text="One two three four. " * 2000)
        async with asyncio.timeout(3600):
            while not gateway.idle or not gateway.engine.requests:
                await asyncio.sleep(1.0)
        assert len(gateway.engine.requests) < 1000
        client.writer.transport.abort()


@on_gateway(lambda: ToneEngine(second="other", work_s=0.05), wyoming=HERE, messages_per_s=10)
async def test_who_asks_too_often_is_read_slowly(gateway: Running) -> None:
    loop = asyncio.get_running_loop()
    async with wyoming(gateway) as client:
        began = loop.time()
        await client.raw(packed("ping") * 50)
        for _ in range(50):
            assert (await client.next())[0] == "pong"
        assert loop.time() - began > 2.5


@on_gateway(lambda: ToneEngine(second="other", work_s=0.05), wyoming=HERE)
async def test_a_drain_lets_finish_what_is_spoken_r28(gateway: Running) -> None:
    async with wyoming(gateway) as busy, wyoming(gateway) as pieces, wyoming(gateway) as idle:
        await busy.send("synthesize", text="One two three four. " * 10)
        await pieces.send("synthesize-start")
        await pieces.send("synthesize-chunk", text="One two three. ")
        assert (await busy.next())[0] == "audio-start"
        assert (await pieces.next())[0] == "audio-start"
        draining = asyncio.ensure_future(drain(gateway.services))
        await asyncio.sleep(0.01)
        assert await idle.ends() == b""
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", port_of(gateway))
        await busy.send("synthesize", text="And more.")
        kinds, audio, _ = await busy.heard()
        assert kinds == ["audio-chunk", "audio-stop"]
        assert len(audio) / 48000 > 7
        assert (await busy.next())[1]["code"] == "draining"
        assert await busy.ends() == b""
        await pieces.send("synthesize-chunk", text="Four.")
        await pieces.send("synthesize-stop")
        kinds, _, _ = await pieces.heard()
        assert kinds == ["audio-chunk", "audio-stop"]
        assert (await pieces.next())[0] == "synthesize-stopped"
        assert await pieces.ends() == b""
        assert await draining


@on_gateway(wyoming=HERE)
async def test_a_fault_of_ours_is_told_in_our_words(gateway: Running) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("/a/secret/path")

    gateway.services.speaking.runner = fails  # type: ignore[method-assign,assignment]
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One.")
        kind, data, _ = await client.next()
        assert (kind, data["code"]) == ("error", "internal_error")
        assert "secret" not in data["text"]
        assert await client.ends() == b""
