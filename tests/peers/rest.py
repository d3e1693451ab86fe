"""A client of the voice routes, over HTTP as anybody's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from tests.peers.clips import clip

Answer = dict[str, Any]


class Refused(Exception):
    """An answer that was no success: its status and our error."""

    def __init__(self, status: int, error: Answer) -> None:
        super().__init__(status, error)
        self.status = status
        self.code = error["code"]
        self.field = error["field"]
        self.message = error["message"]


class VoiceClient:
    """One caller with one key."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str) -> None:
        self._http, self._url = http, url.rstrip("/")
        self._headers = {"X-API-Key": key} if key else {}
        self.status = 0

    async def ask(self, method: str, path: str, **how: Any) -> Answer:
        """One request; Refused for an error, which must have our shape and nothing else."""
        async with self._http.request(
            method, self._url + path, headers=self._headers | how.pop("headers", {}), **how
        ) as response:
            answer: Answer = await response.json()
            self.status = response.status
        if self.status >= 400:
            assert set(answer) == {"error"}
            assert set(answer["error"]) == {"code", "message", "field", "retry_after", "request_id"}
            raise Refused(self.status, answer["error"])
        return answer

    async def consent(self, **terms: Any) -> str:
        """The id of a new consent."""
        asked = {"subject": "p-17", "how": "written", "kind": "permanent", "evidence": "ab" * 32} | terms
        return str((await self.ask("POST", "/v1/consents", json=asked))["id"])

    async def spoken(self, challenge: str, answer: bytes, **fields: str) -> Answer:
        """The record of a consent that was read aloud."""
        form = aiohttp.FormData(default_to_multipart=True)
        for name, value in (
            {"challenge": challenge, "subject": "p-17", "kind": "permanent"} | fields
        ).items():
            form.add_field(name, value)
        form.add_field("file", answer, filename="answer.wav")
        return await self.ask("POST", "/v1/consents", data=form)

    async def enrol(self, data: bytes | None = None, *, consent: str | None = None, **fields: str) -> Answer:
        """A new voice from a clip."""
        form = aiohttp.FormData(default_to_multipart=True)
        for name, value in ({"consent": consent or await self.consent()} | fields).items():
            form.add_field(name, value)
        form.add_field("file", clip() if data is None else data, filename="clip.wav")
        return await self.ask("POST", "/v1/voices", data=form)

    async def delete(self, voice: str, query: str = "") -> Answer:
        """The answer to a deletion."""
        return await self.ask("DELETE", f"/v1/voices/{voice}{query}")

    async def listed(self, query: str = "") -> dict[str, Answer]:
        """The tenant's own voices by id."""
        found = (await self.ask("GET", f"/v1/voices{query}"))["voices"]
        return {v["id"]: v for v in found if v["kind"] != "built_in"}


@contextlib.asynccontextmanager
async def voice_client(url: str, key: str) -> AsyncIterator[VoiceClient]:
    """A client; its connections are closed at the end."""
    async with aiohttp.ClientSession() as http:
        yield VoiceClient(http, url, key)
