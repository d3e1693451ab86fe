"""The ElevenLabs sockets under any order of messages: each context ends once and nothing is held.

The client's transcript fails on whatever is out of order; what is checked here is what is left at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import virtual
from tests.peers.elevenlabs import PCM, ElevenClient, eleven_client, single_client
from tests.peers.gateway import Running, open_gateway
from tts_core.errors import EngineCrashed

NAMES = ["a", "b", "c", "d", "e", "f", None]
TEXTS = [
    "One two three. ",
    "4",
    "2",
    ".5",
    "",
    " ",
    "...",
    "<break time=",
    '"9s"/>',
    "😀 **x**",
    "word " * 40,
    "\x00\x1b[2J",
]
BROKEN = ["{", "[]", '{"context_id":"z","text":5}', '{"context_id":7}', "null", '"', '{"flush":"yes"}']
STEADY = "Alpha beta gamma delta. " * 10

fields = st.fixed_dictionaries(
    {},
    optional={
        "flush": st.booleans(),
        "try_trigger_generation": st.booleans(),
        "voice_settings": st.sampled_from([None, {}, {"speed": 1.5}, {"speed": 99}, {"stability": "x"}]),
        "generation_config": st.sampled_from([None, {}, {"chunk_length_schedule": [50]}]),
    },
)
STEP_S = 0.00137
"""Between two messages; never at the moment at which the engine, a millisecond a word, is through."""

say = st.tuples(st.just("say"), st.sampled_from(NAMES), st.sampled_from(TEXTS), fields)
verbs = st.tuples(st.sampled_from(["flush", "close", "finish"]), st.sampled_from(NAMES))
broken = st.tuples(st.just("broken"), st.sampled_from(BROKEN))
wait = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 2.0, 25.0]))
crash = st.tuples(st.just("crash"))
scripts = st.lists(say | say | verbs | broken | wait | crash, max_size=25)
endings = st.sampled_from(["close_socket", "finish", "close", "reset"])
queries = st.sampled_from(["", "&auto_mode=true", "&close_context_policy=drain", "&sync_alignment=true"])


def _message(name: str | None, **more: Any) -> dict[str, Any]:
    return more if name is None else {"context_id": name, **more}


async def _script(gateway: Running, client: ElevenClient, script: list[tuple[Any, ...]]) -> None:
    for step in script:
        # What is refused is told before the client goes on: else its own view of the context would be late.
        await asyncio.sleep(STEP_S)
        match step:
            case "say", name, text, more:
                await client.send(_message(name, text=text, **more))
            case "flush", name:
                await client.send(_message(name, flush=True))
            case "close", name:
                await client.send(_message(name, close_context=True))
            case "finish", name:
                await client.send(_message(name, flush=True))
                await client.send(_message(name, close_context=True))
            case "broken", raw:
                await client.ws.send_str(raw)
            case "wait", seconds:
                await asyncio.sleep(seconds)
            case ("crash",):
                gateway.engine.fail = EngineCrashed("the voice failed")
                await asyncio.sleep(0.05)
                gateway.engine.fail = None


async def _finish(client: ElevenClient, ending: str) -> None:
    await asyncio.sleep(STEP_S)
    if ending == "close_socket":
        await client.send({"close_socket": True})
    elif ending == "finish":
        for name in client.open_contexts:
            await client.finish(name)
    if ending in {"close_socket", "finish"}:
        await asyncio.sleep(120)
        # A context that was refused when it was opened has its error as its end, too.
        assert client.open_contexts == []
    if ending == "reset":
        client.reset()


async def _fuzzed(script: list[tuple[Any, ...]], ending: str, query: str, folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(stack, folder, clock=virtual.clock, messages_per_s=100_000)
        turn = {"filled": "sync" not in query}
        fuzzed = await stack.enter_async_context(eleven_client(gateway, query=PCM + query, turn=turn))
        other = await stack.enter_async_context(eleven_client(gateway))
        await other.say("steady", STEADY)
        await other.finish("steady")
        tasks = [asyncio.ensure_future(client.close_code()) for client in (fuzzed, other)]
        await _script(gateway, fuzzed, script)
        await _finish(fuzzed, ending)
        await fuzzed.ws.close()
        crashed = any(step[0] == "crash" for step in script)
        if not crashed:  # a crash of the engine is nobody's fault, and everybody's
            steady = other.transcript.turns["steady"]
            while steady.end is None:
                await asyncio.sleep(1)
            assert steady.chars == STEADY
        await other.ws.close()
        for task in tasks:
            await task
        await asyncio.sleep(1)
        assert gateway.idle
        assert gateway.services.scheduler.stats.active == 0
        assert not gateway.services.sockets


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts, endings, queries)
def test_any_script_ends_clean(script: list[tuple[Any, ...]], ending: str, query: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual.run(lambda: _fuzzed(script, ending, query, Path(folder)))


async def _single(script: list[tuple[Any, ...]], folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(stack, folder, clock=virtual.clock)
        client = await stack.enter_async_context(single_client(gateway))
        reading = asyncio.ensure_future(client.close_code())
        with contextlib.suppress(ConnectionError):
            await _script(gateway, client, script)
            if not client.ws.closed:
                await client.ws.send_json({"text": ""})
        await asyncio.sleep(200)
        assert client.ws.closed
        await reading
        assert gateway.idle
        assert not gateway.services.sockets


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(say | say | broken | wait | crash, max_size=15))
def test_any_script_on_a_single_text_ends_it(script: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual.run(lambda: _single(script, Path(folder)))


def test_the_transcript_sees_what_must_not_be() -> None:
    """The checks above are worth something only if the transcript fails when it should."""

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with contextlib.AsyncExitStack() as stack:
                gateway = await open_gateway(stack, Path(folder), clock=virtual.clock)
                client = await stack.enter_async_context(eleven_client(gateway))
                await client.say("a", "One.")
                await client.finish("a")
                (turn,) = await client.ended("a")
                final = {"isFinal": True, "audio": None, "alignment": None, "normalizedAlignment": None}
                bad = {"chars": ["x"], "charStartTimesMs": [0], "charDurationsMs": [9]}
                half = {"isFinal": False, "audio": "AAA=", "alignment": bad, "normalizedAlignment": bad}
                for message in (
                    {**final, "contextId": "a"},
                    final,
                    {"isFinal": True, "contextId": "a"},
                    {"error": "x", "message": "", "code": 1008, "contextId": "a"},
                ):
                    with pytest.raises((AssertionError, KeyError)):
                        client.transcript.take(json.dumps(message), 0.0)
                turn.end = None
                with pytest.raises(AssertionError):
                    client.transcript.take(json.dumps({**half, "contextId": "a"}), 0.0)

    virtual.run(main)
