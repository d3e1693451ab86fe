"""``/v1/consents``: who allowed which use of their voice (trust.md V1, V5).

A record names nobody. What shows the consent (a signed paper, a contract, the words that were agreed to)
stays with the tenant; here is its SHA-256. What is spoken is an answer to a challenge and comes as a form
(:mod:`gateway.trust.verifier`, V2).
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta

from gateway.body import read_body
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.trust.verifier import Verifier
from gateway.voice_api import strict
from gateway.voice_api.upload import read_form
from sessions.consent import ConsentRecord, ConsentTerms, How, Reach
from sessions.principal import Scope
from tts_core.errors import BadRequest

MAX_BODY = 16_384
Word = Annotated[str, Meta(max_length=64)]


class ConsentAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant states; see ``sessions.consent.ConsentTerms``.

    In place of ``evidence`` the ``statement`` itself may be sent that somebody agreed to: it is digested
    (UTF-8, NFC) and not kept.
    """

    subject: Annotated[str, Meta(max_length=128)]
    how: Literal["spoken", "written", "self_voice", "licensed"]
    kind: Literal["session", "permanent"] = "session"
    purposes: Annotated[tuple[Word, ...], Meta(max_length=16)] = ("speech",)
    languages: Annotated[tuple[Word, ...], Meta(max_length=16)] = ("*",)
    until: float | None = None
    evidence: Annotated[str, Meta(max_length=64)] = ""
    statement: Annotated[str, Meta(max_length=4000)] = ""

    def terms(self) -> ConsentTerms:
        """For the book of consents. Raises BadRequest."""
        if bool(self.evidence) == bool(self.statement.strip()):
            raise BadRequest("send evidence, the SHA-256 of a document, or a statement", field="evidence")
        return ConsentTerms(
            subject=self.subject,
            kind=Reach(self.kind),
            purposes=self.purposes,
            languages=self.languages,
            how=How(self.how),
            evidence=self.evidence or digest(self.statement),
            until=self.until,
        )


class ChallengeAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which language, and whom it is to name."""

    language: Annotated[str, Meta(max_length=35)] = "en"
    company: Annotated[str, Meta(max_length=100)] = ""


class SpokenAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is stated besides the answer, in the fields of a form: lists with commas."""

    challenge: Annotated[str, Meta(max_length=64)]
    subject: Annotated[str, Meta(max_length=128)]
    how: Literal["spoken", "self_voice"] = "spoken"
    kind: Literal["session", "permanent"] = "session"
    purposes: Annotated[str, Meta(max_length=1100)] = "speech"
    languages: Annotated[str, Meta(max_length=1100)] = "*"
    until: float | None = None

    def terms(self) -> ConsentTerms:
        """For the verifier, which knows the evidence."""
        return ConsentTerms(
            subject=self.subject,
            kind=Reach(self.kind),
            purposes=_listed(self.purposes),
            languages=_listed(self.languages),
            how=How(self.how),
            evidence="",
            until=self.until,
        )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def digest(statement: str) -> str:
    """SHA-256 (hex) of a statement: of its NFC form without space at its ends, in UTF-8."""
    return hashlib.sha256(unicodedata.normalize("NFC", statement.strip()).encode()).hexdigest()


def shown(record: ConsentRecord) -> dict[str, Any]:
    """A record as it was signed."""
    made: dict[str, Any] = msgspec.to_builtins(record)
    return made


async def create(request: web.Request) -> web.Response:
    """Record a consent: 201. JSON states one; a form has the spoken answer to a challenge."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_ENROL)
    if request.content_type == "multipart/form-data":
        record = await _spoken(request, services, principal.tenant)
    else:
        asked = strict.decode(await read_body(request, MAX_BODY), ConsentAsked)
        record = await services.desk.consents.create(principal.tenant, asked.terms())
    return web.json_response(shown(record), status=201, headers={hdrs.LOCATION: f"/v1/consents/{record.id}"})


async def _spoken(request: web.Request, services: Services, tenant: str) -> ConsentRecord:
    verifier = _verifier(services)
    services.refuse_if_draining()
    with verifier.recogniser.places.one(tenant):
        answer = bytearray()
        asked = await read_form(request, SpokenAsked, answer)
        return await verifier.record(tenant, asked.challenge, answer, asked.terms())


async def challenge(request: web.Request) -> web.Response:
    """A text to be read aloud: 201."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_ENROL)
    asked = strict.decode(await read_body(request, MAX_BODY) or b"{}", ChallengeAsked)
    issued = await _verifier(services).challenge(
        principal.tenant, language=asked.language, company=asked.company
    )
    body = {"id": issued.id, "text": issued.challenge.text, "expires_at": issued.expires_at}
    return web.json_response(body, status=201)


def _verifier(services: Services) -> Verifier:
    if services.verifier is None:
        raise services.desk.consents.unverified(How.SPOKEN)
    return services.verifier


async def listed(request: web.Request) -> web.Response:
    """All consents of the tenant."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_READ)
    records = await services.desk.consents.list(principal.tenant)
    # Many are written at once by msgspec alone: thousands of them must not hold up the audio.
    return web.json_response(body=msgspec.json.encode({"consents": records}))


async def fetch(request: web.Request) -> web.Response:
    """One consent."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_READ)
    record = await services.desk.consents.fetch(principal.tenant, request.match_info["id"])
    return web.json_response(shown(record))


async def revoke(request: web.Request) -> web.Response:
    """End a consent at once; its voices are deleted. Answered with the receipts' ids."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_DELETE)
    record, receipts = await services.desk.consents.revoke(principal.tenant, request.match_info["id"])
    services.metrics.voices_deleted.inc(len(receipts))
    return web.json_response({"consent": shown(record), "receipts": list(receipts)})


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    return [
        web.post("/v1/consents", create),
        web.post("/v1/consents/challenges", challenge),
        web.get("/v1/consents", listed),
        web.get("/v1/consents/{id}", fetch),
        web.delete("/v1/consents/{id}", revoke),
    ]


__all__ = ["digest", "routes"]
