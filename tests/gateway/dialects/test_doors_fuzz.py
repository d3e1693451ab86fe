"""Any order of messages at any door: each turn ends at most once, and nothing is held, mixed or left behind.

The client fails on a part of a sample and on a message that its dialect does not have; who speaks beside it
must get its own audio to the sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import virtual
from tests.peers.doors import POSTS, SOCKETS, DoorClient, PostDoor, SocketDoor, door_client, post
from tests.peers.gateway import open_gateway
from tests.tone import RATE

STEADY, STEADY_BYTES = "Alpha beta gamma. " * 4, round((12 * 0.2 + 3 * 0.18) * RATE) * 2
INSIDE = re.compile(r"Traceback|\.py\b|msgspec|aiohttp|object at")
IDS = st.sampled_from(["a", "b", "c", "\U0001f600", "x" * 256])
WORDS = st.sampled_from(
    [
        "One two three. ",
        "4",
        "2.",
        "",
        " ",
        "...",
        "<break time=",
        '"9s"/>',
        "**x** ",
        "\x00\u202e",
        "\ud83d",
        "word " * 40,
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    *(
        "type",
        "text",
        "context",
        "context_id",
        "contextId",
        "transcript",
        "voice",
        "flush",
        "end",
        "continue",
        "seq",
    ),
    *(
        "cancel",
        "close_context",
        "output_format",
        "voice_settings",
        "speed",
        "language",
        "format",
        "interrupt",
    ),
    *(
        "input",
        "model",
        "response_format",
        "message",
        "sampleRate",
        "seed",
        "playback_offset",
        "stream_format",
    ),
]
KINDS = [
    "open",
    "text",
    "flush",
    "end",
    "cancel",
    "played",
    "Speak",
    "Flush",
    "Clear",
    "Interrupt",
    "stream",
    "stop",
]
OBJECTS = st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(KINDS) | IDS, max_size=5)

STEP_S = 0.00137
"""Between two messages; never at the moment at which the engine, a millisecond a word, is through."""

STEPS = st.one_of(
    st.tuples(st.just("say"), IDS, WORDS),
    st.tuples(st.just("say"), IDS, WORDS),
    st.tuples(st.sampled_from(["flush", "end", "cancel"]), IDS, st.just("")),
    st.tuples(st.just("wait"), st.sampled_from(["0", "0.01", "0.3", "3", "25"]), st.just("")),
    st.tuples(
        st.just("raw"),
        st.sampled_from(["{", "[]", "null", "5", '"x"']) | OBJECTS.map(json.dumps),
        st.just(""),
    ),
)


async def _act(client: DoorClient, step: tuple[str, str, str]) -> None:
    verb, first, second = step
    await asyncio.sleep(STEP_S)
    match verb:
        case "say":
            await client.say(first, second)
        case "wait":
            await asyncio.sleep(float(first))
        case "raw":
            await client.ws.send_str(first)
        case _:
            await getattr(client, verb)(first)


async def _script(door: SocketDoor, steps: list[tuple[str, str, str]], reset: bool, folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(
            stack, folder, clock=virtual.clock, resume_s=1, max_contexts_per_socket=3
        )
        beside = await stack.enter_async_context(door_client(gateway, door))
        await beside.say("steady", STEADY)
        async with door_client(gateway, door) as client:
            with contextlib.suppress(ConnectionError):  # a turn that is over may have ended the connection
                for step in steps:
                    await _act(client, step)
                await asyncio.sleep(0.01)
                if not reset:
                    for name in ("a", "b", "c", "\U0001f600", "x" * 256):
                        await client.cancel(name)
                    await asyncio.sleep(1)
            assert not [text for text in client.texts if INSIDE.search(text)]
            assert client.ws.close_code not in {1006, 1011}
            if reset and client.ws._conn is not None and client.ws._conn.transport is not None:
                client.ws._conn.transport.abort()
        await beside.end("steady")
        await beside.over("steady")
        assert len(beside.audio("steady")) == STEADY_BYTES
        assert beside.faults == []
        await beside.ws.close()
        await asyncio.sleep(3)
        assert gateway.idle
        assert gateway.services.scheduler.stats.active == 0
        assert not gateway.services.sockets


@pytest.mark.parametrize("door", SOCKETS, ids=[door.name for door in SOCKETS])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=20), reset=st.booleans())
def test_any_order_of_messages_leaves_nothing_and_touches_nobody(
    door: SocketDoor, steps: list[tuple[str, str, str]], reset: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual.run(lambda: _script(door, steps, reset, Path(folder)))


async def _bodies(door: PostDoor, bodies: list[dict[str, Any]], folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateway = await open_gateway(stack, folder, clock=virtual.clock)
        for body in bodies:
            whole = door.body("One two.") | ({door.within: body} if door.within else body)
            status, data = await post(gateway, door, whole)
            assert status < 500, (body, data[:300])
            if status != 200:
                assert door.words(json.loads(data))
                assert not INSIDE.search(data.decode())
        assert gateway.idle


@pytest.mark.parametrize("door", POSTS, ids=[door.name for door in POSTS])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies=st.lists(OBJECTS, min_size=5, max_size=12))
def test_any_body_gets_an_answer_of_the_dialect(door: PostDoor, bodies: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual.run(lambda: _bodies(door, bodies, Path(folder)))
