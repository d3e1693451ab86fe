from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from gateway.intake import fetch as module
from gateway.intake.addresses import Address, is_public
from gateway.intake.clip import decode_clip
from gateway.intake.fetch import AT_ONCE, Fetcher, FetchPolicy, system_resolve
from gateway.intake.refusal import ReferenceRefused
from tests.peers.authority import Authority
from tts_core.errors import BadRequest, Busy, Forbidden

HOST = "media.example.com"
LOOPBACK = "127.0.0.1"


class Names:
    """A resolver that answers what it was told, one answer after the other, and counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


HOSTILE = [
    "http://media.example.com/a.wav",
    "HTTP://media.example.com/a.wav",
    "ftp://media.example.com/a.wav",
    "file:///etc/passwd",
    "file://media.example.com/etc/passwd",
    "gopher://media.example.com/",
    "data:audio/wav;base64,UklGRg==",
    "//media.example.com/a.wav",
    "media.example.com/a.wav",
    "https:media.example.com",
    "https:/media.example.com",
    "https:///media.example.com",
    "https://",
    "",
    " https://media.example.com/",
    "https://media.example.com/ ",
    "https://media.example.com/a b",
    "https://media.example.com/\r\nHost: evil.org",
    "https://media.example.com/\t",
    "https://media.example.com/\0",
    "https://media.example.com\\@169.254.169.254/",
    "https://169.254.169.254\\@media.example.com/",
    "https://media.example.com/\\evil.org",
    "https://media.example.com@169.254.169.254/",
    "https://169.254.169.254@media.example.com/",
    "https://user:password@media.example.com/",
    "https://@media.example.com/",
    "https://media.example.com%40169.254.169.254/",
    "https://media.example.com#@169.254.169.254/",
    "https://media.example.com/#x",
    "https://media.example.com:443:80/",
    "https://media.example.com:/",
    "https://media.example.com:0/",
    "https://media.example.com:0443/",
    "https://media.example.com:65536/",
    "https://media.example.com:-1/",
    "https://media.example.com:22/",
    "https://media.example.com:80/",
    "https://media.example.com./a.wav",
    "https://media.example.com.evil.org/",
    "https://evilmedia.example.com/",
    "https://sub.media.example.com/",
    "https://media.example.com,evil.org/",
    "https://media.example.com;evil.org/",
    "https://media_example.com/",
    "https://-media.example.com/",
    "https://media..example.com/",
    "https://medıa.example.com/",
    "https://media。example。com/",
    "https://ｍedia.example.com/",
    "https://media.example.com／evil.org",
    "https://media.example.com/%zz",
    "https://%6dedia.example.com/",
    "https://localhost/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[2002:7f00:1::]/",
    "https://[fe80::1%25eth0]/",
    "https://[fd00:ec2::254]/",
    "https://①②⑦.0.0.1/",
    "https://media.example.com.127.0.0.1/",
    "https://metadata.google.internal/",
]


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_asks_nobody(url: str) -> None:
    names = Names(["8.8.8.8"])
    with pytest.raises((ReferenceRefused, Forbidden)) as caught:
        await Fetcher(FetchPolicy(hosts=(HOST,)), resolve=names).fetch(url)
    assert names.asked == []
    assert url == "" or url not in str(caught.value)


def test_the_table_is_long_enough() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 40


async def test_is_off_by_default() -> None:
    fetcher = Fetcher()
    assert not fetcher.enabled
    with pytest.raises(Forbidden, match="not enabled"):
        await fetcher.fetch(f"https://{HOST}/")
    assert Fetcher(FetchPolicy(hosts=(HOST,))).enabled


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["10.0.0.1"],
        ["100.100.100.200"],
        ["168.63.129.16"],
        ["0.0.0.0"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["::ffff:8.8.8.8"],
        ["64:ff9b::808:808"],
        ["2002:808:808::1"],
        ["fd00:ec2::254"],
        ["fe80::1%eth0"],
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["8.8.8.8", "::1"],
        ["203.0.113.7"],
        ["9.9.9.9"],
        ["evil.org"],
    ],
)
async def test_an_address_that_is_not_public_is_refused(
    answer: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> bytearray:
        raise AssertionError("a connection was tried")

    policy = FetchPolicy(hosts=(HOST,), refused=(ipaddress.ip_network("9.0.0.0/8"),))
    fetcher = Fetcher(policy, resolve=Names(answer))
    monkeypatch.setattr(fetcher, "_get", never)
    with pytest.raises(ReferenceRefused) as caught:
        await fetcher.fetch(f"https://{HOST}/a.wav")
    assert caught.value.reason == "address"
    assert not any(text in str(caught.value) for text in answer)


async def test_a_name_without_addresses_or_resolver() -> None:
    async def broken(host: str, port: int) -> Sequence[str]:
        raise OSError("no name server at 10.0.0.53")

    for resolve in (Names([]), broken):
        with pytest.raises(ReferenceRefused) as caught:
            await Fetcher(FetchPolicy(hosts=(HOST,)), resolve=resolve).fetch(f"https://{HOST}/")
        assert caught.value.reason == "fetch_failed"
        assert "10.0.0.53" not in str(caught.value)


async def test_the_systems_resolver_is_asked() -> None:
    assert LOOPBACK in await system_resolve("localhost", 443)


# A real server with a certificate of a throw-away authority.


@dataclass
class Served:
    """A server on the loopback, and what reached it."""

    port: int
    requests: list[web.BaseRequest] = field(default_factory=list)
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}/voices/a.wav?x=%2F"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "one")


async def serve(context: ssl.SSLContext) -> AsyncIterator[Served]:
    served = Served(0)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        served.requests.append(request)
        assert served.answer is not None
        return await served.answer(request)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=context)
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[Served]:
    async for served in serve(authority.server(HOST)):
        yield served


@pytest.fixture
async def stranger(authority: Authority) -> AsyncIterator[Served]:
    """Its certificate is for another name."""
    async for served in serve(authority.server("evil.example.com")):
        yield served


async def left(request: web.BaseRequest) -> None:
    """Wait until the client has closed its connection."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.01)


def loopback(address: Address) -> bool:
    return str(address) == LOOPBACK


def fetcher(
    served: Served,
    authority: Authority,
    names: Names | None = None,
    *,
    permits: Callable[[Address], bool] = loopback,
    max_bytes: int = 10 << 20,
    total_s: float = 10.0,
) -> Fetcher:
    policy = FetchPolicy(hosts=(f"{HOST}:{served.port}",), max_bytes=max_bytes, total_s=total_s)
    return Fetcher(policy, resolve=names or Names([LOOPBACK]), permits=permits, tls=authority.client())


def answers(
    body: bytes = b"", status: int = 200, **headers: str
) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(
            body=body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


async def reason(one: Fetcher, url: str) -> str:
    with pytest.raises(ReferenceRefused) as caught:
        await one.fetch(url)
    assert caught.value.field == "reference_url"
    assert not any(word in str(caught.value) for word in (LOOPBACK, HOST, "aiohttp", "ssl", "Errno"))
    return caught.value.reason


async def test_fetches_a_clip_that_can_be_decoded(
    server: Served, authority: Authority, files: dict[str, bytes]
) -> None:
    server.answer = answers(files["flac"])
    names = Names([LOOPBACK])
    body = await fetcher(server, authority, names).fetch(server.url)
    assert body == files["flac"]
    assert (await decode_clip(body)).kind == "flac"
    assert not any(body)
    assert names.asked == [(HOST, server.port)]
    (request,) = server.requests
    assert request.path_qs == "/voices/a.wav?x=%2F"
    assert request.headers["Host"] == f"{HOST}:{server.port}"
    assert {name.lower() for name in request.headers} <= {
        "host",
        "accept",
        "accept-encoding",
        "user-agent",
        "connection",
    }


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "/elsewhere",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_is_not_followed(
    server: Served, authority: Authority, status: int, target: str
) -> None:
    server.answer = answers(b"x", status, Location=target)
    names = Names([LOOPBACK])
    assert await reason(fetcher(server, authority, names), server.url) == "redirect"
    assert len(server.requests) == 1
    assert len(names.asked) == 1


async def test_the_name_is_asked_once_and_the_checked_address_is_taken(
    server: Served, authority: Authority
) -> None:
    server.answer = answers(b"sound")
    names = Names([LOOPBACK], ["169.254.169.254"], ["10.0.0.1"])
    assert await fetcher(server, authority, names).fetch(server.url) == b"sound"
    assert len(names.asked) == 1
    # The other way round: public when it is checked, ours a moment later. Nothing reaches us.
    server.requests.clear()
    turned = Names(["192.0.2.1"], [LOOPBACK])
    strict = fetcher(
        server, authority, turned, permits=lambda address: str(address) == "192.0.2.1", total_s=0.2
    )
    assert await reason(strict, server.url) in {"fetch_timeout", "fetch_failed"}
    assert len(turned.asked) == 1
    assert server.requests == []
    # And with the rule that is in force outside of tests, the loopback is never reached.
    assert await reason(fetcher(server, authority, permits=is_public), server.url) == "address"
    assert server.requests == []


async def test_the_clients_resolver_and_sockets_know_only_what_was_checked() -> None:
    pinned = module._Pinned(HOST, [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("2606:4700::1111")])
    found = await pinned.resolve(HOST, 443)
    assert [(entry["host"], entry["port"]) for entry in found] == [("8.8.8.8", 443), ("2606:4700::1111", 443)]
    with pytest.raises(OSError, match="another host"):
        await pinned.resolve("evil.org", 443)
    for entry in found:
        peer = (entry["host"], 443)
        pinned.socket((entry["family"], 1, entry["proto"], "", peer)).close()
        with pytest.raises(OSError, match="another address"):
            pinned.socket((entry["family"], 1, entry["proto"], "", (LOOPBACK, 443)))
    await pinned.close()


async def test_a_certificate_must_fit(stranger: Served, authority: Authority, tmp_path: Path) -> None:
    stranger.answer = answers(b"sound")
    assert await reason(fetcher(stranger, authority), stranger.url) == "fetch_failed"
    other = Authority(tmp_path / "other")
    assert await reason(fetcher(stranger, other), stranger.url) == "fetch_failed"
    assert stranger.requests == []


async def test_the_systems_authorities_are_the_default(server: Served) -> None:
    server.answer = answers(b"sound")
    policy = FetchPolicy(hosts=(f"{HOST}:{server.port}",))
    assert (
        await reason(Fetcher(policy, resolve=Names([LOOPBACK]), permits=loopback), server.url)
        == "fetch_failed"
    )
    assert server.requests == []


async def test_size_is_bounded(server: Served, authority: Authority) -> None:
    server.answer = answers(bytes(1000))
    assert len(await fetcher(server, authority, max_bytes=1000).fetch(server.url)) == 1000
    assert await reason(fetcher(server, authority, max_bytes=999), server.url) == "too_large"

    sent = 0

    async def chunks(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            for _ in range(10_000):
                await response.write(bytes(10_000))
                sent += 10_000
        except ConnectionError:
            pass
        return response

    server.answer = chunks
    assert await reason(fetcher(server, authority, max_bytes=100_000), server.url) == "too_large"
    assert sent < 50_000_000


async def test_a_lie_about_the_length_is_a_failure(server: Served, authority: Authority) -> None:
    async def short(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"x" * 10)
        assert request.transport is not None
        request.transport.close()
        return response

    server.answer = short
    assert await reason(fetcher(server, authority), server.url) == "fetch_failed"


async def test_nothing_is_unpacked(server: Served, authority: Authority) -> None:
    for encoding in ("gzip", "deflate", "br", "zstd"):
        server.answer = answers(b"packed", Content_Encoding=encoding)
        assert await reason(fetcher(server, authority), server.url) == "fetch_failed"


@pytest.mark.parametrize("status", [201, 204, 206, 401, 404, 429, 500, 503])
async def test_any_other_answer_is_a_failure(server: Served, authority: Authority, status: int) -> None:
    server.answer = answers(b"", status)
    assert await reason(fetcher(server, authority), server.url) == "fetch_failed"


async def test_time_is_bounded_from_the_first_question_to_the_last_byte(
    server: Served, authority: Authority
) -> None:
    async def trickle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await left(request)
        return response

    server.answer = trickle
    assert await reason(fetcher(server, authority, total_s=0.3), server.url) == "fetch_timeout"

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    policy = FetchPolicy(hosts=(HOST,), total_s=0.05)
    assert await reason(Fetcher(policy, resolve=never), f"https://{HOST}/") == "fetch_timeout"


async def test_a_server_without_tls(unused_tcp_port: int, authority: Authority) -> None:
    closed: list[asyncio.StreamWriter] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsound")
        writer.close()

    async with await asyncio.start_server(plain, LOOPBACK, unused_tcp_port):
        one = fetcher(Served(unused_tcp_port), authority)
        assert await reason(one, f"https://{HOST}:{unused_tcp_port}/") == "fetch_failed"
    assert len(closed) == 1


async def test_proxies_and_netrc_are_not_heeded(
    server: Served, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text(f"machine {HOST} login anna password hush\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.answer = answers(b"sound", Set_Cookie="a=b")
    one = fetcher(server, authority)
    assert await one.fetch(server.url) == b"sound"
    assert await one.fetch(server.url) == b"sound"
    assert all(
        "Authorization" not in each.headers and "Cookie" not in each.headers for each in server.requests
    )


async def test_only_so_many_at_once_and_cancelled_ones_end(server: Served, authority: Authority) -> None:
    arrived = asyncio.Semaphore(0)
    ended = asyncio.Semaphore(0)

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        arrived.release()
        await left(request)
        ended.release()
        return response

    server.answer = hang
    one = fetcher(server, authority)
    tasks = [asyncio.create_task(one.fetch(server.url)) for _ in range(AT_ONCE)]
    async with asyncio.timeout(30):
        for _ in range(AT_ONCE):
            await arrived.acquire()
        with pytest.raises(Busy):
            await one.fetch(server.url)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        for _ in range(AT_ONCE):
            await ended.acquire()
    server.answer = answers(b"sound")
    assert await one.fetch(server.url) == b"sound"


def test_refusals_are_the_clients_errors() -> None:
    assert issubclass(ReferenceRefused, BadRequest)
