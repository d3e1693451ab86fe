"""What can be held of the deployment files without their engines: they parse and name what exists."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from gateway.settings import ENV_ONLY, PREFIX, Settings
from gateway.stores import open_stores

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
OWN = {"VOXWIRE_NAME"}
"""A placeholder in prose."""


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "redis.conf", "voxwire.service", "twiml.xml"])
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


def test_compose_gives_the_gateway_a_redis_that_keeps_nothing_and_one_that_does() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    gateway = services["gateway"]
    assert (DEPLOY / gateway["build"]["context"]).resolve() == ROOT
    assert (ROOT / gateway["build"]["dockerfile"]).is_file()
    for name in ("redis", "durable"):
        redis = services[name]
        assert gateway["depends_on"][name] == {"condition": "service_healthy"}
        assert redis["network_mode"] == "none"
        assert "sockets:/run/voxwire-redis" in redis["volumes"]
        assert (DEPLOY / redis["volumes"][0].split(":")[0]).is_file()
    assert services["redis"]["tmpfs"] == ["/data"]
    assert "durable:/data" in services["durable"]["volumes"]


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Settings]:
    """Both servers as compose starts them, with our folders for the containers'; how to reach them."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    here = {"/etc/voxwire/": f"{DEPLOY}/", "/run/voxwire-redis/": f"{tmp_path}/", "/data": str(tmp_path)}

    def local(text: str) -> str:
        for there, folder in here.items():
            text = text.replace(there, folder)
        return text

    started = []
    try:
        for name in ("redis", "durable"):
            command = [local(argument) for argument in services[name]["command"]]
            if name == "redis":  # its socket is in the file
                command += ["--unixsocket", str(tmp_path / "redis.sock"), "--dir", str(tmp_path)]
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            test = [local(argument) for argument in services[name]["healthcheck"]["test"][1:]]
            until = time.monotonic() + 20
            while subprocess.run(test, capture_output=True, check=False).stdout != b"PONG\n":
                assert time.monotonic() < until
        environment = {k: local(v) for k, v in services["gateway"]["environment"].items() if "_REDIS_" in k}
        yield Settings.load(environment)
    finally:
        for process in started:
            process.kill()
            process.wait(timeout=10)


async def test_the_gateway_takes_both_as_compose_starts_them(composed: Settings) -> None:
    async with AsyncExitStack() as stack:
        stores = await open_stores(composed, stack)
        assert stores[0] is not stores[1]
        for store in stores:
            assert store.healthy
            assert store.faults == ()
            await store.set("vx:t:a", b"1", 5)


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
