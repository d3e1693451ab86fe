"""The deployment secret and private files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.secret import DeploymentSecret, write_private
from tts_core.errors import SettingsError

PARTS = st.lists(st.text(max_size=8), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_every_purpose_and_context_has_its_own_key(a: list[str], b: list[str]) -> None:
    secret = DeploymentSecret(b"x" * 32)
    assert (secret.derive(*a) == secret.derive(*b)) == (a == b)


def test_another_deployment_has_other_keys() -> None:
    assert DeploymentSecret(b"x" * 32).derive("p") != DeploymentSecret(b"y" * 32).derive("p")
    assert len(DeploymentSecret(b"x" * 32).derive("p", length=48)) == 48


def test_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret"
    one = DeploymentSecret.load(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert DeploymentSecret.load(path).derive("p") == one.derive("p")
    assert [p.name for p in path.parent.iterdir()] == ["secret"]
    assert path.read_text() not in repr(one)


def test_refuses_weak_and_public_secrets(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        DeploymentSecret(b"short")
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 64)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="0600"):
        DeploymentSecret.load(path)
    with pytest.raises(SettingsError):
        DeploymentSecret.load(path / "below-a-file")


def test_private_writes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, b"1")
    write_private(path, b"2", replace=False)
    assert path.read_bytes() == b"1"
    write_private(path, b"3")
    assert path.read_bytes() == b"3"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
