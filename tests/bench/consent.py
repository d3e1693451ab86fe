"""Spoken consent: how many answers are taken, and how many false ones, with whisper-base.

Challenges read by the embedded voice, as it is and over a telephone line (8 kHz mu-law), each through the
gateway's decoder and its recogniser. *Another text* is each answer to the next one's challenge, *yesterday's*
the same words on the day before with one of them misread, *two words wrong* the challenge with two of its
random words exchanged for others. Every word of the list that was misheard is named: such words do not belong
there. Arguments: the number of challenges (30; 0 reads every word of the list once) and a seed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np

from gateway.intake.activity import RATE
from gateway.intake.clip import decode_clip
from gateway.trust.challenge import WORDS, WRONG_WORDS, Challenge, languages
from gateway.trust.reading import words
from gateway.trust.recogniser import Recogniser
from tests.bench.report import Report
from tests.peers.ears import python, read_by, whisper

DAY = datetime(2026, 11, 30, tzinfo=UTC)
COMPANIES = ("Acme Health", "Northwind Traders", "Contoso", "the operator of this service", "Blue Lake Bank")
TOLD = languages()["en"]


def challenge(day: datetime, company: str, chosen: list[str]) -> Challenge:
    """As the gateway composes it."""
    before, after = TOLD.compose(day, chosen)
    return Challenge(before + company + after, "en", (len(before), len(before) + len(company)))


def drawn(count: int, chance: random.Random) -> list[tuple[int, str, list[str]]]:
    """Days after ``DAY``, companies and words; every word before any comes again."""
    pool: list[str] = []
    made = []
    for _ in range(count or -(-len(TOLD.words) // WORDS)):
        if len(pool) < WORDS:
            pool = chance.sample(TOLD.words, len(TOLD.words))
        chosen = [pool.pop() for _ in range(WORDS)]
        made.append((chance.randrange(1, 360), chance.choice(COMPANIES), chosen))
    return made


async def measure(report: Report, count: int, seed: int) -> None:
    """Read, listen, compare."""
    chance = random.Random(seed)
    ears = Recogniser(whisper(), python=python(), deadline=300)
    await ears.start()
    asked = drawn(count, chance)
    taken, false = Counter[str](), Counter[str]()
    missed: Counter[str] = Counter()
    heard: dict[str, list[str]] = {"clean": [], "phone": []}
    took = []
    for days, company, chosen in asked:
        own = challenge(DAY + timedelta(days), company, chosen)
        for line, said in heard.items():
            clip = await decode_clip(bytearray(read_by("heart", own.text, phone=line == "phone")))
            began = time.perf_counter()
            said.append(await ears.hear(clip.pcm, "en"))
            took.append(time.perf_counter() - began)
            wrong = own.wrong(said[-1])
            taken[line] += wrong <= WRONG_WORDS
            missed.update(set(chosen) - set(words(said[-1], TOLD.slight)))
            if wrong:
                print(f"{line}: {wrong} wrong: {said[-1]}", flush=True)
    for said in heard.values():
        for n, (days, company, chosen) in enumerate(asked):
            others = chance.sample([w for w in TOLD.words if w not in chosen], 2)
            yesterday = challenge(DAY + timedelta(days - 1), company, [*chosen[1:], others[0]])
            swapped = challenge(DAY + timedelta(days), company, [*chosen[2:], *others])
            following = asked[(n + 1) % len(asked)]
            next_one = challenge(DAY + timedelta(following[0]), *following[1:])
            for kind, other in (
                ("another text", next_one), ("yesterday's", yesterday), ("two words wrong", swapped)
            ):  # fmt: skip
                false[kind] += other.wrong(said[n]) <= WRONG_WORDS
    own = challenge(DAY, COMPANIES[0], asked[0][2])
    for level in (0.0, 0.001, 0.01):
        noise = np.random.default_rng(seed).standard_normal(5 * RATE).astype(np.float32) * np.float32(level)
        false["silence and noise"] += own.wrong(await ears.hear(noise, "en")) <= WRONG_WORDS
    await ears.close()
    for line in heard:
        share = 100 * taken[line] / len(asked)
        report.figure(f"taken of {len(asked)} answers, {line}", taken[line], "answers")
        report.goal(f"right answers taken, {line}, %", share, ">= 95")
    report.figure("to hear one, median", float(np.median(took)), "s")
    for kind in ("another text", "yesterday's", "two words wrong", "silence and noise"):
        report.goal(f"false answers taken: {kind}", false[kind], "== 0")
    print("misheard words:", dict(missed) or "none")


def main(argv: list[str]) -> int:
    """Measure, print, return 0 if all goals are met."""
    count, seed = (int(argv[n]) if len(argv) > n else default for n, default in ((0, 30), (1, 1)))
    report = Report("consent")
    asyncio.run(measure(report, count, seed))
    return report.finish()
