from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway import engine as module
from gateway.engine import GEPARD_DEADLINE_S, WARM_DEADLINE_S, check_voices, make_engine, warm_deadline
from gateway.settings import Settings
from tests.tone import ToneEngine
from tts_core.errors import SettingsError


def test_the_default_is_the_embedded_voice() -> None:
    engine = make_engine(Settings(workers=1))
    assert engine.info.voices
    assert engine.info.native_rate == 24000


def test_an_unknown_engine_is_told_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="embedded"):
        make_engine(Settings(engine="none"))


@pytest.mark.parametrize("name", ["gepard", "gepard-torch"])
def test_a_model_is_made_of_its_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def load(engine: str, **options: Any) -> ToneEngine:
        asked.update(options, engine=engine)
        return ToneEngine()

    monkeypatch.setattr(module, "load_engine", load)
    settings = Settings(
        engine=name,
        gepard_checkpoint="folder",
        gepard_codec="codec.nemo",
        gepard_dtype="float16",
        gepard_streams=3,
        gepard_temperature=0.3,
        gepard_guidance=3.0,
        gepard_guidance_frames=20,
        gepard_compile=False,
    )
    make_engine(settings)
    assert asked.pop("compiled", "not asked") == (False if name == "gepard" else "not asked")
    assert asked == {
        "engine": name,
        "checkpoint": "folder",
        "codec": "codec.nemo",
        "dtype": "float16",
        "streams": 3,
        "codec_backend": "onnx",
        "codec_processes": 1,
        "codec_device": "cpu",
        "guard": True,
        "continuity": False,
        "trim": True,
        "temperature": 0.3,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "cfg_scale": 3.0,
        "cfg_frames": 20,
        "cfg_max_text_tokens": None,
    }
    make_engine(Settings(engine=name))
    assert (asked["dtype"], asked["cfg_frames"], asked["streams"]) == ("", None, 0)
    assert warm_deadline(settings) == GEPARD_DEADLINE_S > warm_deadline(Settings()) == WARM_DEADLINE_S


def test_settings_that_name_no_voice_are_told_with_those_there_are() -> None:
    engine = ToneEngine()
    for fine in (
        Settings(),
        Settings(default_voice="second", voice_aliases={"*": "tone", "me": "default"}),
        Settings(default_voice="me", voice_aliases={"me": "second"}),
    ):
        check_voices(fine, engine)
    with pytest.raises(SettingsError) as caught:
        check_voices(Settings(default_voice="bob", voice_aliases={"ada": "gone", "x": "tone"}), engine)
    default, alias = caught.value.message.splitlines()
    assert default == "default_voice = 'bob' is not a voice; accepted: tone, second"
    assert alias == "voice_aliases: ada=gone names no voice; accepted: tone, second"


def test_workers_are_launched_before_the_web_stack_is_loaded() -> None:
    code = (
        "import sys, gateway.server, gateway.engine; print('aiohttp' in sys.modules, 'redis' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_piper_is_made_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def load(engine: str, **options: Any) -> ToneEngine:
        asked.update(options, engine=engine)
        return ToneEngine()

    monkeypatch.setattr(module, "load_engine", load)
    make_engine(Settings(engine="piper", piper_voices=Path("voices"), piper_python=Path("python"), workers=3))
    assert asked == {"engine": "piper", "voices": Path("voices"), "python": Path("python"), "workers": 3}


def test_piper_without_voices_says_which_setting() -> None:
    with pytest.raises(SettingsError, match="VOXWIRE_PIPER_VOICES"):
        make_engine(Settings(engine="piper"))
