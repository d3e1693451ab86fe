"""pipecat's unmodified speech services, each in a pipeline that plays in real time and writes an LLM context.

They speak to a gateway in this process, whose output is noted: audio is compared byte for byte.
"""

from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest

from tests.peers.clients import SENTENCES, left, listen
from tests.peers.gateway import Start
from tests.peers.made import Made

FIRST = "A long first answer that the caller will interrupt before it ends."
LONG = (
    FIRST
    + " And another sentence that follows it, one that goes on and on, for as long as anyone would care to"
    " listen, and that nobody will ever hear to its end, as the caller has something to say and says it now."
)
TURN = ["Hello there, this is the first delta.", "Your order number is 4215 and it ships on Thursday."]
ALIASES = {"heart": "tone", "alloy": "tone"}
WORD_S = 0.2
AHEAD_S = 3.0
"""How far the gateway runs ahead of playing on a socket; a download comes as fast as it is read."""

timed = pytest.mark.parametrize("service", ["cartesia", "elevenlabs"])
modes = pytest.mark.parametrize("mode", ["sentence", "token"])
cuts = pytest.mark.parametrize("mode", ["interrupt", "late"])  # before the turn's text ends, and after

pytestmark = pytest.mark.slow


async def hear(start_gateway: Start, service: str, mode: str) -> dict[str, Any]:
    """What a service gave in a mode, against a gateway of its own; nothing of it is left there."""
    gateway = await start_gateway(voice_aliases=ALIASES)
    result = await listen(gateway, "pipecat", "pipecat_tts.py", service, mode)
    await left(gateway)
    result["played"] = base64.b64decode(result["played"])
    return result


def check_whole(made: Made, result: dict[str, Any]) -> None:
    """All that was made was heard and played, byte for byte."""
    assert made.errors == []
    audio = b"".join(made.audio.values())
    assert result["audio"] == audio
    assert result["played"].startswith(audio)
    assert len(audio) / 2 / result["rate"] > 17 * WORD_S


def check_cut(made: Made, result: dict[str, Any]) -> None:
    """The first of two turns was cut where the caller spoke, the second one is whole."""
    assert made.errors == []
    *requests, second = made.audio.values()
    first = b"".join(requests)
    assert result["audio"].endswith(second)
    assert len(second) == round(2 * WORD_S * result["rate"]) * 2
    got = result["audio"].removesuffix(second)
    assert first.startswith(got)
    cut = 2 * round(result["cut_s"] * result["rate"])
    assert 1.0 < result["cut_s"] < 2.0
    assert result["played"].startswith(got[:cut] + second)
    if made.ends:  # on a socket, of some ten seconds of text
        assert len(first) / 2 / result["rate"] < result["cut_s"] + AHEAD_S + 0.5


@timed
@modes
async def test_a_turn_is_heard_byte_for_byte_with_words_at_their_times_fact_2(
    start_gateway: Start, made: Made, service: str, mode: str
) -> None:
    result = await hear(start_gateway, service, mode)
    check_whole(made, result)
    assert len(made.audio) == len(made.ends) == 1
    assert [word for word, _ in result["words"]] == SENTENCES.split()
    times = [pts / 1e9 for _, pts in result["words"]]
    assert times == sorted(times)
    # The tone speaks a word every 0.2 s, and longer at "4215" and between sentences.
    for before, after in itertools.pairwise(times[:6]):
        assert after - before == pytest.approx(WORD_S, abs=0.08)
    assert times[-1] - times[0] < len(result["audio"]) / 2 / result["rate"]
    assert result["context"] == [SENTENCES]


@pytest.mark.parametrize(
    ("service", "parts"),  # made in one turn, or in so many requests: one a sentence, one a delta
    [
        ("deepgram", {"sentence": 1, "token": 1}),
        ("deepgram-flux", {"sentence": 1, "token": 1}),
        ("openai", {"sentence": 2, "token": 3}),
    ],
)
@modes
async def test_a_turn_is_heard_byte_for_byte_with_sentences_in_order_fact_2(
    start_gateway: Start, made: Made, service: str, parts: dict[str, int], mode: str
) -> None:
    """These protocols have no words: pipecat tells the sentences that it sent, and those are written.

    Blanks are not compared: without times of words, pipecat doubles one where it joins tokens.
    """
    result = await hear(start_gateway, service, mode)
    check_whole(made, result)
    assert len(made.audio) == parts[mode]
    assert [text.strip() for text, _ in result["words"]] == TURN
    (context,) = result["context"]
    assert context.split() == SENTENCES.split()


@timed
@cuts
async def test_the_words_heard_before_an_interruption_are_written_to_about_one(
    start_gateway: Start, made: Made, service: str, mode: str
) -> None:
    result = await hear(start_gateway, service, mode)
    check_cut(made, result)
    assert len(made.ends) == 2
    heard, second = result["context"]
    words = heard.split()
    assert words == LONG.split()[: len(words)]
    # Word n begins at n * 0.2 s; pipecat's clock of words and its audio differ by less than a word.
    assert abs(len(words) - result["cut_s"] / WORD_S) <= 1.5
    assert second == "Second answer."


@pytest.mark.parametrize("service", ["deepgram", "deepgram-flux"])
@pytest.mark.parametrize(("mode", "sent"), [("interrupt", FIRST), ("late", LONG)])
async def test_deepgrams_sentences_that_were_sent_are_written_whole(
    start_gateway: Start, made: Made, service: str, mode: str, sent: str
) -> None:
    """The protocol has no times of words, so pipecat puts a sentence before its audio, as it sends it.

    Hence an interruption leaves all that was sent in the context, heard or not: the first sentence alone
    where the second was still held back for its end, and else both, though about eight words were heard.
    """
    result = await hear(start_gateway, service, mode)
    check_cut(made, result)
    assert len(made.ends) == 2
    assert result["context"] == [sent, "Second answer."]


@cuts
async def test_openais_interrupted_turn_is_not_written(start_gateway: Start, made: Made, mode: str) -> None:
    """pipecat puts the text of a request behind its audio, and an interruption drops what was not played.

    So nothing of a sentence that was cut is written, though 1.6 s of it were heard.
    """
    result = await hear(start_gateway, "openai", mode)
    check_cut(made, result)
    assert result["context"] == ["Second answer."]
