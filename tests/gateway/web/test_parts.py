"""The page's parts one by one, imported in the real browser."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from sessions.events import RATES
from telephony.dsp.pcm import decode

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALPHABET = "ab é🎧\n"


async def test_samples_are_decoded_as_the_gateway_encodes_them(page: Page) -> None:
    script = """async ([encoding, bytes]) => {
      const { decoder } = await import("/web/pcm.js");
      return Array.from(decoder(encoding)(Uint8Array.from(bytes).buffer));
    }"""
    every_byte = bytes(range(256))
    mulaw = np.array(await page.evaluate(script, ["mulaw", list(every_byte)]), np.float32)
    assert np.array_equal(mulaw, decode(every_byte, "mulaw"))
    words = np.random.default_rng(3).integers(-32768, 32768, 500).astype("<i2")
    linear = np.array(await page.evaluate(script, ["pcm_s16le", list(words.tobytes())]), np.float32)
    assert np.array_equal(linear, decode(words.tobytes(), "pcm_s16le"))
    floats = np.random.default_rng(4).uniform(-1, 1, 500).astype("<f4")
    given = np.array(await page.evaluate(script, ["pcm_f32le", list(floats.tobytes())]), np.float32)
    assert np.array_equal(given, floats)


async def test_the_format_asked_for_needs_no_resampling_where_that_is_possible(page: Page) -> None:
    script = """async ([rates, offered]) => {
      const { formatFor } = await import("/web/pcm.js");
      return rates.map((rate) => formatFor(rate, offered).sample_rate);
    }"""
    asked = [*RATES, 96000, 88200, 12000, 4000]
    given = await page.evaluate(script, [asked, list(RATES)])
    assert given == [*RATES, 48000, 48000, 8000, 8000]


async def test_typing_sends_each_text_once_and_in_whole_words(page: Page) -> None:
    """Whatever is typed: what was sent since the last restart, joined, stands in the text at its place."""
    script = """async (runs) => {
      const { Typing } = await import("/web/typing.js");
      return runs.map((values) => {
        const typing = new Typing();
        typing.begin("");
        return values.map(([value, all]) => {
          const { restart, text } = typing.take(value, all);
          return { restart, text, base: typing.base, sent: typing.sent };
        });
      });
    }"""
    rng = random.Random(5)
    runs = []
    for _ in range(60):
        value, values = "", []
        for _ in range(25):
            at = len(value) if rng.random() < 0.7 else rng.randint(0, len(value))
            cut = rng.choice((0, 0, 0, 1, 3))
            piece = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 4)))
            value = value[:at] + piece + value[at + cut :]
            values.append((value, rng.random() < 0.1))
        runs.append(values)
    restarts = 0
    for values, answers in zip(runs, await page.evaluate(script, runs), strict=True):
        sent = ""
        for (value, all_of_it), answer in zip(values, answers, strict=True):
            units = value.encode("utf-16-le")
            sent = (
                answer["text"]
                if answer["restart"] or answer["sent"] == answer["text"]
                else sent + answer["text"]
            )
            restarts += answer["restart"]
            assert sent == answer["sent"]
            spoken = sent.encode("utf-16-le")
            base = 2 * answer["base"]
            assert units[base : base + len(spoken)] == spoken
            rest = units[base + len(spoken) :].decode("utf-16-le")
            if all_of_it:
                assert rest == ""
            else:
                assert not any(letter.isspace() for letter in rest)  # only an unfinished word waits
    assert restarts > 20


async def test_places_in_the_text_are_found_by_code_points(page: Page) -> None:
    text = "𝔸 b🎧c déjà 👩‍👩‍👧 end"
    words: list[dict[str, Any]] = []
    at = 0
    for i, token in enumerate(text.split(" ")):
        words.append({"text_start": at, "text_end": at + len(token), "start": i * 0.5, "end": i * 0.5 + 0.4})
        at += len(token) + 1
    script = """async ([text, words]) => {
      const { Reading } = await import("/web/reading.js");
      const view = document.createElement("div");
      const paper = document.createElement("div");
      const back = document.createElement("div");
      const area = document.createElement("textarea");
      view.append(paper);
      paper.append(back, area);
      area.value = "Before: " + text;
      const reading = new Reading(back, area);
      reading.begin(8);
      reading.follow(text);
      reading.add(words);
      const show = () => reading.shown;
      return {
        at: words.map((word) => { reading.at(word.start + 0.1); return show(); }),
        before: (reading.at(-1), show()),
        after: (reading.at(99), show()),
        split: words.map((word) => reading.split(word.start + 0.25)),
        none: reading.split(0.1),
        plain: (reading.plain(), show()),
      };
    }"""
    got = await page.evaluate(script, [text, words])
    whole = "Before: " + text
    tokens = text.split(" ")
    for i, shown in enumerate(got["at"]):
        assert shown[1] == tokens[i]
        assert "".join(shown) == whole
        assert shown[0] == "Before: " + "".join(token + " " for token in tokens[:i])
    assert got["before"] == ["Before: ", "", text]
    assert got["after"] == [whole, "", ""]
    assert got["plain"] == [whole, "", ""]
    assert got["none"] == ["", text]
    assert ["".join(parts) for parts in got["split"]] == [text] * len(tokens)
    assert [parts[0].split(" ")[-1] for parts in got["split"]] == tokens


async def test_every_refusal_is_said_in_words(page: Page) -> None:
    script = """async (errors) => {
      const { explain } = await import("/web/errors.js");
      return errors.map(explain);
    }"""
    errors = [
        {"code": "busy", "message": "full"},
        {"code": "draining"},
        {"code": "text_too_long", "message": "a context takes at most 9 characters"},
        {"code": "context_idle", "message": "no text for 300 seconds"},
        {"code": "some_new_code"},
    ]
    busy, draining, long, idle, unknown = await page.evaluate(script, errors)
    assert busy["retry"]
    assert "full right now" in busy["text"]
    assert draining["retry"]
    assert "restarting" in draining["text"]
    assert long == {"text": "A context takes at most 9 characters.", "retry": False}
    assert idle == {"text": "", "retry": False}
    assert unknown["text"]
