"""What can be held of the deployment files without their engines: they parse and name what exists."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from gateway.settings import ENV_ONLY, PREFIX, Settings

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OWN = {"VOXWIRE_NAME"}
"""A placeholder in prose."""


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "voxwire.service", "twiml.xml"])
def test_every_file_says_what_was_tried_and_names_real_settings(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert "Tried:" in text
    assert "Not tried:" in text
    known = {PREFIX + field.name.upper() for field in fields(Settings)} | ENV_ONLY | OWN
    assert set(re.findall(r"VOXWIRE_[A-Z_]+", text)) <= known


def test_the_image_copies_what_exists_and_every_package() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [source for line in lines if line.startswith("COPY ") for source in line.split()[1:-1]]
    here = [source for source in copied if not source.startswith(("--from", "/"))]
    assert all((ROOT / source).exists() for source in here)
    assert {"gateway", "sessions", "telephony", "tts_core"} <= set(here)
    kept = [
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert set(here) <= set(kept)
    assert "USER 10001" in lines


def test_compose_gives_the_gateway_a_redis_that_keeps_nothing() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    gateway, redis = services["gateway"], services["redis"]
    assert (DEPLOY / gateway["build"]["context"]).resolve() == ROOT
    assert (ROOT / gateway["build"]["dockerfile"]).is_file()
    assert gateway["environment"]["VOXWIRE_REDIS_URL"].startswith("redis://redis:")
    assert shlex.join(redis["command"]).startswith("redis-server --save '' --appendonly no ")
    assert set(redis["networks"]) == {"back"}


def test_redis_takes_the_arguments_of_compose(tmp_path: Path) -> None:
    arguments = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["redis"]["command"]
    # Port 0 and no socket: it reads its configuration, finds that it has nowhere to listen, and ends.
    done = subprocess.run(
        [*arguments, "--port", "0", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Configured to not listen anywhere" in done.stdout
    assert "FATAL CONFIG" not in done.stdout + done.stderr


def test_the_unit_starts_the_linked_environment_and_is_hardened(tmp_path: Path) -> None:
    text = (DEPLOY / "voxwire.service").read_text()
    assert "ExecStart=/opt/voxwire/.venv/bin/python -m gateway serve\n" in text
    unit = tmp_path / "voxwire.service"
    unit.write_text(text.replace("/opt/voxwire/.venv/bin/python", "/bin/true"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-300:]


def test_the_twiml_is_two_way_and_points_at_our_route() -> None:
    stream = ElementTree.parse(DEPLOY / "twiml.xml").find("./Connect/Stream")
    assert stream is not None
    assert stream.attrib["url"] == "wss://HOST/media/twilio"
    assert [parameter.attrib for parameter in stream.findall("Parameter")] == [
        {"name": "agent", "value": "greeter"}
    ]
    assert 'web.get("/media/twilio"' in (ROOT / "gateway" / "media.py").read_text()
