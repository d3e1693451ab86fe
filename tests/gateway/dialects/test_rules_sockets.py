"""The rules of ``test_rules`` that hold at every WebSocket, tried at each of them in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import aiohttp
import pytest

from tests import virtual
from tests.peers.doors import SOCKETS, SocketDoor, door_client, on_doors
from tests.peers.gateway import Running
from tests.tone import RATE, ToneEngine
from tts_core.errors import EngineCrashed

SECRET = "configured-key-of-test"
LONG = "One two three four five. " * 40
MANY = tuple(door for door in SOCKETS if not door.one_turn)
NAMED = tuple(door for door in SOCKETS if door.ids)
ELEVENLABS = tuple(door for door in SOCKETS if door.name == "elevenlabs")
CARTESIA = tuple(door for door in SOCKETS if door.name == "cartesia")


def keyed(door: SocketDoor, key: str) -> dict[str, str]:
    return {name: value.replace("any", key) for name, value in door.headers.items()}


# Interruption and the end


@on_doors(SOCKETS)
async def test_after_a_cancel_there_is_no_audio_and_no_more_work_r1_r4_trap_interruption(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", LONG, LONG)
        await client.flush("a")
        await client.heard("a", 1.0)
        at = virtual.clock()
        await client.cancel("a")
        await asyncio.sleep(0.05)
        assert all(when <= at + 0.02 for when, told in client.told if told.kind == "audio")
        assert gateway.idle
        audio, asked = client.audio("a"), len(gateway.engine.requests)
        await asyncio.sleep(60)
        assert client.audio("a") == audio
        assert len(gateway.engine.requests) == asked
        assert client.ends("a") == (1 if door.ends else 0)
        if not door.one_turn:
            assert len(await client.speak("b", "Second answer.")) > 0.3 * RATE * 2
            assert gateway.engine.spoken[asked:] == ["Second answer."]
    assert client.faults == []


@on_doors(NAMED)
async def test_contexts_do_not_mix_and_nothing_follows_an_end_r2_trap_context(
    gateway: Running, door: SocketDoor
) -> None:
    texts = {"a": "One.", "b": "One two three.", "c": "One two three four five."}
    async with door_client(gateway, door) as client:
        for name, text in texts.items():
            await client.say(name, text)
        for name in texts:
            await client.end(name)
        for name, text in texts.items():
            await client.over(name)
            assert len(client.audio(name)) == len(text.split()) * round(0.2 * RATE) * 2
        await asyncio.sleep(30)
        for name in texts:
            assert [told.kind for told in client.of(name)][-1] == "end"
            assert client.ends(name) == 1
    assert all(told.context in texts for _, told in client.told if told.kind != "other")


@on_doors([door for door in SOCKETS if not door.ids and not door.one_turn])
async def test_on_a_wire_without_ids_old_audio_is_over_before_the_new_r3(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", LONG)
        await client.heard("a", 1.0)
        await client.flush("a")
        await client.cancel("a")
        await client.say("b", "Seven.")
        await client.end("b")
        await client.over("b", 2)  # the flush that was cut is never answered: Cleared, then Flushed
        await asyncio.sleep(30)
        told = [told.kind for _, told in client.told if told.kind != "other"]
        kinds = [kind for kind, _ in itertools.groupby(told)]
        assert kinds == (["audio", "end", "audio", "end"] if door.ends else ["audio"])
        assert gateway.engine.spoken[-1] == "Seven."


@on_doors(SOCKETS)
async def test_audio_runs_ahead_by_the_limit_only_r5_fact_5(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", LONG)
        await client.end("a")
        for _ in range(4):
            await asyncio.sleep(2)
            sent = client.seconds("a")
            ahead = sent - (virtual.clock() - client.told[1][0])
            assert ahead <= gateway.services.settings.run_ahead_s + 0.2
        assert sent > 8
        await client.cancel("a")


@on_doors(SOCKETS)
async def test_an_end_right_after_a_flush_loses_nothing_and_comes_last_r6_trap_end_of_turn(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", "One two three")
        await client.flush("a")
        await client.end("a")
        await client.over("a")
        assert client.seconds("a") == pytest.approx(0.6, abs=0.001)
        await asyncio.sleep(30)
        assert client.of("a")[-1].kind == ("end" if door.ends else "audio")
    assert client.faults == []


@on_doors(MANY)
async def test_fifty_rapid_interruptions_r7(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        for i in range(50):
            await client.say(f"c{i}", LONG)
            await client.flush(f"c{i}")
            await asyncio.sleep((i % 5) / 20)
            await client.cancel(f"c{i}")
        await asyncio.sleep(0.1)
        assert gateway.idle
        before = len(client.audio("last"))
        await client.speak("last", "One two.")
        assert len(client.audio("last")) - before == 0.4 * RATE * 2
    assert client.faults == []


@on_doors(SOCKETS)
async def test_empty_text_opens_nothing_r8(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", *([" "] if door.one_turn else ["", " ", "\n"]))
        await asyncio.sleep(5)
        assert gateway.services.limits.active == 0
        assert gateway.engine.requests == []
        assert client.audio("a") == b""
        assert len(await client.speak("a", "One two.")) == 0.4 * RATE * 2
    assert client.faults == []


@on_doors(ELEVENLABS)
async def test_what_a_close_means_is_told_by_what_came_before_r6_fact_10(
    gateway: Running, door: SocketDoor
) -> None:
    text, close = LONG[:125], '{"context_id":"a","close_context":true}'
    async with door_client(gateway, door) as client:
        for before, closes, least, most in (
            ('{"context_id":"a","flush":true}', 1, 4.9, 9.0),  # the end of a turn
            ('{"context_id":"a","text":"","flush":true}', 1, 4.9, 9.0),
            ('{"context_id":"a","text":"Last. ","flush":true}', 1, 0.0, 0.3),  # a barge-in in mid-text
            ('{"context_id":"a","flush":true}', 2, 0.0, 0.3),  # and one after the turn's end
        ):
            had, ends = client.seconds("a"), client.ends("a")
            await client.say("a", text)
            await client.ws.send_str(before)
            for _ in range(closes):
                await client.ws.send_str(close)
            await client.over("a", ends + 1)
            assert least <= client.seconds("a") - had <= most
    assert client.faults == []


# Time


@on_doors(MANY)
async def test_an_idle_socket_stays_open_for_an_hour_r10_fact_4_trap_reconnect(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door, autoping=False) as client:
        await client.speak("a", "One two.")
        await asyncio.sleep(3700)
        assert not client.ws.closed
        assert len(await client.speak("b", "One two.")) == 0.4 * RATE * 2
    assert client.faults == []


@on_doors(SOCKETS)
async def test_an_open_turn_waits_through_a_tool_call_r11(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", "One two three. ")
        await asyncio.sleep(175)
        assert gateway.engine.spoken == ["One two three."]
        await client.say("a", "Four five.")
        await client.end("a")
        await client.over("a")
        assert gateway.engine.spoken == ["One two three.", "Four five."]
        assert client.seconds("a") == pytest.approx(1.18, abs=0.01)
    assert client.faults == []


@on_doors(SOCKETS, lambda: ToneEngine(xrt=0.5, second="other"))
async def test_no_room_is_said_at_once_r27_fact_6(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        began = virtual.clock()
        await client.say("a", LONG)
        await client.end("a")
        while not client.faults:
            await asyncio.sleep(0.005)
        assert virtual.clock() - began <= 0.05
        await asyncio.sleep(5)
        assert [told.kind for told in client.of("a") if told.kind not in {"other", "refusal"}] == ["error"]
        assert client.ws.closed is door.one_turn
    assert gateway.idle


@on_doors(SOCKETS)
async def test_speech_begins_well_before_clients_give_up_r27_trap_receive_timeout(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        began = virtual.clock()
        await client.say("a", LONG)
        await client.end("a")
        await client.heard("a", 0.01)
        assert virtual.clock() - began < 0.1
        await asyncio.sleep(20)
        times = [at for at, told in client.told if told.kind == "audio"]
        assert max(b - a for a, b in itertools.pairwise(times)) < 2.5
        await client.cancel("a")


@on_doors(SOCKETS)
async def test_pings_are_answered_under_load_and_deflate_is_declined_r28_trap_deflate(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door, compress=15, autoping=False) as client:
        assert not client.ws.compress
        await client.say("a", LONG)
        await client.end("a")
        for i in range(5):
            await client.ws.ping()
            await asyncio.sleep(0.5)
            assert client.pongs == i + 1
        await client.cancel("a")


@on_doors(SOCKETS)
async def test_a_drain_lets_the_turn_finish_and_closes_with_1012_r28(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", "One two three four five. " * 4)
        await client.end("a")
        await client.heard("a", 0.1)
        gateway.services.draining.set()
        while not client.ws.closed:
            await asyncio.sleep(0.1)
        assert client.seconds("a") >= 4.0
        assert client.ws.close_code == (1000 if door.one_turn else 1012)
    assert client.faults == []
    assert gateway.idle


# Who may come in, and what is held for whom


@on_doors(SOCKETS, api_keys=f"acme:{SECRET}")
async def test_a_wrong_key_is_401_before_the_upgrade_r12(gateway: Running, door: SocketDoor) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with door_client(gateway, door, headers=keyed(door, "wrong")):
            pass
    assert refused.value.status == 401
    async with door_client(gateway, door, headers=keyed(door, SECRET)) as client:
        assert await client.speak("a", "One.")


@on_doors(SOCKETS, max_sockets=1)
async def test_a_full_house_is_429_before_the_upgrade_r12(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with door_client(gateway, door):
                pass
    assert refused.value.status == 429


@on_doors(SOCKETS)
async def test_an_engine_that_fails_gives_one_end_r13_r15(gateway: Running, door: SocketDoor) -> None:
    gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
    async with door_client(gateway, door) as client:
        await client.say("a", "One two three four five.")
        await client.end("a")
        await asyncio.sleep(30)
        (fault,) = client.faults
        assert (fault.kind, fault.context) == ("error", client.key("a"))
        assert "the voice failed" in fault.words
        assert client.ends("a") == 1
        gateway.engine.fail = None
        if not door.one_turn:
            assert len(await client.speak("b", "One two.")) == 0.4 * RATE * 2
    assert gateway.idle


@on_doors(SOCKETS)
async def test_a_silent_engine_is_told_in_time_r13_r15(gateway: Running, door: SocketDoor) -> None:
    gateway.engine.work_s = 30.0
    async with door_client(gateway, door) as client:
        await client.say("a", "One.")
        await client.end("a")
        await asyncio.sleep(10)
        (fault,) = client.faults
        assert (fault.kind, fault.context) == ("error", client.key("a"))
    assert gateway.idle


@on_doors(SOCKETS)
async def test_sockets_cost_no_place_and_a_lost_one_gives_its_own_back_r14(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door), door_client(gateway, door) as client:
        assert gateway.services.limits.active == 0
        await client.say("a", LONG)
        await client.flush("a")
        await client.heard("a", 0.5)
        assert gateway.services.limits.active == 1
        await client.cancel("a")
        await asyncio.sleep(0.05)
        assert gateway.services.limits.active == 0
    async with door_client(gateway, door) as client:
        await client.say("a", LONG)
        await client.flush("a")
        await client.heard("a", 0.5)
        connection = client.ws._conn
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()
        if door.name == "native":  # the session waits for its client to come back
            await asyncio.sleep(gateway.services.settings.resume_s)
        await asyncio.sleep(1.0)
        assert gateway.idle


# What frameworks do


@on_doors(NAMED)
async def test_a_late_word_on_an_unknown_context_harms_nothing_trap_unknown_context(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", "One two three four five.")
        for verb in (client.cancel, client.flush, client.end):
            await verb("never")
        await client.end("a")
        await client.over("a")
        assert client.seconds("a") == pytest.approx(1.0, abs=0.001)
        assert client.audio("never") == b""
        if door.name == "native":  # which says so, each time
            assert {told.context for told in client.faults} == {"never"}
        else:
            assert client.faults == []
    assert gateway.idle


@on_doors(ELEVENLABS)
async def test_keep_alives_before_and_between_turns_are_nothing_r8_trap_keep_alive(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        for turn in ("a", "b"):
            for _ in range(6):
                await client.ws.send_str('{"text":""}')
                await client.ws.send_str(f'{{"text":"","context_id":"{turn}"}}')
                await asyncio.sleep(10)
            assert len(await client.speak(turn, "One two.")) == 0.4 * RATE * 2
    assert [told.kind for _, told in client.told if told.kind != "audio"] == ["end", "end"]


@on_doors(SOCKETS)
async def test_messages_stay_below_the_smallest_limit_of_a_client_trap_message_limit(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", *[LONG] * 20)
        await client.end("a")
        await asyncio.sleep(20)
        assert 0 < client.longest < 1 << 16  # pipecat takes 1 MiB
        await client.cancel("a")


@on_doors(SOCKETS)
async def test_the_first_audio_is_sound_and_comes_in_a_small_piece_r17_trap_leading_silence_trap_ttfb(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        began = virtual.clock()  # frameworks take the time from the first text to the first frame of audio
        audio = await client.speak("a", "One two three four five.")
        assert next(at for at, told in client.told if told.kind == "audio") - began < 0.1
        pieces = [len(told.audio) for _, told in client.told if told.kind == "audio" and told.audio]
        assert 0.02 <= pieces[0] / 2 / RATE <= 0.04
        assert all(piece % 2 == 0 for piece in pieces)
        # A longer one comes to who has more than that in hand.
        assert all(piece / 2 / RATE <= max(0.1, sum(pieces[:i]) / 2 / RATE) for i, piece in enumerate(pieces))
        assert any(audio[: RATE // 100 * 2]), "10 ms of silence"


@on_doors(CARTESIA)
async def test_every_message_has_a_context_id_and_a_known_type_fact_9(
    gateway: Running, door: SocketDoor
) -> None:
    """The client of this test fails on any other; errors of every sort are among what comes."""
    async with door_client(gateway, door) as client:
        for raw in ("{", "[]", '{"transcript":"x"}', '{"context_id":"z","transcript":5}', '{"context_id":7}'):
            await client.ws.send_str(raw)
        await client.say("a", LONG)
        await client.ws.send_str('{"context_id":"a","transcript":"x","voice":"nobody"}')
        await client.ws.send_str('{"context_id":"b","transcript":"x","output_format":{"encoding":"mp3"}}')
        await client.flush("a")
        await client.heard("a", 0.5)
        await client.cancel("a")
        await client.over("a")
        assert len(client.faults) == 7


@on_doors(CARTESIA)
async def test_a_turn_that_was_refused_has_that_as_its_one_end_r13(
    gateway: Running, door: SocketDoor
) -> None:
    """A client goes on and ends its turn before it has read that the turn was refused."""
    async with door_client(gateway, door) as client:
        for field in ('"voice":"nobody"', '"output_format":{"encoding":"mp3"}', '"language":"xx"'):
            asked = '"transcript":"One.","voice":"tone","continue":true,"output_format":'
            raw = '{"encoding":"pcm_s16le","sample_rate":24000}'
            await client.ws.send_str(f'{{"context_id":"a",{asked}{raw},{field}}}')
            ends = client.ends("a")
            await client.end("a")
            await asyncio.sleep(1)
            assert client.ends("a") == ends + 1
            assert client.of("a")[-1].kind == "error"
    assert gateway.idle
