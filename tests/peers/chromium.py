"""The system's real Chromium, headless, driven over its DevTools protocol. A missing one is a failure."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import Browser, async_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)
"""The last one: nobody is there to click; the others keep it quiet and fit for a container."""

TAP = """(() => {
  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (to, ...more) {
    if (to instanceof AudioDestinationNode) {
      const tap = new AnalyserNode(to.context, { fftSize: 2048 });
      connect.call(this, tap);
      globalThis.outputLevel = () => {
        const samples = new Float32Array(tap.fftSize);
        tap.getFloatTimeDomainData(samples);
        return Math.max(...samples.map(Math.abs));
      };
    }
    return connect.call(this, to, ...more);
  };
})()"""
"""Run before a page's own scripts: ``outputLevel()`` is the peak of what goes to the loudspeaker just now."""


def microphone(recording: Path) -> tuple[str, ...]:
    """Flags for a microphone that hears this WAV file, over and over, and may be used."""
    return (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}",
    )


@contextlib.asynccontextmanager
async def open_browser(*flags: str) -> AsyncIterator[Browser]:
    """A browser with an empty profile of its own, and more flags; ended with the block."""
    executable = shutil.which("chromium")
    if executable is None:
        raise AssertionError("the tests need Chromium: install the package chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable, args=[*FLAGS, *flags], timeout=60_000
        )
        try:
            yield browser
        finally:
            await browser.close()
