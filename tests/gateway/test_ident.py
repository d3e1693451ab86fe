"""Every request has an id of its own, and an answer that tells it."""

from __future__ import annotations

import aiohttp
from aiohttp.test_utils import make_mocked_request

from gateway.ident import REQUEST_ID, request_id
from tests.peers.gateway import Running


def test_a_request_has_none_before_it_is_given_one() -> None:
    request = make_mocked_request("GET", "/")
    assert request_id(request) == ""
    request[REQUEST_ID] = "a1"
    assert request_id(request) == "a1"


async def test_answers_tell_different_ids(gateway: Running) -> None:
    seen = set()
    async with aiohttp.ClientSession() as http:
        for _ in range(3):
            async with http.get(gateway.url + "/v1/nothing") as response:
                ident = response.headers["X-Request-Id"]
                assert (await response.json())["error"]["request_id"] == ident
                seen.add(ident)
    assert len(seen) == 3
    assert all(seen)
