from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from gateway.trust.challenge import VALID_S, ChallengeGone, Challenges, languages, pick
from gateway.trust.reading import words
from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.store import Store
from tests.peers.redis import RedisServer
from tts_core.errors import BadRequest

NOON = 1_796_040_000.0  # 2026-11-30, 12:00 UTC


def first(from_: Sequence[str], count: int) -> list[str]:
    return list(from_[:count])


def challenges(store: Store | None = None, now: float = NOON) -> Challenges:
    return Challenges(store or MemoryStore(), wall=lambda: now, pick=first)


async def test_it_names_the_day_the_company_and_six_words() -> None:
    issued = await challenges().issue("acme-health")
    own = ", ".join(languages()["en"].words[:6])
    assert issued.challenge.text == (
        f"Today is November 30, 2026. I give Acme Health permission to copy my voice. My words are {own}."
    )
    assert issued.expires_at == NOON + 120
    assert issued.challenge.wrong(issued.challenge.text) == 0
    yesterday = await challenges(now=NOON - 86_400).issue("acme-health")
    assert issued.challenge.wrong(yesterday.challenge.text) == 1  # the rest of it is chosen anew each time


async def test_the_company_may_be_named() -> None:
    for given, told in (("  Ärzte & Co.  ", "Ärzte & Co."), ("", "the operator of this service")):
        issued = await challenges().issue("default", company=given, language="en-GB")
        assert f"I give {told} permission" in issued.challenge.text
        assert issued.challenge.wrong(issued.challenge.text) == 0
    for bad in ("x" * 61, "a\nb\x00", "{date}", "<b>", "...", "a, my words are b"):
        with pytest.raises(BadRequest) as error:
            await challenges().issue("default", company=bad)
        assert error.value.field == "company"


@pytest.mark.parametrize("language", ["fr", "", "xx-US", "english"])
async def test_a_language_without_words_is_refused_by_name(language: str) -> None:
    with pytest.raises(BadRequest, match=f"'{language}'.*words in en") as error:
        await challenges().issue("acme", language=language)
    assert error.value.field == "language"


async def test_it_is_taken_once_and_by_its_tenant_alone() -> None:
    made = challenges()
    issued = await made.issue("acme")
    assert await made.look("acme", issued.id) == issued.challenge
    for tenant, ident in (("other", issued.id), ("acme", "ch_" + "0" * 32), ("acme", ""), ("acme", "x:y")):
        with pytest.raises(ChallengeGone):
            await made.take(tenant, ident)
    assert await made.take("acme", issued.id) == issued.challenge
    for again in (made.take, made.look):
        with pytest.raises(ChallengeGone) as error:
            await again("acme", issued.id)
        assert (error.value.code, error.value.status) == ("challenge_gone", 410)


async def test_it_ends_by_itself() -> None:
    now = [0.0]
    made = challenges(MemoryStore(clock=lambda: now[0]))
    issued = await made.issue("acme")
    now[0] = VALID_S - 0.1
    await made.look("acme", issued.id)
    now[0] = VALID_S + 0.1
    with pytest.raises(ChallengeGone):
        await made.take("acme", issued.id)


async def test_of_two_gateways_one_gets_it(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(server.kill)
        stores = [RedisStore(server.url, deadline=5.0) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
            await store.start()
        made = [Challenges(store) for store in stores]
        for _ in range(20):
            issued = await made[0].issue("acme")
            results = await asyncio.gather(
                *(one.take("acme", issued.id) for one in made * 4), return_exceptions=True
            )
            assert results.count(issued.challenge) == 1
            assert sum(isinstance(result, ChallengeGone) for result in results) == 7


def test_words_are_many_plain_and_unlike_each_other() -> None:
    for language in languages().values():
        assert len(language.months) == 12
        assert len(set(language.words)) == len(language.words) >= 100
        common = set(words(language.text + " " + " ".join(language.months)))
        for word in language.words:
            assert words(word, language.slight) == [word], "it must be one word that stays as it is"
            assert word not in common
        near = [pair for pair in combinations(language.words, 2) if _distance(*pair) < 3]
        assert near == []


def _distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for n, x in enumerate(a, 1):
        new = [n]
        for m, y in enumerate(b, 1):
            new.append(min(row[m] + 1, new[-1] + 1, row[m - 1] + (x != y)))
        row = new
    return row[-1]


def test_words_are_chosen_without_order() -> None:
    drawn = {tuple(pick("abcdefghij", 6)) for _ in range(50)}
    assert len(drawn) > 45
    assert all(len(set(six)) == 6 for six in drawn)
