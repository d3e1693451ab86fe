"""The player's audio thread, rendered offline in the real browser: exact samples, exact frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 24000
BLOCK = 128
Samples = npt.NDArray[np.float32]

RENDER = """async ({ rate, frames, steps }) => {
  const context = new OfflineAudioContext(1, frames, rate);
  await context.audioWorklet.addModule("/web/worklet.js");
  const options = { numberOfInputs: 0, outputChannelCount: [1] };
  const node = new AudioWorkletNode(context, "voxwire-player", options);
  const events = [];
  node.port.onmessage = ({ data }) => events.push(data);
  node.connect(context.destination);
  for (const [frame, messages] of steps) {
    context.suspend(frame / rate).then(async () => {
      for (const message of messages) {
        if (message.samples) message.samples = Float32Array.from(message.samples);
        node.port.postMessage(message);
      }
      await new Promise((done) => setTimeout(done, 60)); // the messages get there while nothing is rendered
      context.resume();
    });
  }
  const rendered = (await context.startRendering()).getChannelData(0);
  await new Promise((done) => setTimeout(done, 60));
  return { samples: Array.from(rendered), events };
}"""


@dataclass(slots=True)
class Rendered:
    samples: Samples
    events: list[dict[str, Any]]

    def of(self, *kinds: str) -> list[tuple[str, int, float]]:
        return [(e["event"], e["frame"], e["position"]) for e in self.events if e["event"] in kinds]


async def render(
    page: Page, frames: int, steps: list[tuple[int, list[dict[str, Any]]]], rate: int = RATE
) -> Rendered:
    made = await page.evaluate(RENDER, {"rate": rate, "frames": frames, "steps": steps})
    return Rendered(np.array(made["samples"], np.float32), made["events"])


def opened(stream: int = 1, rate: int = RATE, reserve: float = 0.06) -> dict[str, Any]:
    return {"type": "open", "stream": stream, "rate": rate, "reserve": reserve}


def push(samples: Samples, stream: int = 1) -> dict[str, Any]:
    return {"type": "push", "stream": stream, "samples": samples.tolist()}


def end(stream: int = 1) -> dict[str, Any]:
    return {"type": "end", "stream": stream}


def sine(samples: int, hertz: float = 200, rate: int = RATE) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / rate)).astype(np.float32)


def noise(samples: int, seed: int = 1) -> Samples:
    return np.random.default_rng(seed).uniform(-0.9, 0.9, samples).astype(np.float32)


STEEPEST = 0.5 * 2 * np.pi * 200 / RATE
"""Most that ``sine`` changes from one sample to the next."""


async def test_samples_come_out_as_they_went_in_however_they_are_cut(page: Page) -> None:
    given = noise(5000)
    rng = np.random.default_rng(7)
    for pieces in (1, 2, 7, 40):
        cuts = np.sort(rng.choice(np.arange(1, 5000), pieces - 1, replace=False))
        messages = [push(part) for part in np.split(given, cuts)]
        made = await render(page, 6400, [(0, [opened(), *messages, end()])])
        assert np.array_equal(made.samples[:5000], given)
        assert not made.samples[5000:].any()
        assert made.of("go", "dry", "finished") == [("go", 0, 0), ("finished", 5000, 5000)]


async def test_it_waits_for_the_reserve_and_not_longer(page: Page) -> None:
    steps = [(0, [opened(), push(sine(960))]), (2560, [push(sine(480))]), (3840, [push(sine(9600)), end()])]
    made = await render(page, 12800, steps)
    assert made.of("go", "dry") == [("go", 2560, 0)]  # 1440 samples are 60 ms
    assert not made.samples[:2560].any()


async def test_running_dry_is_told_faded_and_made_up_for(page: Page) -> None:
    given = sine(4800)
    steps = [(0, [opened(), push(given[:2400])]), (6400, [push(given[2400:]), end()])]
    made = await render(page, 12800, steps)
    (go, dry, again, done) = made.of("go", "dry", "finished")
    assert (go, again[0], done[0]) == (("go", 0, 0), "go", "finished")
    assert dry[0] == "dry"
    assert dry[1] == dry[2]  # as many frames as samples went by
    assert 2400 - 2 * BLOCK <= dry[2] <= 2400
    assert again[1:] == (6400, dry[2])  # not a sample is lost or said twice
    assert done[1:] == (6400 + 4800 - dry[2], 4800)
    quiet = int(dry[1])
    assert not made.samples[quiet:6400].any()
    assert np.array_equal(made.samples[: quiet - BLOCK], given[: quiet - BLOCK])
    # Neither the stop nor the start clicks.
    assert np.abs(np.diff(made.samples)).max() <= STEEPEST + 0.5 / BLOCK + 0.01
    later = 6400 + BLOCK
    assert np.array_equal(made.samples[later : 6400 + 4800 - quiet], given[quiet + BLOCK :])


async def test_the_end_is_no_gap(page: Page) -> None:
    made = await render(page, 6400, [(0, [opened(), push(sine(2400))]), (1280, [end()])])
    assert made.of("dry") == []
    assert made.of("finished") == [("finished", 2400, 2400)]


async def test_a_larger_reserve_holds_from_the_next_filling_on(page: Page) -> None:
    wider = {"type": "reserve", "stream": 1, "reserve": 0.2}
    steps = [
        (0, [opened(), push(sine(2400))]),
        (3200, [wider, push(sine(2400))]),  # together less than 200 ms
        (5120, [push(sine(2400)), push(sine(2400))]),
    ]
    made = await render(page, 16000, steps)
    assert [frame for event, frame, _ in made.of("go") if event == "go"] == [0, 5120]


async def test_a_short_piece_alone_is_played_after_a_while(page: Page) -> None:
    made = await render(page, 9600, [(0, [opened(), push(sine(720))])])
    (go, dry) = made.of("go", "dry")
    assert 1440 < go[1] <= 2 * 1440 + BLOCK
    assert dry[2] > 720 - 2 * BLOCK


async def test_stopping_fades_within_ten_milliseconds(page: Page) -> None:
    given = sine(9600)
    made = await render(page, 9600, [(0, [opened(), push(given)]), (2560, [{"type": "stop"}])])
    assert made.of("stopped") == [("stopped", 2560, 2560)]
    assert np.array_equal(made.samples[:2560], given[:2560])
    assert made.samples[2560:2700].any()
    assert not made.samples[2560 + 240 :].any()
    assert np.abs(np.diff(made.samples)).max() <= STEEPEST + 0.01


async def test_a_new_stream_follows_at_once_and_the_old_one_is_not_heard_again(page: Page) -> None:
    late = [push(noise(2400), 1), end(1), {"type": "reserve", "stream": 1, "reserve": 9}]
    steps = [
        (0, [opened(1), push(sine(9600), 1)]),
        (2560, [opened(2), *late, push(sine(4800, 400), 2), end(2)]),
    ]
    made = await render(page, 12800, steps)
    assert made.of("go", "stopped", "finished") == [
        ("go", 0, 0),
        ("stopped", 2560, 2560),
        ("go", 2560, 0),
        ("finished", 2560 + 4800, 4800),
    ]
    assert np.array_equal(made.samples[2800 : 2560 + 4800], sine(4800, 400)[240:])


async def test_another_rate_is_interpolated(page: Page) -> None:
    made = await render(page, 25600, [(0, [opened(), push(sine(9600, 1000)), end()])], rate=48000)
    assert made.of("go", "finished") == [("go", 0, 0), ("finished", 19200, 9600)]
    wanted = sine(19200, 1000, 48000)
    error = made.samples[100:19000] - wanted[100:19000]
    assert 10 * np.log10(np.mean(wanted**2) / np.mean(error**2)) > 45


async def test_the_first_audible_sample_is_named(page: Page) -> None:
    given = np.concatenate([np.full(1000, 0.002, np.float32), sine(3000)])
    first = int(np.argmax(np.abs(given) >= 10 ** (-50 / 20)))
    assert first > 1000
    made = await render(page, 6400, [(1280, [opened(), push(given), end()])])
    assert made.of("audible") == [("audible", 1280 + first, first)]


async def test_positions_are_told_twenty_times_a_second(page: Page) -> None:
    made = await render(page, RATE, [(0, [opened(), push(sine(RATE)), end()])])
    levels = made.of("level")
    assert 18 <= len(levels) <= 21
    assert all(frame == position for _, frame, position in levels)


async def test_more_than_fits_is_refused_and_told(page: Page) -> None:
    script = """async () => {
      const context = new OfflineAudioContext(1, 1280, 24000);
      await context.audioWorklet.addModule("/web/worklet.js");
      const node = new AudioWorkletNode(context, "voxwire-player", { outputChannelCount: [1] });
      const told = [];
      node.port.onmessage = ({ data }) => data.event === "overflow" && told.push(data.lost);
      node.connect(context.destination);
      context.suspend(0).then(async () => {
        node.port.postMessage({ type: "open", stream: 1, rate: 24000, reserve: 0.06 });
        for (const length of [1_000_000, 48_572, 1000, 100_000]) {
          node.port.postMessage({ type: "push", stream: 1, samples: new Float32Array(length) });
        }
        await new Promise((done) => setTimeout(done, 100));
        context.resume();
      });
      await context.startRendering();
      await new Promise((done) => setTimeout(done, 60));
      return told;
    }"""
    assert await page.evaluate(script) == [1000, 100_000]
