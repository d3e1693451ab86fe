from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.voice_api import upload
from gateway.voice_api.upload import MAX_CLIP, Upload, read_upload
from tts_core.errors import VoxwireError

CLIP = bytes(range(256)) * 40


class Desk:
    """A server that does nothing but read uploads."""

    def __init__(self, port: int, taken: list[Upload]) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.port = port
        self.taken = taken

    async def post(self, data: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.url, data=data, headers=headers) as response,
        ):
            return response.status, await response.json()


@contextlib.asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    taken: list[Upload] = []

    async def take(request: web.Request) -> web.Response:
        try:
            made = await read_upload(request)
        except VoxwireError as error:
            body = {"code": error.code, "message": error.message, "field": error.field}
            return web.json_response(body, status=error.status)
        taken.append(made)
        return web.json_response({"bytes": len(made.clip)})

    app = web.Application(client_max_size=1 << 20)
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Desk(runner.addresses[0][1], taken)
    finally:
        await runner.cleanup()


def form(clip: bytes | None = CLIP, **fields: str) -> aiohttp.FormData:
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        made.add_field(name, value)
    if clip is not None:
        made.add_field("file", clip, filename="../me.wav", content_type="audio/wav")
    return made


async def test_a_form_gives_the_clip_and_what_is_asked_for() -> None:
    async with desk() as at:
        fields = {"name": "Zoë", "consent": "cn_1", "language": "de-AT", "session": "s_1", "ttl": "90.5"}
        assert (await at.post(form(CLIP, **fields)))[0] == 200
        assert (await at.post(form()))[0] == 200
    first, second = at.taken
    assert bytes(first.clip) == CLIP
    assert (first.asked.name, first.asked.consent, first.asked.language) == ("Zoë", "cn_1", "de-AT")
    assert (first.asked.session, first.asked.ttl) == ("s_1", 90.5)
    assert (second.asked.name, second.asked.session, second.asked.ttl) == ("", "", None)
    first.wipe()
    assert first.clip == bytes(len(CLIP))


async def test_json_names_an_address_and_nothing_else() -> None:
    async with desk() as at:
        kind = {"Content-Type": "application/json"}
        good = {"url": "https://media.example.com/me.wav", "consent": "cn_1", "name": "Me"}
        assert await at.post(json.dumps(good), **kind) == (200, {"bytes": 0})
        wrong: list[object] = [
            {**good, "prompt_embeds": "AAAA"},
            {**good, "embedding": [0.1, 0.2]},
            {**good, "conditioning": "AAAA"},
            {"consent": "cn_1"},
            {**good, "ttl": float("inf")},
            {**good, "name": "x" * 101},
            [],
        ]
        for bad in wrong:
            status, body = await at.post(json.dumps(bad), **kind)
            assert (status, body["code"]) == (400, "bad_request"), bad
        assert (await at.post(b"{" * 9000, **kind))[0] == 413
    assert at.taken[0].asked.url == good["url"]
    assert len(at.taken) == 1


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (form(None, name="Me"), "file"),
        (form(b""), "file"),
        (form(ttl="soon"), "ttl"),
        (form(ttl="0"), "ttl"),
        (form(ttl="1e9"), "ttl"),
        (form(name="x" * 101), "name"),
        (form(prompt_embeds="AAAA"), None),
        (form(embedding="[0.1]"), None),
        (form(url="https://media.example.com/me.wav"), None),
    ],
)
async def test_what_is_wrong_with_a_form_is_named(made: aiohttp.FormData, field: str | None) -> None:
    async with desk() as at:
        status, body = await at.post(made)
    assert (status, body["code"], body["field"]) == (400, "bad_request", field)
    assert at.taken == []


async def test_a_field_twice_is_refused() -> None:
    async with desk() as at:
        for name in ("file", "name"):
            made = form(name="Me")
            made.add_field(name, b"again", filename="b.wav")
            assert (await at.post(made))[1]["field"] == name


async def test_too_much_is_refused_while_it_is_read() -> None:
    """Said by its length before a byte was read, and counted where the length is not said."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while sent < 4 * MAX_CLIP:
            sent += 65536
            yield bytes(65536)

    async with desk() as at:
        status, body = await at.post(form(bytes(MAX_CLIP + 70_000)))
        assert (status, body["code"]) == (413, "text_too_long")
        assert (await at.post(form(bytes(MAX_CLIP + 1))))[0] == 413
        assert (await at.post(form(bytes(MAX_CLIP))))[0] == 200
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        with contextlib.suppress(aiohttp.ClientError):  # it may not be told while it still writes
            assert (await at.post(endless(), **kind))[0] == 413
        assert (await at.post(form(name="x" * 3000)))[0] == 413
    assert sent < 2 * MAX_CLIP
    assert len(at.taken) == 1


async def test_a_form_that_does_not_come_to_its_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "UPLOAD_S", 0.05)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    async with desk() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(
            head + b'Content-Length: 900\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        )
        assert b" 408 " in await reader.readline()
        writer.close()
    assert at.taken == []


async def test_a_client_that_goes_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = asyncio.Event()
    read = upload._read_fields
    kept: list[bytearray] = []

    async def watched(request: web.Request, clip: bytearray, known: frozenset[str]) -> dict[str, str]:
        kept.append(clip)
        try:
            return await read(request, clip, known)
        finally:
            gone.set()

    monkeypatch.setattr(upload, "_read_fields", watched)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    async with desk() as at:
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(head + b"Content-Length: 200900\r\n\r\n")
        writer.write(b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + b"\x77" * 200_000)
        await writer.drain()
        while not kept or not kept[0]:
            await asyncio.sleep(0)
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 10)
        while any(kept[0]):  # overwritten
            await asyncio.sleep(0)
    assert at.taken == []


async def test_lines_before_the_form_do_not_hold_the_loop_up() -> None:
    """A reader of lines took 30 s for these, in which nobody else was served."""
    body = b"\n" * 9_000_000 + b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
    async with desk() as at:
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(aiohttp.ClientError):  # it may not be told while it still writes
            assert (await at.post(body, **{"Content-Type": "multipart/form-data; boundary=b"}))[0] == 400
        assert asyncio.get_running_loop().time() - began < 5
    assert at.taken == []


@pytest.mark.parametrize("kind", ["text/plain", "audio/wav", "application/x-www-form-urlencoded", ""])
async def test_another_kind_of_body_is_refused(kind: str) -> None:
    async with desk() as at:
        assert (await at.post(CLIP, **{"Content-Type": kind}))[1]["field"] == "Content-Type"


PIECES = st.sampled_from(
    [
        *(b"--b", b"--b--", b"\r\n", b"\n", b"--", b"\x00", b"--c\r\n", b": ", b"a" * 9000),
        b'Content-Disposition: form-data; name="file"\r\n',
        b'Content-Disposition: form-data; name="name"\r\n',
        b'Content-Disposition: form-data; name="_charset_"\r\n',
        b"Content-Type: multipart/mixed; boundary=c\r\n",
        b"Content-Transfer-Encoding: base64\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Content-Length: 99999999999\r\n",
    ]
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.one_of(PIECES, st.binary(max_size=40)), max_size=25), min_size=5, max_size=5))
def test_no_body_gives_anything_but_a_clip_or_a_refusal(bodies: list[list[bytes]]) -> None:
    async def main() -> None:
        async with desk() as at:
            for pieces in bodies:
                for kind in ("multipart/form-data; boundary=b", "application/json"):
                    status, body = await at.post(b"".join(pieces), **{"Content-Type": kind})
                    assert status in {200, 400, 413}
                    assert status == 200 or set(body) == {"code", "message", "field"}

    asyncio.run(main())


@settings(max_examples=25, deadline=None)
@given(
    st.binary(min_size=1, max_size=200_000),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=100),
)
def test_every_clip_and_name_comes_whole(clip: bytes, name: str) -> None:
    async def main() -> None:
        async with desk() as at:
            status, _ = await at.post(form(clip, name=name))
            assert status == 200
            assert bytes(at.taken[0].clip) == clip
            assert at.taken[0].asked.name == name

    asyncio.run(main())
