from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.engine import check_voices, make_engine
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
