"""A visitor's own voice: recorded with a (fake) microphone or uploaded, tried, deleted, in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.gateway.web.conftest import Serve, Served, Visit, Visitor
from tests.peers.chromium import microphone, open_browser
from tests.peers.clips import clip
from tests.tone import ToneEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ARTIFACTS = Path(__file__).resolve().parents[3] / "artifacts"
PITCH = 660.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    recording = tmp_path_factory.mktemp("clips") / "me.wav"
    recording.write_bytes(clip(PITCH, 6.0))
    async with open_browser(*microphone(recording)) as opened:
        yield opened


class Desk:
    """A gateway whose engine clones, and a visitor with the panel open."""

    def __init__(self, served: Served, engine: ToneEngine, visitor: Visitor) -> None:
        self.served, self.engine, self.visitor, self.page = served, engine, visitor, visitor.page

    async def open(self) -> None:
        await self.page.locator("#own summary").click()

    async def upload(self, data: bytes, name: str = "me.wav") -> None:
        await self.page.set_input_files("#own-file", {"name": name, "mimeType": "audio/wav", "buffer": data})

    async def note(self) -> str:
        return await self.page.inner_text("#own-note")

    def rows(self) -> Any:
        return self.page.locator("#own-list li")

    async def made(self, count: int = 1) -> None:
        await expect(self.rows()).to_have_count(count, timeout=20_000)
        await expect(self.page.locator("#own-progress")).to_be_hidden()

    async def pitch(self) -> float:
        """At what pitch the turn is spoken that was asked for last."""
        seen = len(self.engine.requests)
        await self.page.get_by_role("button", name="Try").first.click()
        async with asyncio.timeout(10):
            while len(self.engine.requests) == seen:
                await asyncio.sleep(0.01)
        await self.visitor.until("now.state === 'speaking' && now.position > 0.1")
        return self.engine.pitch(self.engine.requests[-1].conditioning)


async def desk(serve: Serve, visit: Visit) -> Desk:
    engine = ToneEngine(can_clone=True)
    served = await serve(engine)
    made = Desk(served, engine, await visit(served.url, viewport={"width": 1000, "height": 1400}))
    await made.open()
    return made


async def test_a_voice_is_recorded_tried_and_deleted(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    page = at.page
    make = page.locator("#own-make")
    await expect(make).to_be_disabled()
    await page.click("#own-record")
    await expect(page.locator("#own-seconds")).to_have_text(re.compile(r"^[5-9]\.\d s$"), timeout=20_000)
    assert float(await page.locator("#own-level").get_attribute("value") or 0) <= 1
    await expect(make).to_be_disabled()
    await page.click("#own-record")
    await expect(page.locator("#own-clip")).to_contain_text("s recorded")
    await expect(make).to_be_disabled()  # nothing is made without the tick
    await page.check("#own-agree")
    await page.fill("#own-name", "Zoë <b>")
    await make.click()
    await at.made()
    assert (await at.note()).startswith("The voice is made.")
    await expect(page.locator("#own-agree")).not_to_be_checked()
    await expect(make).to_be_disabled()
    await expect(at.rows().first.locator(".called")).to_have_text("Zoë <b>")
    await expect(at.rows().first.locator("small")).to_have_text("until you leave")

    services = at.served.services
    assert len(services.holds) == 1
    (record,) = await services.desk.consents.list("default")
    assert (record.how, record.kind) == ("written", "session")
    assert record.subject.startswith("page-")

    assert await at.pitch() == pytest.approx(PITCH, abs=1)
    ARTIFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTIFACTS / "page-own-voice.png", full_page=True)
    assert (await at.visitor.see())["state"] == "speaking"
    assert await page.input_value("#voice") == at.engine.requests[-1].voice

    await page.get_by_role("button", name="Delete").click()
    await expect(at.rows()).to_have_count(0)
    assert (await at.note()).startswith("Deleted. The receipt is del_")
    assert await page.locator("#voice option").count() == 3  # the default and the engine's two
    assert await services.voices.catalogue.counts("default") == (0, 0)


async def test_a_voice_that_is_kept_is_there_at_the_next_visit(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    await at.upload(clip(550))
    await expect(at.page.locator("#own-clip")).to_have_text("me.wav")
    await at.page.check("#own-keep")
    await at.page.check("#own-agree")
    await at.page.click("#own-make")
    await at.made()
    again = Desk(at.served, at.engine, await visit(at.served.url))
    await again.open()
    await again.made()
    await expect(again.rows().first.locator("small")).to_have_text("kept")
    await expect(again.rows().first.locator(".called")).to_have_text("My voice")
    assert await again.pitch() == pytest.approx(550, abs=1)


async def test_a_visitors_voice_ends_with_the_visit(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    await at.upload(clip())
    await at.page.check("#own-agree")
    await at.page.click("#own-make")
    await at.made()
    services = at.served.services
    (session,) = services.native_sessions.values()
    # A drop of the connection is no end of the visit.
    for socket in list(services.sockets):
        socket.abort()
    await at.visitor.until("now.connection !== 'ready'")
    await at.visitor.until("now.connection === 'ready'")
    assert set(services.native_sessions.values()) == {session}
    await at.made()
    assert await at.pitch() == pytest.approx(PITCH, abs=1)
    stranger = Desk(at.served, at.engine, await visit(at.served.url))
    await stranger.open()
    await expect(stranger.rows()).to_have_count(0)
    await session.close()
    assert await services.voices.catalogue.counts("default") == (0, 0)


async def test_what_speaks_against_a_clip_is_said(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    for data, words in (
        (clip(noise_db=-12), "noise in the recording"),
        (b"not a recording at all" * 50, "."),
    ):
        await at.upload(data)
        await at.page.check("#own-agree")
        await at.page.click("#own-make")
        await expect(at.page.locator('#own-note[data-kind="bad"]')).to_contain_text(words)
        await expect(at.page.locator("#own-progress")).to_be_hidden()
        await expect(at.page.locator("#own-make")).to_be_enabled()  # to try again
    assert at.engine.enrolled == 0
    await at.upload(clip(seconds=2.5))
    await at.page.click("#own-make")
    await at.made()
    assert "better 3 s" in await at.note()


async def test_a_recording_that_is_too_short_is_not_sent(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    await at.page.check("#own-agree")
    await at.page.click("#own-record")
    await expect(at.page.locator("#own-seconds")).to_have_text(re.compile(r"^[12]\.\d s$"), timeout=20_000)
    await at.page.click("#own-record")
    await expect(at.page.locator('#own-note[data-kind="bad"]')).to_contain_text("3 s or more are needed")
    await expect(at.page.locator("#own-make")).to_be_disabled()


async def test_where_the_engine_cannot_clone_there_is_no_panel(serve: Serve, visit: Visit) -> None:
    served = await serve()
    visitor = await visit(served.url)
    await expect(visitor.page.locator("#own")).to_be_hidden()


async def test_without_a_microphone_a_file_still_does(serve: Serve) -> None:
    """In a browser that has none and allows none."""
    served = await serve(ToneEngine(can_clone=True))
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(served.url)
        await page.locator("#own summary").click()
        await page.click("#own-record")
        await expect(page.locator('#own-note[data-kind="bad"]')).to_contain_text("file")
        await expect(page.locator("#own-record")).to_have_text("Record")


async def test_with_a_key_of_its_own_the_page_uses_that(serve: Serve, visit: Visit) -> None:
    """And without the right to make voices it says why not."""
    for scopes, fine in (("speak+voice:enrol", True), ("speak", False)):
        key = "page-key-0123456789ab"
        served = await serve(ToneEngine(can_clone=True), api_keys=f"acme[{scopes}]:{key}")
        visitor = await visit(served.url, ready=False)
        await visitor.page.fill("#key", key)
        await visitor.page.press("#key", "Enter")
        await visitor.until("now.connection === 'ready'")
        at = Desk(served, ToneEngine(), visitor)
        await at.open()
        await at.upload(clip())
        await at.page.check("#own-agree")
        await at.page.click("#own-make")
        if fine:
            await at.made()
        else:
            await expect(at.page.locator('#own-note[data-kind="bad"]')).to_contain_text("scope voice:enrol")
