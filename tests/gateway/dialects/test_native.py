"""The page about the protocol, as to connections: hello, limits, resume, drain, tokens, what is served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from gateway.app import drain
from gateway.dialects import native
from gateway.dialects.native import TAKEN_OVER
from tests import virtual
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import NativeClient, native_client

LONG = "One two three four five. " * 20
KEY = "configured-key-of-test"


# Hello


@on_gateway(resume_s=12, context_idle_s=77, max_message_bytes=4096)
async def test_hello_tells_session_voices_formats_and_limits(gateway: Running) -> None:
    async with native_client(gateway, client="test 1.0") as client:
        hello = client.hello
        assert hello["version"] == 1
        assert hello["session"].startswith("s_")
        assert len(hello["key"]) >= 32
        assert (hello["engine"], hello["native_rate"]) == ("tone", 24000)
        assert hello["formats"] == ["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
        assert hello["sample_rates"] == [8000, 16000, 22050, 24000, 32000, 44100, 48000]
        assert [voice["id"] for voice in hello["voices"]] == ["tone", "other"]
        assert hello["limits"] == {
            "max_contexts": 16,
            "max_message_bytes": 4096,
            "max_context_characters": 50_000,
            "context_idle_s": 77.0,
            "run_ahead_ms": 3000,
            "resume_s": 12.0,
        }
        assert hello["resumed"] is False
        assert hello["contexts"] == {}


@on_gateway()
async def test_the_client_need_not_wait_for_the_answer(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http:
        client = NativeClient(gateway, http)
        await client.dial()
        await client.send("hello", version=1)
        await client.send("open", "a", text="One two.", end=True)
        await client.ended("a")
        assert [m["type"] for m in client.transcript.messages][:2] == ["hello", "opened"]
        await client.ws.close()


@pytest.mark.parametrize(
    ("first", "field", "says"),
    [
        ('{"type":"ping"}', "type", "hello"),
        ('{"type":"dance"}', "type", "hello"),
        ("{", "type", "hello"),
        (b"\x01\x02", "type", "text"),
        ('{"type":"hello","version":2}', "version", "1"),
        ('{"type":"hello","version":"one"}', "version", ""),
        ('{"type":"hello","resume":{"session":"s"}}', "resume.key", ""),
        ('{"type":"hello","agent":{"max_calls":0}}', "agent.max_calls", ""),
        (
            '{"type":"hello","agent":{"caller_audio":{"encoding":"alaw","sample_rate":8000}}}',
            "agent.caller_audio",
            "",
        ),
    ],
)
def test_a_wrong_first_message_is_named_and_closes(
    tmp_path: Path, first: str | bytes, field: str, says: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with aiohttp.ClientSession() as http:
            client = NativeClient(gateway, http)
            await client.dial()
            await (client.ws.send_bytes(first) if isinstance(first, bytes) else client.ws.send_str(first))
            error = await client.until("error")
            assert (error["code"], error["field"]) == ("bad_request", field)
            assert says in error["message"]
            assert await client.close_code() == 1008
        assert not gateway.services.native_sessions

    main(tmp_path)


@on_gateway()
async def test_hello_must_come_within_five_seconds(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http:
        client = NativeClient(gateway, http)
        await client.dial()
        began = virtual.clock()
        error = await client.until("error")
        assert virtual.clock() - began == pytest.approx(native.HELLO_S, abs=0.1)
        assert error["field"] == "type"
        assert await client.close_code() == 1008


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"X-API-Key": KEY}, "", 101),
        ({"Authorization": f"Bearer {KEY}"}, "", 101),
        ({}, f"?api_key={KEY}", 101),
        ({}, f"?access_token={KEY}", 101),
        ({"X-API-Key": "wrong"}, "", 401),
        ({}, "", 401),
        ({"X-API-Key": KEY, "Origin": "https://evil.example"}, "", 403),
    ],
)
def test_the_key_is_checked_before_the_upgrade(
    tmp_path: Path, headers: dict[str, str], query: str, status: int
) -> None:
    @on_gateway(api_keys=f"acme:{KEY}")
    async def main(gateway: Running) -> None:
        async with aiohttp.ClientSession() as http:
            client = NativeClient(gateway, http)
            if status == 101:
                assert (await client.connect(headers=headers, query=query))["type"] == "hello"
                await client.ws.close()
                return
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.dial(headers=headers, query=query)
            assert refused.value.status == status

    main(tmp_path)


@on_gateway(max_sockets=1)
async def test_one_connection_too_many_is_refused_before_the_upgrade(gateway: Running) -> None:
    async with native_client(gateway), aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await NativeClient(gateway, http).dial()
        assert refused.value.status == 429
        assert refused.value.headers is not None
        assert int(refused.value.headers["Retry-After"]) >= 1


@on_gateway()
async def test_compression_is_declined_and_pings_are_answered(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers={"X-API-Key": "any"}) as http,
        http.ws_connect(gateway.url + "/v1/stream", compress=15, autoping=False) as ws,
    ):
        assert ws.compress == 0
        await ws.ping(b"there?")
        pong = await ws.receive()
        assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"there?")


@on_gateway(api_keys=f"acme[speak]:{KEY}")
async def test_serving_calls_needs_its_scope(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http:
        client = NativeClient(gateway, http)
        error = await client.connect(headers={"X-API-Key": KEY}, agent={"name": "support"})
        assert (error["code"], error["field"]) == ("forbidden", "agent")
        assert await client.close_code() == 1008


# Limits


@on_gateway()
async def test_fifty_bad_messages_in_a_row_close_the_connection(gateway: Running) -> None:
    async with native_client(gateway) as client:
        for _ in range(49):
            await client.ws.send_str("{")
        await client.settled()  # a good one in between begins the count anew
        for _ in range(50):
            await client.ws.send_str("{")
        assert await client.close_code() == 1008
        errors = [m for m in client.transcript.messages if m["type"] == "error"]
        assert len(errors) == 99
        await asyncio.sleep(0.1)
    assert not gateway.services.native_sessions


@on_gateway()
async def test_a_message_over_the_limit_closes_its_own_connection_only(gateway: Running) -> None:
    async with native_client(gateway) as good, native_client(gateway) as bad:
        await good.send("open", "a", text=LONG, end=True)
        await good.audio("a", 0.5)
        await bad.send("open", "b", text="x" * 70_000)
        assert await bad.close_code() == 1009
        (turn,) = await good.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        assert turn.text == LONG.strip()


@on_gateway(messages_per_s=10)
async def test_a_flood_is_read_slowly(gateway: Running) -> None:
    async with native_client(gateway) as client:
        started = virtual.clock()
        for i in range(39):  # with the hello 20 of them are a burst
            await client.send("ping", id=str(i))
        while (await client.until("pong"))["id"] != "38":
            pass
        assert virtual.clock() - started == pytest.approx(2.0, abs=0.01)


@on_gateway(socket_idle_s=7200)
async def test_a_quiet_connection_stays_open_for_hours_without_pongs(gateway: Running) -> None:
    async with native_client(gateway) as client:
        for _ in range(3):
            virtual.skip(3600)
            await client.send("open", "a", text="Still here.", end=True)
            await client.until("done")


# Resume


@on_gateway()
async def test_a_resume_in_the_middle_of_speech_loses_and_doubles_nothing(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a")
        await client.send("text", "a", text="One two three four five six. ", seq=1)
        await client.send("text", "a", text="Seven eight nine ten. ", seq=2)
        await client.audio("a", 0.5)
        client.drop()
        await asyncio.sleep(2)
        answer = await client.connect(resume=client.resume)
        assert answer["resumed"] is True
        assert answer["contexts"] == {"a": {"texts": 2, "ended": False}}
        await client.send("text", "a", text="Seven eight nine ten. ", seq=2)  # sent again, to be safe
        await client.send("text", "a", text="Eleven.", seq=3, end=True)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three four five six. Seven eight nine ten. Eleven."
        assert gateway.engine.spoken == ["One two three four five six.", "Seven eight nine ten.", "Eleven."]
        assert len(gateway.services.native_sessions) == 1


@on_gateway()
async def test_drops_at_any_moment_lose_nothing(gateway: Running) -> None:
    async with native_client(gateway) as client:
        whole = [word for i in range(8) for word in f"Alpha beta gamma delta {i}.".split()]
        await client.send("open", "a")
        for i in range(8):
            await client.send("text", "a", text=f"Alpha beta gamma delta {i}. ", seq=i + 1)
            for _ in range(i):
                await client.next()
            client.drop()
            answer = await client.connect(resume=client.resume)
            taken = answer["contexts"].get("a")
            if taken is None:
                await client.send("open", "a")
            for again in range(taken["texts"] if taken else 0, i + 1):
                await client.send("text", "a", text=f"Alpha beta gamma delta {again}. ", seq=again + 1)
        await client.send("end", "a")
        (turn,) = await client.ended("a")
        assert turn.text.split() == whole


@on_gateway()
async def test_what_ended_meanwhile_is_told_on_the_resume(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three.", end=True)
        await client.until("opened")
        client.drop()
        await asyncio.sleep(10)
        answer = await client.connect(resume=client.resume)
        assert answer["contexts"] == {}
        (turn,) = await client.ended("a")
        assert turn.text == "One two three."


def _changed(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda resume: resume | changes


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_changed(key="wrong"), "resume.session"),
        (_changed(session="s_none"), "resume.session"),
        (lambda resume: resume | {"received": resume["received"] + 1000}, "resume.received"),
    ],
)
def test_a_wrong_resume_is_refused_and_harms_nobody(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with native_client(gateway) as client, aiohttp.ClientSession() as http:
            await client.send("open", "a", text=LONG, end=True)
            await client.audio("a", 1.0)
            thief = NativeClient(gateway, http)
            error = await thief.connect(resume=change(client.resume))
            assert (error["type"], error["code"], error["field"]) == ("error", "resume_gap", field)
            assert await thief.close_code() == 1008
            (turn,) = await client.ended("a")  # the connection that has the session never noticed
            assert turn.text == LONG.strip()

    main(tmp_path)


@on_gateway(api_keys=f"acme:{KEY},other:{KEY}2")
async def test_another_tenant_cannot_resume_even_with_the_session_key(gateway: Running) -> None:
    async with (
        native_client(gateway, headers={"X-API-Key": KEY}) as client,
        aiohttp.ClientSession() as http,
    ):
        await client.send("open", "a", text="One.")
        await client.until("opened")
        thief = NativeClient(gateway, http)
        error = await thief.connect(headers={"X-API-Key": KEY + "2"}, resume=client.resume)
        assert error["code"] == "resume_gap"
        await client.send("end", "a")
        await client.ended("a")
        await thief.ws.close()


@on_gateway(messages_per_s=10_000)
async def test_too_much_missed_is_a_gap(gateway: Running) -> None:
    async with native_client(gateway) as client:
        fmt = {"encoding": "pcm_f32le", "sample_rate": 48000}
        await client.send("open", "a", text=LONG * 3, end=True, format=fmt)
        early = None
        while "a" not in client.transcript.turns or client.transcript.turns["a"].end is None:
            await client.next()
            turn = client.transcript.turns.get("a")
            if turn is not None and turn.frames:
                early = early or client.resume
                await client.send("played", "a", sample=turn.samples)
        client.drop()
        async with aiohttp.ClientSession() as http:
            error = await NativeClient(gateway, http).connect(resume=early)
        assert (error["code"], error["field"]) == ("resume_gap", "resume.received")
        assert (await client.connect(resume=client.resume))["resumed"] is True


@on_gateway()
async def test_a_second_connection_takes_over(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG, end=True)
        await client.audio("a", 1.0)
        first = client.ws
        await client.connect(resume=client.resume)
        (turn,) = await client.ended("a")
        assert turn.text == LONG.strip()
        while (message := await first.receive()).type is not aiohttp.WSMsgType.CLOSE:
            assert message.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}
        assert message.data == TAKEN_OVER
        await first.close()
        assert (await client.settled()) == []


@on_gateway(resume_s=20)
async def test_a_dropped_session_ends_when_its_time_is_up(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        await client.audio("a", 1.0)
        client.drop()
        await asyncio.sleep(19)
        assert len(services.native_sessions) == 1
        await asyncio.sleep(2)
        assert not services.native_sessions
        assert services.limits.active == services.in_flight.count == 0
        answer = await client.connect(resume=client.resume)
        assert answer["code"] == "resume_gap"


@on_gateway(resume_s=0)
async def test_nothing_is_kept_where_resuming_is_off(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        await client.audio("a", 1.0)
        client.drop()
        await asyncio.sleep(0.1)
        assert not gateway.services.native_sessions
        assert gateway.services.in_flight.count == 0


@on_gateway()
async def test_a_session_without_anything_to_resume_is_not_kept(gateway: Running) -> None:
    async with native_client(gateway):
        assert len(gateway.services.native_sessions) == 1
    await asyncio.sleep(0.1)
    assert not gateway.services.native_sessions


@on_gateway()
async def test_dropped_sessions_are_bounded_oldest_first(gateway: Running) -> None:
    limit, native.MAX_DETACHED = native.MAX_DETACHED, 3
    try:
        async with aiohttp.ClientSession() as http:
            names = []
            for _ in range(5):
                client = NativeClient(gateway, http)
                names.append((await client.connect())["session"])
                await client.settled()
                client.drop()
                await asyncio.sleep(0.1)
            assert list(gateway.services.native_sessions) == names[2:]
    finally:
        native.MAX_DETACHED = limit


# Drain


@on_gateway()
async def test_a_drain_is_told_contexts_finish_and_the_socket_closes_with_1012(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG, end=True)
        await client.audio("a", 0.5)
        draining = asyncio.ensure_future(drain(gateway.services))
        assert (await client.until("draining"))["deadline_s"] == 30.0
        await client.send("open", "b", text="Late.")
        error = await client.until("error")
        assert (error["code"], error["context"], error["terminal"]) == ("draining", "b", True)
        assert error["retry_after"] > 0
        (turn,) = await client.ended("a")
        assert turn.text == LONG.strip()
        assert await client.close_code() == 1012
        assert await draining is True
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.dial()
        assert refused.value.status == 503


@on_gateway(drain_s=3)
async def test_what_does_not_finish_in_time_is_cut(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        await client.audio("a", 0.5)
        began = virtual.clock()
        await client.send("open", "idle")
        draining = asyncio.ensure_future(drain(gateway.services))
        ends = [await client.until("error") for _ in range(2)]
        assert {end["context"] for end in ends} == {"a", "idle"}
        assert {(end["code"], end["terminal"], end["retry_after"]) for end in ends} == {
            ("draining", True, 1.0)
        }
        assert await client.close_code() == 1012
        assert await draining is False
        assert virtual.clock() - began < 3.5


@on_gateway()
async def test_a_context_that_paused_goes_on_during_a_drain(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three.", flush=True)
        await client.audio("a", 0.5)
        draining = asyncio.ensure_future(drain(gateway.services))
        await asyncio.sleep(10)
        assert gateway.services.limits.active == 0  # played out, its slot given back
        await client.send("text", "a", text=" Four five six.", end=True)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three. Four five six."
        assert await draining is True


# Browser tokens


async def _token(gateway: Running, **asked: Any) -> str:
    async with (
        aiohttp.ClientSession() as http,
        http.post(gateway.url + "/v1/token", json=asked, headers={"X-API-Key": KEY}) as response,
    ):
        token: str = (await response.json())["token"]
        return token


@on_gateway(api_keys=f"acme:{KEY}")
async def test_a_token_is_good_for_one_connection(gateway: Running) -> None:
    token = await _token(gateway)
    async with native_client(gateway, query=f"?token={token}") as client:
        await client.send("open", "a", text="One.", end=True)
        await client.ended("a")
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await NativeClient(gateway, http).dial(query=f"?token={token}")
        assert refused.value.status == 401


@on_gateway(api_keys=f"acme:{KEY}", voice_aliases={"ada": "other"})
async def test_a_token_for_one_voice_speaks_with_no_other(gateway: Running) -> None:
    for asked in ("other", "ada"):
        token = await _token(gateway, voice=asked)
        async with native_client(gateway, query=f"?token={token}") as client:
            assert [voice["id"] for voice in client.hello["voices"]] == ["other"]
            for name, voice in (("a", ""), ("b", "other"), ("c", "ada")):
                await client.send("open", name, text="One.", end=True, voice=voice)
                (turn,) = await client.ended(name)
                assert turn.opened["voice"] == "other"
            await client.send("open", "d", text="One.", voice="tone")
            error = await client.until("error")
            assert (error["code"], error["field"], error["terminal"]) == ("forbidden", "voice", True)


@on_gateway(api_keys=f"acme:{KEY}")
async def test_a_tokens_characters_count_over_the_whole_session(gateway: Running) -> None:
    token = await _token(gateway, max_characters=40)
    async with native_client(gateway, query=f"?token={token}") as client:
        await client.send("open", "a", text="Twenty characters ok.", end=True)  # 21
        await client.send("open", "b", text="Fifteen is less.", end=True)  # 16: 37 by now
        a, b = await client.ended("a", "b")
        assert (a.end or {})["type"] == (b.end or {})["type"] == "done"
        client.drop()
        resume = client.resume
        again = await _token(gateway, max_characters=40)
        await client.connect(query=f"?token={again}", resume=resume)  # a resume is the same session
        await client.send("open", "c", text="Four.", end=True)
        (c,) = await client.ended("c")
        assert c.end is not None
        assert (c.end["code"], c.end["terminal"]) == ("limit_exceeded", True)
        assert "40 characters" in c.end["message"]
        assert c.samples == 0


@on_gateway(api_keys=f"acme:{KEY}", allowed_origins=("https://a.example", "https://b.example"))
async def test_a_token_for_one_origin_opens_for_no_other(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http:
        for origin, good in (("https://b.example", False), (None, False), ("https://a.example", True)):
            token = await _token(gateway, origin="https://a.example")
            client = NativeClient(gateway, http)
            headers = {"Origin": origin} if origin else {}
            if good:
                assert (await client.connect(headers=headers, query=f"?token={token}"))["type"] == "hello"
                await client.ws.close()
                continue
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.dial(headers=headers, query=f"?token={token}")
            assert refused.value.status == 403


# What is served about it


@on_gateway()
async def test_every_message_of_a_session_fits_the_schema_that_is_served(gateway: Running) -> None:
    async with native_client(gateway, agent={"name": "x", "caller_audio": None}) as client:
        await client.send("open", "a", format={"encoding": "mulaw", "sample_rate": 8000}, speed=1.5)
        await client.send("text", "a", text="One two three. ", seq=1)
        await client.send("flush", "a", flush_id=3)
        await client.until("flushed")
        await client.send("played", "a", sample=100)
        await client.send("open", "b", text=LONG)
        await client.audio("b", 0.3)
        await client.send("open", "c", text="Sure.", end=True, interrupt="b", voice="other")
        await client.send("end", "a")
        await client.ended("a", "b", "c")
        await client.send("cancel", "a")
        await client.send("cancel", "ghost")
        await client.send("open", "d", format={"sample_rate": 11025})
        await client.settled()
        async with (
            aiohttp.ClientSession() as http,
            http.get(gateway.url + "/v1/stream/schema.json") as served,
        ):
            assert served.content_type == "application/json"
            schema = await served.json()
        draining = asyncio.ensure_future(drain(gateway.services))
        await client.close_code()
        await draining
    received = client.transcript.messages
    assert {m["type"] for m in received} == {
        *("hello", "opened", "words", "flushed", "done", "cancelled", "heard", "error", "pong", "draining")
    }
    definitions = {"$defs": schema["$defs"]}
    for side, messages in (("FromGateway", received), ("FromClient", client.sent)):
        check = jsonschema.Draft202012Validator({**definitions, "$ref": f"#/$defs/{side}"})
        for message in messages:
            check.validate(message)
    assert not jsonschema.Draft202012Validator({**definitions, "$ref": "#/$defs/FromClient"}).is_valid(
        {"type": "open", "context": "", "speed": 9}
    )


@on_gateway()
async def test_the_page_about_the_protocol_is_served(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http, http.get(gateway.url + "/v1/stream/protocol.md") as served:
        assert served.content_type == "text/markdown"
        page = await served.text()
    assert page.startswith("# Voxwire native protocol")
    blocks = [block.split("```")[0] for block in page.split("```json")[1:]]
    assert len(blocks) >= 5
    for block in blocks:
        text = block.strip()
        decoder = json.JSONDecoder()
        while text:
            _, end = decoder.raw_decode(text)  # every example is JSON
            text = text[end:].strip()
