from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.settings import Settings
from gateway.trust.ears import Ears, open_ears
from gateway.trust.recogniser import Recogniser
from sessions.consent import How
from sessions.consents import PAPER
from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.voice_desk import VoiceDesk
from tests.peers.gateway import Start
from tests.peers.rest import Refused, voice_client
from tests.peers.speakers import model, model_file
from tests.tone import ToneEngine
from tts_core.errors import SettingsError

SECRET = DeploymentSecret(b"deployment secret of these tests")


def test_both_are_needed_and_what_lacks_is_said() -> None:
    recogniser = Recogniser(Path("none"))
    desk = VoiceDesk(MemoryStore(), SECRET)
    for ears, missing in (
        (Ears(), ("speech recognition", "comparison of speakers")),
        (Ears(speakers=model()), ("speech recognition",)),
        (Ears(recogniser=recogniser), ("comparison of speakers",)),
    ):
        assert ears.verified == PAPER
        assert all(words in ears.missing for words in missing)
        assert ears.missing.count("VOXWIRE_") == len(missing)
        assert ears.verifier(MemoryStore(), desk) is None
    both = Ears(model(), recogniser)
    assert both.verified == frozenset(How)
    assert both.missing == ""
    assert both.verifier(MemoryStore(), desk) is not None


async def test_what_is_configured_must_start(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        assert await open_ears(settings, stack) == Ears()
        assert (await open_ears(replace(settings, speaker_model=model_file()), stack)).speakers is not None
        nothing = tmp_path / "none"
        for bad in (replace(settings, speaker_model=nothing), replace(settings, consent_asr=nothing)):
            with pytest.raises(SettingsError):
                await open_ears(bad, stack)


async def test_a_gateway_without_ears_says_so_at_every_door(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=ToneEngine(can_clone=True), speaker_model=model_file())
    async with voice_client(gateway.url, gateway.key) as client:
        assert (await client.ask("GET", "/v1/voices"))["consents"] == ["licensed", "written"]
        for ask in (
            client.ask("POST", "/v1/consents/challenges", json={}),
            client.consent(how="self_voice"),
            client.spoken("ch_none", b"RIFF"),
        ):
            with pytest.raises(Refused, match="speech recognition") as error:
                await ask
            assert (error.value.status, error.value.field) == (400, "how")
