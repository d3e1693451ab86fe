"""A visitor reads a text aloud in a real browser, whose microphone hears the embedded voice read it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from gateway.trust.challenge import WORDS, languages
from tests.gateway.web.conftest import Serve, Visit
from tests.gateway.web.test_own import Desk
from tests.peers.chromium import microphone, open_browser
from tests.peers.clips import wav
from tests.peers.ears import configured, patient, read_by
from tests.peers.speakers import TEXTS, heart
from tests.tone import ToneEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


def first(among: Sequence[str], count: int) -> list[str]:
    """The words of every challenge here: what the microphone hears is made before the page asks."""
    return list(among[:count])


def text() -> str:
    told = languages()["en"]
    before, after = told.compose(datetime.now(UTC), first(told.words, WORDS))
    return before + told.operator + after


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    ((pcm, rate),) = heart((text(),))
    recording = tmp_path_factory.mktemp("clips") / "read.wav"
    recording.write_bytes(wav(np.pad(pcm, (0, 8 * rate)), rate))
    async with open_browser(*microphone(recording)) as opened:
        yield opened


async def desk(serve: Serve, visit: Visit) -> Desk:
    engine = ToneEngine(can_clone=True)
    served = await serve(engine, **configured())
    patient(served.services)
    verifier = served.services.verifier
    assert verifier is not None
    verifier._challenges._pick = first
    made = Desk(served, engine, await visit(served.url, viewport={"width": 1000, "height": 1400}))
    await made.open()
    await expect(made.page.locator("#own-spoken")).to_be_visible()
    await expect(made.page.locator("#own-agree")).to_be_hidden()
    return made


async def read_aloud(at: Desk, seconds: str) -> None:
    await at.page.click("#own-read")
    await expect(at.page.locator("#own-text")).to_have_text(text())
    await expect(at.page.locator("#own-read-seconds")).to_have_text(re.compile(seconds), timeout=30_000)
    await at.page.click("#own-read")


async def test_who_reads_the_text_makes_a_voice_of_their_own_alone(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    make = at.page.locator("#own-make")
    await at.upload(read_by("heart", TEXTS[1]))
    await expect(make).to_be_disabled()
    await read_aloud(at, r"^1[4-9]\.\d s$")
    await expect(at.page.locator("#own-heard")).to_have_text("Heard and recorded.", timeout=80_000)
    await expect(at.page.locator("#own-text")).to_be_hidden()
    (record,) = await at.served.services.desk.consents.list("default")
    assert (record.how, record.kind) == ("spoken", "session")

    await at.upload(read_by("joe", TEXTS[1]))
    await make.click()
    await expect(at.page.locator('#own-note[data-kind="bad"]')).to_contain_text("not of the person")
    assert at.engine.enrolled == 0
    await at.upload(read_by("heart", TEXTS[1]))
    await make.click()
    await at.made()
    await expect(make).to_be_disabled()
    await expect(at.page.locator("#own-heard")).to_have_text("")
    (voice,) = await at.served.services.voices.catalogue.by_consent("default", record.id)
    assert voice.kind == "session"


async def test_half_of_the_text_is_not_enough(serve: Serve, visit: Visit) -> None:
    at = await desk(serve, visit)
    await at.upload(read_by("heart", TEXTS[1]))
    await read_aloud(at, r"^[4-6]\.\d s$")
    heard = at.page.locator('#own-heard[data-kind="bad"]')
    await expect(heard).to_contain_text("did not sound like the text", timeout=80_000)
    await expect(at.page.locator("#own-make")).to_be_disabled()
    await expect(at.page.locator("#own-read")).to_have_text("Read aloud")
    assert await at.served.services.desk.consents.list("default") == ()
