"""Is it understood? Speech recognition hears the gateway at the end of an 8 kHz mu-law leg.

A gateway process with the real voice speaks what a client streams to it in pieces of a few characters, over
the native WebSocket in mu-law at 8 kHz. The paragraph and every third item with digits are spoken a second
time, by an agent, into a phone call: what is judged then is what a Twilio peer played, in real time. Several
are spoken at once; nothing is sped up but that a native client need not play what it gets.

Whisper base listens, the clips decoded by FFmpeg. Sentences: word error rate, both sides as they come out of
Whisper's own normaliser. Digits: each one, in order (``tests.intelligibility.numerals``); where Whisper base
hears others, Whisper tiny.en is asked, and a digit counts only if one of the two heard exactly it.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jiwer
import pytest

from tests.intelligibility import leg
from tests.intelligibility.ears import Heard, joined, listen
from tests.intelligibility.numerals import canonical
from tests.peers.process import GatewayProcess

HERE = Path(__file__).parent
SENTENCES = HERE.joinpath("plain.txt").read_text().splitlines()
PARAGRAPH = HERE.joinpath("paragraph.txt").read_text().strip()
ITEMS = list(csv.DictReader(HERE.joinpath("digits.tsv").read_text().splitlines(), delimiter="\t"))
OVER_NATIVE = [f"native-{n}" for n in range(len(ITEMS))]
OVER_CALLS = [f"call-{n}" for n in range(0, len(ITEMS), 3)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Trial:
    """Who heard what: ``heard`` by clip, ``again`` for the digits that the first listener got wrong."""

    heard: Heard
    again: Mapping[str, str]


def item(name: str) -> dict[str, str]:
    """The item that a clip speaks."""
    return ITEMS[int(name.partition("-")[2])]


def right(name: str, transcript: str) -> bool:
    """Whether the transcript says the digits of the clip's item, all, in order, and no others."""
    return canonical(transcript) == item(name)["digits"].replace(" ", "")


async def hold() -> Trial:
    """Speak everything, then listen to everything."""
    with GatewayProcess(**leg.settings()) as gateway:
        sentences = await leg.native(gateway, {str(n): text for n, text in enumerate(SENTENCES)})
        clips = {f"sentences-{n}": clip for n, clip in enumerate(joined(list(sentences.values())))}
        paragraphs = {"native": PARAGRAPH} | {name: item(name)["text"] for name in OVER_NATIVE}
        clips |= await leg.native(gateway, paragraphs)
        clips |= await leg.calls(gateway, {"call": PARAGRAPH} | {n: item(n)["text"] for n in OVER_CALLS})
    heard = await listen("base", clips, [*SENTENCES, PARAGRAPH])
    doubtful = {
        name: clips[name] for name in (*OVER_NATIVE, *OVER_CALLS) if not right(name, heard.heard[name])
    }
    again = await listen("tiny.en", doubtful)
    return Trial(heard, again.heard)


@pytest.fixture(scope="module")
def trial() -> Trial:
    """One trial for all tests."""
    return asyncio.run(hold())


def test_the_texts_are_what_they_should_be() -> None:
    assert len(SENTENCES) >= 20
    assert not any(c.isdigit() for text in SENTENCES for c in text)
    assert len(PARAGRAPH.split()) == 60
    assert len(ITEMS) == 40
    assert {row["kind"] for row in ITEMS} == {"phone", "id", "price", "date", "time"}


def test_plain_sentences(trial: Trial) -> None:
    heard = [text for name, text in trial.heard.normal.items() if name.startswith("sentences-")]
    said = list(trial.heard.texts[:-1])
    rate = jiwer.wer(" ".join(said), " ".join(heard))
    assert rate <= 0.05, f"{rate:.1%} of the words: {heard}"


@pytest.mark.parametrize("way", ["native", "call"])
def test_the_paragraph(trial: Trial, way: str) -> None:
    rate = jiwer.wer(trial.heard.texts[-1], trial.heard.normal[way])
    assert rate <= 0.03, f"{rate:.1%} of the words: {trial.heard.normal[way]}"


@pytest.mark.parametrize("name", [*OVER_NATIVE, *OVER_CALLS])
def test_every_digit_is_right_and_in_order(trial: Trial, name: str) -> None:
    heard = [trial.heard.heard[name]] + ([trial.again[name]] if name in trial.again else [])
    assert any(right(name, text) for text in heard), f"{item(name)['text']} was heard as {heard}"
