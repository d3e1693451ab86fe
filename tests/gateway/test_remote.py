from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest
from aiohttp import web

from gateway.remote import RemoteGateway, answers, ask, need_running, remote_options, running
from tests.gateway.test_cli import home
from tests.peers.gateway import Running
from tts_core.errors import VoxwireError

__all__ = ["home"]


def args(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    remote_options(parser)
    action = parser.add_subparsers().add_parser("act")
    remote_options(action, again=True)
    return parser.parse_args(given)


def test_options_stand_before_or_after_the_action() -> None:
    for given in (["--url", "http://a", "--key", "k", "act"], ["act", "--url", "http://a", "--key", "k"]):
        found = args(*given)
        assert (found.url, found.key) == ("http://a", "k")
    assert (args("act").url, args("act").key) == (None, None)


async def test_a_gateway_that_was_named_is_asked_with_the_key(gateway: Running, home: Path) -> None:
    given = args("--url", gateway.url + "/", "--key", gateway.key)
    assert await running(given)
    await need_running(given)
    async with RemoteGateway(given) as remote:
        assert (await ask(remote, "GET", "/v1/limits"))["tenant"] == "default"
        with pytest.raises(VoxwireError, match="no such consent"):
            await ask(remote, "GET", "/v1/consents/cn_1")
    async with RemoteGateway(args("--url", gateway.url, "--key", "wrong")) as stranger:
        remote_key = stranger.key
        assert remote_key == "wrong"


async def test_the_environment_names_one_too(
    gateway: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await running(args())
    with pytest.raises(VoxwireError, match="no gateway answers at"):
        await need_running(args())
    monkeypatch.setenv("VOXWIRE_URL", gateway.url)
    monkeypatch.setenv("VOXWIRE_KEY", gateway.key)
    assert await running(args())
    async with RemoteGateway(args()) as remote:
        assert (remote.url, remote.key) == (gateway.url, gateway.key)


async def test_another_program_on_the_port_is_no_gateway(gateway: Running) -> None:
    async def fine(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/readyz", fine)
    other = web.AppRunner(app)
    await other.setup()
    await web.TCPSite(other, "127.0.0.1", 0).start()
    assert not await answers(f"http://127.0.0.1:{other.addresses[0][1]}")
    await other.cleanup()
    assert await answers(gateway.url)
    assert not await answers("http://127.0.0.1:1")


async def test_a_gateway_that_still_loads_is_not_taken_for_none() -> None:
    async def loading(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Server": "voxwire"})

    app = web.Application()
    app.router.add_get("/readyz", loading)
    gateway = web.AppRunner(app)
    await gateway.setup()
    await web.TCPSite(gateway, "127.0.0.1", 0).start()
    with pytest.raises(VoxwireError, match="readyz says why"):
        await answers(f"http://127.0.0.1:{gateway.addresses[0][1]}")
    await gateway.cleanup()


async def test_an_address_where_nobody_is_gives_plain_words(home: Path) -> None:
    async with RemoteGateway(args("--url", "http://127.0.0.1:1", "--key", "k")) as remote:
        with pytest.raises(VoxwireError, match=r"127\.0\.0\.1:1"):
            await ask(remote, "GET", "/v1/voices")


@pytest.mark.slow
async def test_a_private_gateway_takes_no_port_of_another(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("VOXWIRE_WYOMING", str(taken.getsockname()[1]))
        async with RemoteGateway(args()) as remote:
            assert (await ask(remote, "GET", "/v1/limits"))["tenant"] == "default"
    assert (
        "starting one for this command alone" in capsys.readouterr().err
    )  # not the one that was meant, perhaps
