"""Runs an unmodified client in its own environment against a gateway, and listens to what it got."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from telephony.dsp.level import rms_dbfs
from telephony.dsp.pcm import decode
from tests import envs
from tests.peers.authority import Authority
from tests.peers.gateway import Running
from tests.peers.process import GatewayProcess

PEERS = Path(__file__).resolve().parent
SENTENCES = "Hello there, this is the first delta. Your order number is 4215 and it ships on Thursday."
"""What the clients' scripts have spoken."""
CLIENT_S = 120


@contextmanager
def over_tls(folder: Path) -> Iterator[tuple[GatewayProcess, Path]]:
    """A gateway that listens over TLS too, and the certificate of the throw-away authority behind it."""
    authority = Authority(folder / "ca")
    file = str(authority.file("localhost"))
    with GatewayProcess(tls_port="0", tls_cert=file, tls_key=file, host="localhost") as gateway:
        yield gateway, authority.root


def drive(
    gateway: GatewayProcess, env: str, script: str, *args: str, root: Path | None = None
) -> dict[str, Any]:
    """Run ``script`` of this folder in environment ``env``; the JSON object that it prints last.

    With ``root``, the certificate of an authority to trust, it is given the gateway's address over TLS.
    """
    trusted = {} if root is None else {"SSL_CERT_FILE": str(root)}
    url = gateway.url if root is None else gateway.secure_url
    done = subprocess.run(
        [str(envs.ensure(env)), "-P", str(PEERS / script), url, *args],
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
        check=False,
        env=os.environ | trusted,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


async def listen(
    gateway: Running, env: str, script: str, *args: str, rest: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """As :func:`drive`, against a gateway of this process; ``audio`` is decoded, and no error may be told.

    ``rest`` is called when the client has said "rest", before it goes on; the loop's time may jump in it.
    """
    process = await asyncio.create_subprocess_exec(
        str(await asyncio.to_thread(envs.ensure, env)),
        "-P",
        str(PEERS / script),
        gateway.url,
        *args,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=64 << 20,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(process.stderr.read())
    last = b"{}"
    try:
        async with asyncio.timeout(CLIENT_S) as limit:
            while line := await process.stdout.readline():
                if line == b"rest\n":
                    rest()
                    limit.reschedule(asyncio.get_running_loop().time() + CLIENT_S)
                    process.stdin.write(b"\n")
                last = line
            assert await process.wait() == 0, (await errors).decode()[-3000:]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await errors
    result: dict[str, Any] = json.loads(last)
    assert result.get("errors", []) == []
    result["audio"] = base64.b64decode(result["audio"])
    return result


async def left(gateway: Running) -> None:
    """Nothing is held once the client is gone."""
    async with asyncio.timeout(5):
        while not gateway.idle or gateway.services.sockets:
            await asyncio.sleep(0.01)


def audible(audio: str, encoding: str = "pcm_s16le", rate: int = 22050) -> float:
    """Seconds of audio (base64), after checking that it is speech and not silence."""
    pcm = decode(base64.b64decode(audio), encoding)
    assert -35 < rms_dbfs(pcm) < -10
    assert np.abs(pcm).max() < 1.0
    return len(pcm) / rate
