from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from gateway.collector import strip
from sessions.context import Context, ContextOptions
from tests.bench._talkers import TALKERS, Socket, Talker, Wyoming
from tests.peers.garbage import Left
from tests.peers.gateway import Running, on_gateway
from tests.peers.process import ROOT

SCRIPT = """
import gc
from gateway import collector
kept = [[i] for i in range(100_000)]
before = gc.get_freeze_count()
collector.settle()
print(gc.get_freeze_count() - before > 100_000, gc.isenabled(), gc.get_threshold())
class Node: pass
import weakref
node = Node(); node.me = node; gone = weakref.ref(node); del node
more = [[] for _ in range(collector.YOUNG * 2)]
print(gone() is None)
"""
TEXT = "One two three four. Five six seven. "


def test_start_up_is_frozen_and_young_cycles_still_die() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True True (5000, 20, 50)\nTrue\n"


def test_an_error_that_is_kept_keeps_no_frames() -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None

    with pytest.raises(ValueError, match="second") as caught:
        fail()
    errors = [caught.value, caught.value.__context__]
    assert [error.__traceback__ is None for error in errors if error] == [False, False]
    strip(caught.value)
    assert [error.__traceback__ is None for error in errors if error] == [True, True]
    strip(None)


def test_leftovers_are_seen() -> None:
    with Left() as left:
        for circle in (True, False, True):
            context = Context("a", ContextOptions(), time.monotonic)
            context.stats.first_audio = context if circle else 0.0  # type: ignore[assignment]
            del context
    assert left.types["sessions.context.Context"] == 2


@pytest.mark.parametrize("kind", TALKERS, ids=lambda kind: kind.name)
def test_nothing_of_ours_waits_for_the_collector(kind: type[Talker], tmp_path: Path) -> None:
    async def spoken(gateway: Running) -> None:
        """A client says its texts, cuts one and is lost in another, all in virtual time."""
        async with aiohttp.ClientSession() as http:
            talker = kind(gateway.url, http, "tone")
            await talker.open()
            assert [(await talker.say(TEXT)).outcome for _ in range(3)] == ["done"] * 3
            assert (await talker.say(TEXT * 20, 0.0)).outcome == "cut"
            await talker.close()
            await talker.open()
            speaking = asyncio.ensure_future(talker.say(TEXT * 20))
            await asyncio.sleep(0.1)
            if isinstance(talker, Socket):
                await talker.reset()
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            del speaking
        while not gateway.idle or gateway.services.sockets:
            await asyncio.sleep(1)

    @on_gateway(wyoming="127.0.0.1:0")
    async def twice(gateway: Running) -> None:
        assert gateway.services.wyoming is not None
        host, port = urlsplit(gateway.services.wyoming.url).netloc.split(":")
        Wyoming.address = (host, int(port))
        await spoken(gateway)  # what is made once is made by now
        with Left() as left:
            await spoken(gateway)
            await asyncio.sleep(60)
        assert left.types == {}

    twice(tmp_path)
