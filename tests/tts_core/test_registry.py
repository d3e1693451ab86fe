from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tts_core import registry
from tts_core.embedded import EmbeddedEngine
from tts_core.engine import Engine
from tts_core.errors import SettingsError
from tts_core.registry import engine_names, load_engine


def register(monkeypatch: pytest.MonkeyPatch, **engines: str) -> None:
    points = [EntryPoint(name, target, registry.GROUP) for name, target in engines.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_the_built_in_engine_needs_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    engine = load_engine("embedded", workers=1)
    assert isinstance(engine, EmbeddedEngine)
    assert engine.capacity().slots == 1


def test_the_metadata_registers_what_is_built_in() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][registry.GROUP] == registry.BUILT_IN


def test_the_built_in_engine_fulfils_the_contract() -> None:
    engine: Engine = EmbeddedEngine(workers=1)
    assert engine.info.name == "embedded"


def test_a_registered_engine_is_found_and_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, mine="types:SimpleNamespace", embedded="types:SimpleNamespace")
    assert {"mine", "embedded"} <= set(engine_names())
    assert load_engine("mine", a=1).a == 1  # type: ignore[attr-defined]
    assert load_engine("embedded", b=2).b == 2  # type: ignore[attr-defined]


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(SettingsError, match=r"no engine is called 'nope'; there are: .*embedded"):
        load_engine("nope")


@pytest.mark.parametrize("target", ["no_such_module_at_all:X", "types:NoSuchThing"])
def test_an_engine_that_cannot_be_imported_is_a_bad_setting(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    register(monkeypatch, broken=target)
    with pytest.raises(SettingsError, match="cannot be loaded"):
        load_engine("broken")


def test_options_that_an_engine_does_not_take_are_a_bad_setting() -> None:
    with pytest.raises(SettingsError, match="does not take"):
        load_engine("embedded", colour="red")
