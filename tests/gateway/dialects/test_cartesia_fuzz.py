"""The Cartesia dialect under any order of messages: each context ends once and nothing is held.

The client's transcript fails on whatever is out of order; what is checked here is what is left at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import virtual
from tests.peers.cartesia import RAW, VOICE, CartesiaClient, cartesia_client
from tests.peers.gateway import Running, open_gateway
from tts_core.errors import EngineCrashed

NAMES = ["a", "b", "c", "d"]
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
]
FORMATS = [RAW, RAW | {"encoding": "pcm_mulaw", "sample_rate": 8000}, RAW | {"sample_rate": 22050}]
BROKEN = ["{", "[]", '{"context_id":"z","transcript":5}', '{"context_id":"z"}', "null", '{"cancel":true}']

STEP_S = 0.00137
"""Between two messages; never at the moment at which the engine, a millisecond a word, is through."""

say = st.tuples(
    st.just("say"),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
    st.fixed_dictionaries(
        {"more": st.booleans()},
        optional={
            "flush": st.booleans(),
            "max_buffer_delay_ms": st.sampled_from([0, 500, None]),
            "add_timestamps": st.booleans(),
            "output_format": st.sampled_from(FORMATS),
            "voice": st.sampled_from([VOICE, "other", "nobody", None]),
        },
    ),
)
cancel = st.tuples(st.just("cancel"), st.sampled_from(NAMES))
broken = st.tuples(st.just("broken"), st.sampled_from(BROKEN))
wait = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.3, 2.0, 20.0]))
crash = st.tuples(st.just("crash"))
scripts = st.lists(say | say | cancel | broken | wait | crash, max_size=25)
endings = st.sampled_from(["cancel", "end", "close", "reset"])


async def _script(gateway: Running, client: CartesiaClient, script: list[tuple[Any, ...]]) -> None:
    for step in script:
        # What is refused is told before the client goes on: else its own view of the context would be late.
        await asyncio.sleep(STEP_S)
        match step:
            case "say", name, text, fields:
                await client.say(name, text, **fields)
            case "cancel", name:
                await client.cancel(name)
            case "broken", raw:
                await client.ws.send_str(raw)
            case "wait", seconds:
                await asyncio.sleep(seconds)
            case ("crash",):
                gateway.engine.fail = EngineCrashed("the voice failed")
                await asyncio.sleep(0.05)
                gateway.engine.fail = None


async def _finish(client: CartesiaClient, ending: str) -> None:
    await asyncio.sleep(STEP_S)
    for name in client.open_contexts:
        await (client.cancel(name) if ending == "cancel" else client.end(name))
    if ending in {"cancel", "end"}:
        await asyncio.sleep(120)
        # A context that was refused when it was opened has its error as its end, too.
        assert client.open_contexts == []
    if ending == "reset":
        client.reset()


async def _fuzzed(script: list[tuple[Any, ...]], ending: str, folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(
            stack, folder, clock=virtual.clock, max_contexts_per_socket=3, messages_per_s=100_000
        )
        fuzzed = await stack.enter_async_context(cartesia_client(gateway))
        other = await stack.enter_async_context(cartesia_client(gateway))
        await other.say("steady", "Alpha beta gamma delta. " * 10, add_timestamps=True)
        tasks = [asyncio.ensure_future(client.close_code()) for client in (fuzzed, other)]
        await _script(gateway, fuzzed, script)
        await _finish(fuzzed, ending)
        await fuzzed.ws.close()
        crashed = any(step[0] == "crash" for step in script)
        if not crashed:  # a crash of the engine is nobody's fault, and everybody's
            await other.end("steady")
            while (steady := other.transcript.turns["steady"]).end is None:
                await asyncio.sleep(1)
            assert steady.text == ("Alpha beta gamma delta. " * 10).strip()
            assert steady.end["type"] == "done"
            assert other.transcript.errors == []
        await other.ws.close()
        for task in tasks:
            await task
        await asyncio.sleep(1)
        assert gateway.idle
        assert gateway.services.scheduler.stats.active == 0
        assert not gateway.services.sockets


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts, endings)
def test_any_script_ends_clean(script: list[tuple[Any, ...]], ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual.run(lambda: _fuzzed(script, ending, Path(folder)))


def test_the_transcript_sees_what_must_not_be() -> None:
    """The checks above are worth something only if the transcript fails when it should."""

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with contextlib.AsyncExitStack() as stack:
                gateway = await open_gateway(stack, Path(folder), clock=virtual.clock)
                client = await stack.enter_async_context(cartesia_client(gateway))
                await client.say("a", "One.", more=False)
                (turn,) = await client.ended("a")
                for bad in (
                    '{"type":"done","context_id":"a","done":true,"status_code":200}',
                    '{"type":"metadata","context_id":"a","done":false,"status_code":206}',
                    '{"type":"done","done":true,"status_code":200}',
                ):
                    try:
                        client.transcript.take(bad, 0.0)
                    except AssertionError:
                        continue
                    raise RuntimeError(f"taken: {bad}")
                assert turn.end is not None

    virtual.run(main)
