"""The process as an operator has it: started by its command, stopped by signals, on the real engine."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import websockets
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.say import FORMATS, GatewayError, pieces, say
from gateway.server import Server, tls_context, url_of
from gateway.settings import Settings
from tts_core.errors import SettingsError

READY = re.compile(r"Voxwire ready at (http://127\.0\.0\.1:(\d+))\n")


class Process:
    """``voxwire serve`` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""
        self.port = 0

    async def ready(self) -> None:
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), 120)).decode()
        found = READY.fullmatch(line)
        assert found, line
        self.url, self.port = found[1], int(found[2])

    async def ended(self) -> tuple[int, str]:
        """Exit status and what was written to standard error."""
        _, err = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@contextlib.asynccontextmanager
async def serve(folder: Path, *, wait: bool = True, **environ: str) -> AsyncIterator[Process]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOXWIRE_")}
    values = {"port": "0", "data_dir": str(folder / "data"), "workers": "1", **environ}
    env |= {f"VOXWIRE_{name.upper()}": value for name, value in values.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve",
        env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        made = Process(process)
        if wait:
            await made.ready()
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Deaf:
    """A sink for nothing."""

    async def write(self, data: bytes) -> None:
        raise AssertionError("no sound was expected")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, private


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
async def test_it_says_ready_speaks_drains_and_exits_with_0(tmp_path: Path) -> None:
    async with serve(tmp_path) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/stream?api_key=any"
        async with websockets.connect(url) as client:
            await client.send(json.dumps({"type": "hello", "version": 1}))
            await client.send(json.dumps({"type": "open", "context": "c1"}))
            await client.send(json.dumps({"type": "text", "context": "c1", "text": "One, two, three. "}))
            async with asyncio.timeout(30):
                while not isinstance(await client.recv(), bytes):
                    pass
            server.process.send_signal(signal.SIGTERM)
            kinds: list[str] = []
            with contextlib.suppress(websockets.ConnectionClosed):
                async with asyncio.timeout(30):
                    while True:
                        message = await client.recv()
                        if isinstance(message, str):
                            kinds.append(json.loads(message)["type"])
                            if kinds[-1] == "draining":
                                await client.send(
                                    json.dumps(
                                        {"type": "text", "context": "c1", "text": "Four.", "end": True}
                                    )
                                )
            assert kinds[-1] == "done"
            assert client.close_code == 1012
        status, err = await server.ended()
    assert status == 0
    assert "local mode: only this machine" in err
    assert "Traceback" not in err


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, drain_s="3000") as server,
        websockets.connect(f"ws://127.0.0.1:{server.port}/v1/stream?api_key=any") as client,
    ):
        await client.send(json.dumps({"type": "hello", "version": 1}))
        await client.send(json.dumps({"type": "open", "context": "c1"}))
        async with asyncio.timeout(30):
            while json.loads(await client.recv())["type"] != "opened":
                pass
            server.process.send_signal(signal.SIGTERM)
            while json.loads(await client.recv())["type"] != "draining":
                pass
        server.process.send_signal(signal.SIGTERM)
        status, _ = await server.ended()
    assert status == 128 + signal.SIGTERM


@pytest.mark.slow
async def test_the_tls_port_serves_the_same(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = free_port()
    async with serve(tmp_path, tls_port=str(port), tls_cert=str(cert), tls_key=str(key)) as server:
        trust = ssl.create_default_context(cafile=str(cert))
        async with websockets.connect(f"wss://localhost:{port}/v1/stream?api_key=any", ssl=trust) as client:
            await client.send(json.dumps({"type": "hello", "version": 1}))
            assert json.loads(await asyncio.wait_for(client.recv(), 30))["type"] == "hello"
        assert server.process.stdout is not None
        assert await server.process.stdout.readline() == f"and at https://127.0.0.1:{port}\n".encode()
        with pytest.raises(GatewayError, match="certificate of https://localhost"):
            await say(f"https://localhost:{port}", "any", pieces("Hi."), Deaf(), FORMATS["pcm-8000"])
        async with aiohttp.ClientSession() as http:
            async with http.get(f"https://localhost:{port}/readyz", ssl=trust) as response:
                assert response.status == 200
            async with http.get(f"{server.url}/readyz") as response:
                assert response.status == 200
        server.process.send_signal(signal.SIGINT)
        assert (await server.ended())[0] == 0


async def test_bad_settings_are_all_told_and_nothing_starts(tmp_path: Path) -> None:
    async with serve(tmp_path, wait=False, port="x", log_level="y", run_ahead_s="z") as server:
        status, err = await server.ended()
    assert status == 1
    assert [line.split()[1] for line in err.splitlines()] == [
        "VOXWIRE_PORT", "VOXWIRE_LOG_LEVEL", "VOXWIRE_RUN_AHEAD_S"
    ]  # fmt: skip


@pytest.mark.slow
async def test_an_open_bind_without_a_key_does_not_start(tmp_path: Path) -> None:
    async with serve(tmp_path, wait=False, host="0.0.0.0") as server:
        status, err = await server.ended()
    assert status == 1
    assert "no API key is set" in err
    assert err.count("\n") == 1  # one line, and nothing of what was begun and undone
    assert "Traceback" not in err


async def test_a_port_that_is_taken_is_told_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with serve(tmp_path, wait=False, port=str(taken.getsockname()[1])) as server:
            status, err = await server.ended()
    assert status == 1
    assert "set VOXWIRE_PORT to a free port" in err


def test_a_certificate_that_does_not_fit_its_key_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, _ = certificate(tmp_path)
    _, other = certificate(tmp_path / "other")
    with pytest.raises(SettingsError, match="tls_cert and tls_key"):
        tls_context(Settings(tls_port=1, tls_cert=cert, tls_key=other))
    with pytest.raises(SettingsError, match="tls_cert and tls_key"):
        tls_context(Settings(tls_port=1, tls_cert=cert, tls_key=tmp_path / "none"))


@pytest.mark.parametrize(
    ("host", "want"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"),
     ("::1", "http://[::1]:1"), ("gw.example", "http://gw.example:1")],
)  # fmt: skip
def test_the_address_shown_can_be_opened(host: str, want: str) -> None:
    assert url_of("http", host, 1) == want


async def test_a_start_that_takes_long_is_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for slow, told in ((120.0, 0), (0.0, 1)):
        monkeypatch.setattr("gateway.server.SLOW_S", slow)
        server = Server(Settings(port=0, data_dir=tmp_path, workers=1))
        with caplog.at_level("INFO", logger="gateway.server"):
            await server.start()
        await server.close()
        assert caplog.text.count("the engine is still loading") == told


async def test_stopping_before_the_start_is_harmless() -> None:
    await Server(Settings()).close()
