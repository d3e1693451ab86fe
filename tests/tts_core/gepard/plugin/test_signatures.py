from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

import pytest

from tts_core.errors import SettingsError
from tts_core.gepard.plugin import signatures


class Owner:
    def call(self, first: int, second: int = 0, *rest: int, **more: int) -> None: ...


@dataclass
class Fields:
    one: int
    two: int


def test_a_name_that_is_as_known_passes() -> None:
    signatures.takes(Owner, "call")
    signatures.takes(Owner, "call", "first")
    signatures.takes(Owner, "call", "first", "second")
    signatures.has(Fields, "two", "one")


@pytest.mark.parametrize("names", [("gone",), ("call", "second"), ("call", "first", "second", "third")])
def test_a_name_that_has_changed_is_named(names: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=f"Owner.{names[0]}"):
        signatures.takes(Owner, *names)


def test_a_field_that_is_gone_is_named() -> None:
    with pytest.raises(SettingsError, match="Fields has no three"):
        signatures.has(Fields, "one", "three")


def test_the_installed_vllm_is_one_that_was_tried() -> None:
    assert signatures.version().startswith(("0.32", "0.33"))


@pytest.mark.parametrize("found", ["0.31.9", "0.34.0", "1.0", "dev"])
def test_another_vllm_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: found)
    with pytest.raises(SettingsError, match=r"needs vllm>=0\.32,<0\.34"):
        signatures.version()


def test_no_vllm_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    with pytest.raises(SettingsError, match="not installed"):
        signatures.version()
