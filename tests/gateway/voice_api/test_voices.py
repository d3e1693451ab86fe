"""The routes of voices, consents and receipts over HTTP, with a real decoder."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from importlib.resources import files
from typing import Any

import aiohttp
import numpy as np
import pytest

from gateway.metrics import REASONS
from gateway.voice_api.cloning import AT_ONCE
from gateway.voice_api.upload import read_upload
from sessions.principal import Scope
from sessions.receipt import verify_receipt
from tests.peers.clips import clip, syllables, wav
from tests.peers.gateway import Running, Start
from tests.peers.native import native_client
from tests.peers.rest import Refused, voice_client
from tests.tone import ToneEngine
from tts_core.engine import Samples
from tts_core.errors import BadRequest, EngineError

ACME, RIVAL = "acme-key-0123456789", "rival-key-0123456789"
KEYS = (
    f"acme[speak+voice:read+voice:enrol+voice:delete]:{ACME},"
    f"rival[speak+voice:read+voice:enrol+voice:delete]:{RIVAL}"
)


def cloning(**how: Any) -> ToneEngine:
    return ToneEngine(second="other", can_clone=True, **how)


async def spoken(gateway: Running, key: str, voice: str) -> float:
    """The pitch at which the voice speaks, heard over the Cartesia route."""
    body = {
        "model_id": "tone",
        "transcript": "One two three four.",
        "voice": {"mode": "id", "id": voice},
        "output_format": {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 24000},
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/tts/bytes", json=body, headers={"X-API-Key": key}) as response,
    ):
        data = await response.read()
        if response.status != 200:
            raise Refused(response.status, {"field": None, **json.loads(data), "code": "cartesia"})
    heard = np.abs(np.fft.rfft(np.frombuffer(data, "<f4")))
    return float(np.argmax(heard) * 24000 / (len(data) / 4))


async def test_a_clip_becomes_a_voice_that_speaks_and_is_destroyed_with_a_receipt(
    start_gateway: Start,
) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        consent = await acme.consent(languages=["en"])
        made = await acme.enrol(clip(660), consent=consent, name="Zoë", language="en-GB")
        assert acme.status == 201
        voice = made["id"]
        assert (made["name"], made["language"], made["kind"]) == ("Zoë", "en-GB", "permanent")
        assert (made["session"], made["until"], made["warnings"]) == (None, None, [])
        assert made["consent"] == consent
        assert set(await acme.listed()) == {voice}
        assert await acme.ask("GET", f"/v1/voices/{voice}") == {
            k: v for k, v in made.items() if k not in {"warnings", "reused"}
        }
        assert await spoken(gateway, ACME, voice) == pytest.approx(660, abs=3)
        answer = await acme.delete(voice)
        assert answer["deleted"] == voice
        receipt = answer["receipt"]
        assert (receipt["voice"], receipt["consent"], receipt["commitment"]) == (
            voice,
            consent,
            made["commitment"],
        )
        assert (receipt["answered"], receipt["expected"]) == (1, 1)
        public = await acme.ask("GET", "/v1/receipts/key")
        key = base64.urlsafe_b64decode(public["x"] + "==")
        again = await acme.ask("GET", f"/v1/receipts/{receipt['id']}")
        for proof in (receipt, again):
            assert verify_receipt(key, json.dumps(proof).encode()).voice == voice
        with pytest.raises(BadRequest):
            verify_receipt(key, json.dumps(receipt | {"voice": "vc_" + "0" * 32}).encode())
        assert await acme.listed() == {}
        for attempt in (
            acme.delete(voice),
            acme.ask("GET", f"/v1/voices/{voice}"),
            spoken(gateway, ACME, voice),
        ):
            with pytest.raises(Refused) as refused:
                await attempt
            assert refused.value.status == 404


async def test_tenants_see_nothing_of_each_other(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme, voice_client(gateway.url, RIVAL) as rival:
        consent = await acme.consent()
        voice = (await acme.enrol(consent=consent))["id"]
        gone = (await acme.delete((await acme.enrol(clip(550), consent=consent))["id"]))["receipt"]["id"]
        assert await rival.listed() == {}
        answers = []
        for victim, missing in (
            (f"/v1/voices/{voice}", "/v1/voices/vc_" + "0" * 32),
            (f"/v1/receipts/{gone}", "/v1/receipts/del_" + "0" * 32),
            (f"/v1/consents/{consent}", "/v1/consents/cn_" + "0" * 32),
        ):
            for method in ("GET", "DELETE"):
                if method == "DELETE" and "receipts" in victim:
                    continue
                told = []
                for path in (victim, missing, missing[:-1], missing + "%2F..%00"):
                    with pytest.raises(Refused) as refused:
                        await rival.ask(method, path)
                    told.append((refused.value.status, refused.value.code, refused.value.message))
                assert len(set(told)) == 1
                answers.append(told[0][0])
        assert set(answers) <= {403, 404}
        with pytest.raises(Refused) as refused:
            await spoken(gateway, RIVAL, voice)
        assert refused.value.status == 404
        with pytest.raises(Refused) as refused:
            await rival.enrol(consent=consent)
        assert (refused.value.status, refused.value.field) == (403, "consent")
        assert set(await acme.listed()) == {voice}
        assert await spoken(gateway, ACME, voice) == pytest.approx(660, abs=3)


REQUESTS: list[tuple[str, str, Scope | None]] = [
    ("GET", "/v1/voices", None),
    ("GET", "/v1/receipts/key", None),
    ("GET", "/v1/voices/vc_1", Scope.VOICE_READ),
    ("GET", "/v1/receipts/del_1", Scope.VOICE_READ),
    ("GET", "/v1/consents", Scope.VOICE_READ),
    ("GET", "/v1/consents/cn_1", Scope.VOICE_READ),
    ("POST", "/v1/consents", Scope.VOICE_ENROL),
    ("POST", "/v1/voices", Scope.VOICE_ENROL),
    ("DELETE", "/v1/consents/cn_1", Scope.VOICE_DELETE),
    ("DELETE", "/v1/voices/vc_1", Scope.VOICE_DELETE),
]


async def test_every_route_asks_for_its_scope_and_for_no_other(start_gateway: Start) -> None:
    names = {scope: f"{i}{'k' * 20}" for i, scope in enumerate(Scope)}
    keys = ",".join(f"n{i}[{scope}]:{names[scope]}" for i, scope in enumerate(Scope))
    gateway = await start_gateway(engine=cloning(), api_keys=keys)
    for method, path, wanted in REQUESTS:
        for scope, key in names.items():
            async with voice_client(gateway.url, key) as client:
                try:
                    await client.ask(method, path)
                    passed = True
                except Refused as refused:
                    passed = "scope" not in refused.message
            assert passed == (wanted in {None, scope}), (method, path, scope)
        async with voice_client(gateway.url, "") as client:
            with contextlib.suppress(Refused):
                await client.ask(method, path)
            assert (client.status == 401) == (path != "/v1/receipts/key")


async def test_who_may_not_read_voices_sees_the_built_in_ones(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    speaker = await gateway.services.keyring.create("acme", name="speaker", scopes={Scope.SPEAK})
    async with voice_client(gateway.url, ACME) as acme, voice_client(gateway.url, speaker.presented) as other:
        await acme.enrol()
        answer = await other.ask("GET", "/v1/voices")
    assert [v["id"] for v in answer["voices"]] == ["tone", "other"]
    assert (answer["default"], answer["cloning"]) == ("tone", True)


async def test_an_engine_that_cannot_clone_says_so_everywhere(start_gateway: Start) -> None:
    gateway = await start_gateway(api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        with pytest.raises(Refused) as refused:
            await acme.enrol()
        assert (refused.value.status, refused.value.code) == (409, "cannot_clone")
        assert (await acme.ask("GET", "/v1/voices"))["cloning"] is False
        with pytest.raises(Refused) as refused:
            await spoken(gateway, ACME, "vc_" + "0" * 32)
        assert refused.value.status == 409


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wav(np.zeros(60_000, np.float32)), "reference_silent"),
        (clip(seconds=1.1), "reference_too_short"),
        (clip(noise_db=-12), "reference_noisy"),
        (wav(4 * syllables(660)), "reference_clipped"),
        (b"#!/bin/sh\necho hello\n" * 100, "reference_unsupported"),
        (b"RIFF" + bytes(200), "reference_unsupported"),
    ],
)
async def test_each_fault_of_a_clip_has_a_name(start_gateway: Start, data: bytes, code: str) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        with pytest.raises(Refused) as refused:
            await acme.enrol(data)
        assert (refused.value.status, refused.value.code) == (422, code)
        assert await acme.listed() == {}
    assert gateway.engine.enrolled == 0
    count = gateway.services.metrics.registry.get_sample_value
    assert count("voxwire_refusals_total", {"reason": code}) == 1
    assert count("voxwire_voice_enrolments_total", {"outcome": "refused"}) == 1


async def test_a_clip_that_could_be_better_is_taken_with_a_warning(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        made = await acme.enrol(clip(seconds=2.5))
        assert [w["code"] for w in made["warnings"]] == ["too_short"]
        assert (await acme.listed())[made["id"]]["notes"] == ["too_short"]


async def test_without_a_consent_that_holds_nothing_is_decoded(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("gateway.voice_api.cloning.decode_clip", never)
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        revoked = await acme.consent()
        await acme.ask("DELETE", f"/v1/consents/{revoked}")
        spoken_in_german = await acme.consent(languages=["de"])
        for consent, fields in (
            ("cn_" + "0" * 32, dict[str, str]()),
            (revoked, {}),
            (spoken_in_german, {"language": "en-US"}),
            (await acme.consent(kind="session"), {}),
        ):
            with pytest.raises(Refused) as refused:
                await acme.enrol(None, consent=consent, **fields)
            assert (refused.value.status, refused.value.field) == (403, "consent")
        with pytest.raises(Refused) as refused:
            await acme.ask(
                "POST", "/v1/voices", data=aiohttp.FormData({"file": clip()}, default_to_multipart=True)
            )
        assert (refused.value.status, refused.value.field) == (400, "consent")
        with pytest.raises(Refused) as refused:  # the fifth one pauses all of them
            await acme.enrol(consent="mine, really")
        assert refused.value.status == 403
        with pytest.raises(Refused) as refused:
            await acme.enrol(consent=spoken_in_german, language="de")
        assert refused.value.status == 429


async def test_a_revoked_consent_takes_its_voices_along(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(word_s=0.5), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        consent = await acme.consent()
        voice = (await acme.enrol(consent=consent))["id"]
        other = (await acme.enrol(clip(550)))["id"]
        async with native_client(gateway, headers={"X-API-Key": ACME}) as client:
            text = "One two three four five six. Seven eight nine ten. " * 3
            await client.send("open", "a", voice=voice, text=text, end=True, run_ahead_ms=300)
            await client.audio("a", 0.1)
            answer = await acme.ask("DELETE", f"/v1/consents/{consent}")
            assert answer["consent"]["revoked_at_ms"] is not None
            (receipt,) = answer["receipts"]
            (turn,) = await client.ended("a")
            assert turn.end is not None
            assert (turn.end["type"], turn.end["code"]) == ("error", "unknown_voice")
            assert turn.seconds < 4  # the segment that was being spoken
            await client.send("open", "b", voice=voice, text="One.", end=True)
            await client.ended("b")
            assert client.transcript.messages[-1]["code"] == "unknown_voice"
        assert set(await acme.listed()) == {other}
        assert (await acme.ask("GET", f"/v1/receipts/{receipt}"))["reason"] == "consent revoked"


async def test_a_sessions_voice_ends_with_it(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme, voice_client(gateway.url, RIVAL) as rival:
        consent = await acme.consent(kind="session")
        async with native_client(gateway, headers={"X-API-Key": ACME}) as client:
            session = client.hello["session"]
            assert client.hello["cloning"] is True
            made = await acme.enrol(consent=consent, session=session, name="Caller")
            voice = made["id"]
            assert (made["kind"], made["session"]) == ("session", session)
            await client.send("open", "a", voice=voice, text="One two.", end=True)
            (turn,) = await client.ended("a")
            assert turn.end is not None
            assert turn.end["type"] == "done"
            assert set(await acme.listed(f"?session={session}")) == {voice}
            assert await acme.listed() == {}
            for wrong in ({"session": session, "ttl": "60"}, {"session": "s_none"}):
                with pytest.raises(Refused) as refused:
                    await acme.enrol(None, consent=consent, **wrong)
                assert refused.value.field in {"ttl", "session"}
            with pytest.raises(Refused) as refused:
                await rival.enrol(consent=await rival.consent(kind="session"), session=session)
            assert (refused.value.status, refused.value.code) == (404, "unknown_session")
            async with native_client(gateway, headers={"X-API-Key": ACME}) as stranger:
                await stranger.send("open", "a", voice=voice, text="One two.", end=True)
                await stranger.ended("a")
                assert stranger.transcript.messages[-1]["code"] == "unknown_voice"
            second = (await acme.enrol(clip(550), consent=consent, session=session))["id"]
            receipt = (await acme.delete(second))["receipt"]  # by those who know its id
            assert (receipt["kind"], receipt["reason"]) == ("session", "asked")
            await client.send("bye")
            await client.close_code()
        async with asyncio.timeout(5):
            while len(gateway.services.holds):
                await asyncio.sleep(0.01)
        assert await acme.listed(f"?session={session}") == {}
        with pytest.raises(Refused):
            await acme.ask("GET", f"/v1/voices/{voice}?session={session}")


async def test_the_same_clip_is_computed_once(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(enrol_s=0.2), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        consent = await acme.consent()
        made = await asyncio.gather(*(_enrol(gateway, consent) for _ in range(4)))
        assert gateway.engine.enrolled == 1
        assert len({m["id"] for m in made}) == 4
        assert sorted(m["reused"] for m in made) == [False, True, True, True]
        await acme.delete(made[0]["id"])
        assert set(await acme.listed()) == {m["id"] for m in made[1:]}


async def _enrol(gateway: Running, consent: str, data: bytes | None = None) -> dict[str, Any]:
    async with voice_client(gateway.url, ACME) as client:
        return await client.enrol(data, consent=consent)


async def test_too_many_clips_at_once_are_refused_before_one_is_read(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(enrol_s=1.0), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme, voice_client(gateway.url, RIVAL) as rival:
        consent = await acme.consent()
        under_way = [
            asyncio.create_task(_enrol(gateway, consent, clip(440 + 20 * i, 3.5)))
            for i in range(AT_ONCE // 2)  # a tenant's share
        ]
        async with asyncio.timeout(10):
            while gateway.services.cloning._places.taken < AT_ONCE // 2:
                await asyncio.sleep(0.005)
        with pytest.raises(Refused) as refused:
            await acme.enrol(consent=consent)
        assert (refused.value.status, refused.value.code) == (429, "busy")
        assert (await rival.enrol(clip(550)))["id"]
        outcomes = await asyncio.gather(*under_way, return_exceptions=True)
        assert all(isinstance(o, dict) for o in outcomes), outcomes
        assert gateway.services.cloning._places.taken == 0


class Breaking(ToneEngine):
    """Fails while it makes a voice."""

    error: Exception = RuntimeError("cuda:0 at 0x7fff /usr/lib/secret")

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError("cuda:0 at 0x7fff, /usr/lib/secret"), 502, "engine_error"),
        (EngineError("the engine failed"), 502, "engine_error"),
        (TimeoutError(), 504, "engine_timeout"),
    ],
)
async def test_a_failing_engine_is_told_in_our_words(
    start_gateway: Start, error: Exception, status: int, code: str
) -> None:
    engine = Breaking(can_clone=True)
    engine.error = error
    gateway = await start_gateway(engine=engine, api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        with pytest.raises(Refused) as refused:
            await acme.enrol()
    assert (refused.value.status, refused.value.code) == (status, code)
    assert "0x7fff" not in refused.value.message
    assert "secret" not in refused.value.message
    count = gateway.services.metrics.registry.get_sample_value
    assert count("voxwire_voice_enrolments_total", {"outcome": "failed"}) == 1


async def test_an_address_is_refused_where_no_hosts_are_listed(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        body = {"consent": await acme.consent(), "url": "https://media.example.com/me.wav"}
        with pytest.raises(Refused) as refused:
            await acme.ask("POST", "/v1/voices", json=body)
        assert refused.value.status == 403


async def test_an_address_of_a_listed_host_is_fetched(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetcher itself, with a real server and hostile addresses, has tests of its own."""
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS, reference_hosts=("media.example.com",))
    assert gateway.services.cloning.fetcher.enabled
    asked = []

    async def fetch(url: str) -> bytearray:
        asked.append(url)
        return bytearray(clip())

    monkeypatch.setattr(gateway.services.cloning.fetcher, "fetch", fetch)
    async with voice_client(gateway.url, ACME) as acme:
        body = {"consent": await acme.consent(), "url": "https://media.example.com/me.wav", "name": "Far"}
        made = await acme.ask("POST", "/v1/voices", json=body)
        assert await spoken(gateway, ACME, made["id"]) == pytest.approx(660, abs=3)
    assert asked == [body["url"]]


async def test_the_clip_is_nowhere_afterwards(start_gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the upload nor the sound made of it (V13)."""
    uploads: list[bytearray] = []
    heard: list[Samples] = []

    class Keeping(ToneEngine):
        async def enroll(self, reference: Samples, rate: int) -> bytes:
            heard.append(reference)
            return await super().enroll(reference, rate)

    async def watched(request: Any) -> Any:
        upload = await read_upload(request)
        uploads.append(upload.clip)
        return upload

    monkeypatch.setattr("gateway.voice_api.voices.read_upload", watched)
    gateway = await start_gateway(engine=Keeping(can_clone=True), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        await acme.enrol()
        with pytest.raises(Refused):
            await acme.enrol(clip(noise_db=-12))
        with pytest.raises(Refused):
            await acme.enrol(consent="none")
    assert len(uploads) == 3
    assert not any(any(upload) for upload in uploads)
    assert len(heard) == 1
    assert not heard[0].any()


async def test_a_built_in_voice_is_shown_and_cannot_be_deleted(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        assert (await acme.ask("GET", "/v1/voices/tone"))["kind"] == "built_in"
        with pytest.raises(Refused) as refused:
            await acme.delete("tone")
        assert refused.value.status == 400


async def test_a_voice_with_a_lifetime_lapses(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        made = await acme.enrol(ttl="1")
        assert made["until"] is not None
        assert set(await acme.listed()) <= {made["id"]}
        async with asyncio.timeout(5):
            while await acme.listed():
                await asyncio.sleep(0.01)
        with pytest.raises(Refused):
            await spoken(gateway, ACME, made["id"])


async def test_the_cartesia_routes_know_own_voices(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        voice = (await acme.enrol(name="Ada", language="en-GB"))["id"]
        page = await acme.ask("GET", "/voices?limit=2")
        assert [v["id"] for v in page["data"]] == ["tone", "other"]
        assert page["has_more"]
        (last,) = (await acme.ask("GET", f"/voices?starting_after={page['next_page']}"))["data"]
        assert (last["id"], last["name"], last["language"], last["country"]) == (voice, "Ada", "en", "GB")
        assert (last["is_owner"], last["is_public"]) == (True, False)
        assert await acme.ask("GET", f"/voices/{voice}") == last
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{gateway.url}/voices/{voice}", headers={"X-API-Key": RIVAL}) as response,
    ):
        assert response.status == 404


async def test_tensors_are_taken_nowhere(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme:
        consent = await acme.consent()
        for name in ("prompt_embeds", "embedding", "speaker_embedding", "conditioning", "prefix", "codes"):
            with pytest.raises(Refused) as refused:
                await acme.enrol(None, consent=consent, **{name: "AAAA"})
            assert refused.value.status == 400
        body = {"transcript": "One.", "voice": {"mode": "embedding", "embedding": [0.1] * 192}}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{gateway.url}/tts/bytes", json=body, headers={"X-API-Key": ACME}) as response,
        ):
            assert response.status == 400
        for kind in (b"\x93NUMPY\x01\x00", b"PK\x03\x04archive/data.pkl", b"\x80\x04\x95pickle"):
            with pytest.raises(Refused) as refused:
                await acme.enrol(kind + bytes(4000), consent=consent)
            assert refused.value.code == "reference_unsupported"
    assert gateway.engine.enrolled == 0


PAGE = files("gateway.voice_api").joinpath("VOICES.md").read_text("utf-8")


async def test_the_page_is_served_and_names_every_route_and_code(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http, http.get(gateway.url + "/v1/voices.md") as served:
        assert served.content_type == "text/markdown"
        assert await served.text() == PAGE
    resources = {r.canonical for r in gateway.app.router.resources()}
    ours = {
        r for r in resources if r.startswith(("/v1/voices", "/v1/consents", "/v1/receipts", "/v1/denied"))
    }
    ours.remove("/v1/voices.md")
    assert len(ours) == 11
    for resource in ours:
        assert resource.replace("{id}", "ID") in PAGE
    for code in (
        "cannot_clone",
        "unknown_session",
        "unknown_receipt",
        "challenge_gone",
        "challenge_not_read",
        "no_speaker_model",
        "unknown_denied",
    ):
        assert f"`{code}`" in PAGE
    for reason in (r for r in REASONS if r.startswith("reference_")):
        assert f"`{reason}`" in PAGE or f"`{reason.removeprefix('reference')}`" in PAGE
    for block in (part.split("```")[0] for part in PAGE.split("```json")[1:]):
        json.loads(block)


async def test_every_reason_that_a_clip_is_refused_for_is_counted_by_name() -> None:
    """The names stand in the code of the intake, each where it is raised."""
    found: set[str] = set()
    for entry in files("gateway.intake").iterdir():
        if entry.name.endswith(".py"):
            text = entry.read_text("utf-8")
            for call in ("ReferenceRefused", "_refused", "Finding", "judge"):
                found |= set(re.findall(rf"\b{call}\(\s*\"([a-z_]+)\"", text))
    assert len(found) > 12
    assert {f"reference_{reason}" for reason in found} <= REASONS | {"reference_quiet"}


async def test_the_cartesia_socket_speaks_with_own_voices(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=cloning(), api_keys=KEYS)
    async with voice_client(gateway.url, ACME) as acme, aiohttp.ClientSession() as http:
        voice = (await acme.enrol())["id"]
        other = (await acme.enrol(clip(550)))["id"]
        async with http.ws_connect(f"{gateway.url}/tts/websocket?api_key={ACME}") as ws:

            async def say(context: str, wanted: str, *, more: bool) -> None:
                await ws.send_json(
                    {
                        "context_id": context,
                        "transcript": "One two. ",
                        "continue": more,
                        "voice": {"mode": "id", "id": wanted},
                        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 8000},
                    }
                )

            async def last(context: str) -> dict[str, Any]:
                while True:
                    message: dict[str, Any] = await ws.receive_json(timeout=10)
                    if message["context_id"] == context and message["type"] in {"done", "error"}:
                        return message

            await say("a", voice, more=True)
            await say("a", voice, more=True)
            await say("a", other, more=False)  # a context keeps its voice
            assert (await last("a"))["type"] == "error"
            await say("a", voice, more=False)
            assert (await last("a"))["type"] == "done"
            pitches = {round(gateway.engine.pitch(r.conditioning)) for r in gateway.engine.requests}
            assert pitches == {660}
            await acme.delete(voice)
            await say("b", voice, more=False)
            refused = await last("b")
            assert (refused["type"], refused["status_code"], refused["done"]) == ("error", 404, True)
            await say("c", other, more=False)
            assert (await last("c"))["type"] == "done"
