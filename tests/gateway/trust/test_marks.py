"""The deployment's mark: what it is made of, on every way out, and refused on the way in (trust.md V6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from gateway.intake.clip import decode_clip
from gateway.trust import marks
from gateway.trust.marks import FIRST_YEAR, SLOT_S, MarkCheck, Marking, verdict
from sessions.secret import DeploymentSecret
from telephony.dsp.mark_detector import Detection, search
from telephony.dsp.pcm import decode
from tests.gateway.trust.test_check import RECORD
from tests.intelligibility import leg
from tests.peers.channels import CHANNELS
from tests.peers.clips import wav
from tests.peers.embedded import RATE, speech
from tests.peers.gateway import Start
from tests.peers.process import GatewayProcess
from tests.peers.rest import Refused, voice_client
from tests.tone import ToneEngine
from tts_core.engine import Samples

SECRET = "the secret of the deployment of these tests"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC).timestamp()
LICENSED = msgspec.structs.replace(RECORD, how="licensed")
TEXT = (
    "Good morning, this is the clinic about your appointment on Thursday afternoon. The doctor has confirmed "
    "the booking, and our technician will call you back before noon tomorrow. Please bring your letter."
)


def marking(secret: str = SECRET, now: float = NOW) -> Marking:
    return Marking(DeploymentSecret(secret.encode()), wall=lambda: now)


def spoken(made: Marking, pcm: Samples, rate: int = RATE, tenant: str = "acme") -> Samples:
    stream = made.of(tenant)(rate)
    return np.concatenate([stream.process(pcm), stream.flush()])


# What a mark is made of


def test_payloads_belong_to_tenant_and_slot_and_are_found_again() -> None:
    made = marking()
    slot = int(NOW // SLOT_S)
    payload = made.payload("acme", slot)
    assert 0 <= payload < 1024
    assert payload == marking().payload("acme", slot)
    others = [made.payload("acme", slot + 1), made.payload("rival", slot)]
    assert payload not in [*others, marking("another secret of another deployment").payload("acme", slot)]
    begins = list(made.slots("acme", payload, NOW - 7 * 86400, NOW))
    assert slot * SLOT_S in begins
    assert len(begins) <= 8  # two by chance in a week of 2016
    assert all(made.payload("acme", int(at // SLOT_S)) == payload for at in begins)
    spread = {made.payload("acme", slot + n) for n in range(2000)}
    assert len(spread) > 800


def test_there_is_a_key_a_year_and_none_is_forgotten() -> None:
    later = marking(now=datetime(FIRST_YEAR + 2, 1, 1, tzinfo=UTC).timestamp())
    assert len(set(later.keys())) == 3
    assert later.keys()[1:] == marking(now=datetime(FIRST_YEAR + 1, 6, 1, tzinfo=UTC).timestamp()).keys()
    assert marking(now=0).keys() == marking().keys()  # a clock that was never set
    assert later.keys()[-1] != marking("another secret of another deployment").keys()[-1]


def test_what_was_spoken_is_known_for_years_with_its_payload() -> None:
    heard, rate = CHANNELS["mu-law"](spoken(marking(), speech(6)[0]), RATE)
    later = marking(now=NOW + 60 * 86400)
    found = search(heard, rate, later.keys())
    assert (found.sure, found.key) == (True, 1)
    assert found.payload == later.payload("acme", int(NOW // SLOT_S))
    assert not search(heard, rate, marking("another secret of another deployment").keys()).marked


def test_contexts_begin_anywhere_in_the_period() -> None:
    made, clip = marking(), speech(6)[0][:RATE]
    assert len({spoken(made, clip).tobytes() for _ in range(8)}) > 4


# The check


def test_only_a_licence_covers_it() -> None:
    assert verdict(False, RECORD) == verdict(False, LICENSED) == []
    for how in ("written", "spoken", "self_voice"):
        (found,) = verdict(True, msgspec.structs.replace(RECORD, how=how))
        assert (found.code, found.severity) == ("synthetic", "refuse")
    (found,) = verdict(True, LICENSED)
    assert (found.code, found.severity) == ("synthetic", "warn")


@pytest.mark.parametrize("name", ["mu-law", "MP3 32k", "Opus 16k"])
async def test_marked_clips_are_refused_and_others_not(name: str) -> None:
    made, check = marking(), MarkCheck(marking())
    for n, pcm in enumerate(speech(6)[:2]):
        plain = await decode_clip(bytearray(wav(*CHANNELS[name](pcm, RATE))))
        assert await check.look(plain, RECORD) == []
        clip = await decode_clip(bytearray(wav(*CHANNELS[name](spoken(made, pcm), RATE))))
        before = clip.pcm.copy()
        assert [f.severity for f in await check.look(clip, RECORD)] == ["refuse"], n
        assert [f.severity for f in await check.look(clip, LICENSED)] == ["warn"]
        assert np.array_equal(clip.pcm, before)


async def test_cancelled_it_lets_go_of_the_clip() -> None:
    pcm = np.concatenate(speech(6))[: 59 * RATE]
    clip = await decode_clip(bytearray(wav(pcm)))
    looking = asyncio.ensure_future(MarkCheck(marking()).look(clip, RECORD))
    await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    clip.wipe()


async def test_clips_are_searched_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = await decode_clip(bytearray(wav(speech(6)[0])))
    running, most = 0, 0

    def watched(*args: Any, **how: Any) -> Detection:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return search(*args, **how)
        finally:
            running -= 1

    monkeypatch.setattr(marks, "search", watched)
    check = MarkCheck(marking())
    assert await asyncio.gather(*(check.look(clip, RECORD) for _ in range(3))) == [[], [], []]
    assert most == 1


# From end to end: gateway processes with the built-in voice


@pytest.fixture(scope="module")
def gateways() -> Iterator[dict[str, GatewayProcess]]:
    """Two that speak, one of them with the mark."""
    with contextlib.ExitStack() as stack:
        yield {
            mark: stack.enter_context(GatewayProcess(mark=mark, secret=SECRET, **leg.settings()))
            for mark in ("on", "off")
        }


@pytest.mark.slow
async def test_our_own_marked_phone_audio_makes_no_voice(
    gateways: dict[str, GatewayProcess], start_gateway: Start
) -> None:
    """Spoken into a Twilio call, recorded there, and sent to another gateway of the deployment."""
    on, off = await asyncio.gather(*(leg.calls(gateways[mark], {"a": TEXT}) for mark in ("on", "off")))
    assert len(on["a"]) == len(off["a"]) >= 8 * 8000
    marked, plain = (wav(decode(audio["a"], "mulaw"), 8000) for audio in (on, off))
    engine = ToneEngine(can_clone=True)
    cloning = await start_gateway(engine=engine, secret=SECRET)
    async with voice_client(cloning.url, cloning.key) as caller:
        with pytest.raises(Refused) as refused:
            await caller.enrol(marked)
        assert (refused.value.status, refused.value.code) == (422, "reference_synthetic")
        assert refused.value.field == "reference"
        assert engine.enrolled == 0
        made = await caller.enrol(plain)
        assert "synthetic" not in {warning["code"] for warning in made["warnings"]}
        licensed = await caller.enrol(marked, consent=await caller.consent(how="licensed"))
        assert "synthetic" in {warning["code"] for warning in licensed["warnings"]}
        assert engine.enrolled == 2


@pytest.mark.slow
async def test_every_way_out_carries_it(gateways: dict[str, GatewayProcess]) -> None:
    made = Marking(DeploymentSecret(SECRET.encode()))
    slots = {int(datetime.now(UTC).timestamp() // SLOT_S) - n for n in range(3)}
    gateway = gateways["on"]
    heard = {"native mulaw": (decode((await leg.native(gateway, {"a": TEXT}))["a"], "mulaw"), 8000)}
    async with aiohttp.ClientSession() as http:
        for encoding, rate in (("pcm_f32le", 24_000), ("pcm_s16le", 44_100), ("pcm_alaw", 8000)):
            body = {
                "model_id": "m",
                "transcript": TEXT,
                "voice": {"mode": "id", "id": "default"},
                "output_format": {"container": "raw", "encoding": encoding, "sample_rate": rate},
            }
            async with http.post(f"{gateway.url}/tts/bytes", json=body, headers={"X-API-Key": "x"}) as got:
                assert got.status == 200
                data = await got.read()
            heard[f"http {encoding}"] = (decode(data, encoding.replace("pcm_alaw", "alaw")), rate)
    slots |= {int(datetime.now(UTC).timestamp() // SLOT_S)}
    for name, (pcm, rate) in heard.items():
        found = search(pcm, rate, made.keys())
        assert found.sure, (name, found)
        assert found.payload in {made.payload("default", slot) for slot in slots}, name
