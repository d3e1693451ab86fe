from __future__ import annotations

import re

import aiohttp
import pytest

from gateway.web import HEADERS, TYPES, routes
from tests.gateway.web.conftest import Serve

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_file_is_served_with_its_type_and_the_policy(serve: Serve) -> None:
    served = await serve()
    paths = [route.path for route in routes(served.services)]
    assert {"/", "/web/app.js", "/web/player.js", "/web/worklet.js", "/web/style.css"} <= set(paths)
    async with aiohttp.ClientSession(served.url) as client:
        for path in paths:
            async with client.get(path) as answer:
                assert answer.status == 200
                suffix = "." + path.rsplit(".", 1)[1] if "." in path else ".html"
                assert answer.content_type == TYPES[suffix]
                assert {name: answer.headers[name] for name in HEADERS} == HEADERS
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert await answer.read()


async def test_a_browser_that_has_a_file_is_told_so(serve: Serve) -> None:
    served = await serve()
    async with aiohttp.ClientSession(served.url) as client:
        async with client.get("/web/app.js") as first:
            tag = first.headers["ETag"]
        async with client.get("/web/app.js", headers={"If-None-Match": tag}) as again:
            assert again.status == 304
            assert again.headers["ETag"] == tag
            assert await again.read() == b""
        async with client.get("/web/app.js", headers={"If-None-Match": '"other"'}) as other:
            assert other.status == 200
        async with client.get("/web/../__init__.py") as outside:
            assert outside.status == 404
        async with client.get("/web/__init__.py") as source:
            assert source.status == 404


async def test_the_page_refers_to_nothing_outside_and_runs_nothing_inline(serve: Serve) -> None:
    served = await serve()
    paths = [route.path for route in routes(served.services)]
    async with aiohttp.ClientSession(served.url) as client:
        for path in paths:
            async with client.get(path) as answer:
                text = await answer.text()
            outside = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
            assert outside == set(), path
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
                path
            )
        async with client.get("/") as answer:
            page = await answer.text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|<style", page)


async def test_a_strange_host_name_gets_no_page(serve: Serve) -> None:
    served = await serve()
    async with (
        aiohttp.ClientSession(served.url) as client,
        client.get("/", headers={"Host": "evil.example"}) as answer,
    ):
        assert answer.status == 403
