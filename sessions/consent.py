"""Consent as a typed and signed record: who allowed which use of their voice, until when, shown how.

A record names nobody: the subject is an opaque id of the tenant's, the evidence is a digest. It is created
once and changes once, when it is revoked; both are signed with the deployment's key. Rules of trust: a voice
is made and used under the id of a record, never under a free text (V1).
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

from sessions.prefix import CONSENT_ID
from sessions.signing import Signed, Signer
from tts_core.errors import BadRequest

DOMAIN = "voxwire consent 1"
ANY_LANGUAGE = "*"
EARS = "speech recognition and a comparison of speakers"
"""What the verifier is made of."""
MAX_LIST = 16
_SUBJECT = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
_PURPOSE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}|\*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class How(StrEnum):
    """How consent was given."""

    SPOKEN = "spoken"
    """The person read our challenge aloud; needs the verifier (V2, V3)."""
    WRITTEN = "written"
    """A signed paper or form; the evidence is its digest."""
    SELF_VOICE = "self_voice"
    """The caller's own voice, compared with what they say now; needs the verifier (V3)."""
    LICENSED = "licensed"
    """A contract on a voice, synthetic ones included."""


class Reach(StrEnum):
    """What may be made: voices that end with the call, or also permanent ones."""

    SESSION = "session"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class ConsentTerms:
    """What a tenant states.

    ``subject``: opaque id of the person, 1-128 of ``A-Za-z0-9._~:-``, never a name. ``purposes``: words such
    as ``calls``; ``languages``: tags, or ``*``. ``until``: Unix seconds, None for no end. ``evidence``: the
    SHA-256 (hex) of what shows the consent and is kept by the tenant.
    """

    subject: str
    kind: Reach
    purposes: tuple[str, ...]
    languages: tuple[str, ...]
    how: How
    evidence: str
    until: float | None = None


class ConsentRecord(Signed, frozen=True, kw_only=True):
    """The signed form; times in Unix milliseconds."""

    id: str
    tenant: str
    subject: str
    kind: str
    purposes: tuple[str, ...]
    languages: tuple[str, ...]
    how: str
    evidence: str
    at_ms: int
    until_ms: int | None = None
    revoked_at_ms: int | None = None

    def holds(self, now: float) -> bool:
        """Whether it is neither revoked nor over at ``now`` (Unix seconds)."""
        return self.revoked_at_ms is None and (self.until_ms is None or now * 1000 < self.until_ms)

    def covers(self, *, kind: Reach | str, language: str = "", purpose: str | None = None) -> bool:
        """Whether a use is within its terms; consent to permanent voices includes those of a session."""
        if self.kind not in {str(kind), Reach.PERMANENT}:
            return False
        if purpose is not None and purpose not in self.purposes:
            return False
        return not language or any(_speaks(allowed, language) for allowed in self.languages)


def check_terms(terms: ConsentTerms, *, verified: frozenset[How], now: float, missing: str = EARS) -> None:
    """Raises BadRequest that names the field.

    ``verified`` are the ways that this installation can check, ``missing`` is what it lacks for the others.
    """
    for value, pattern, field, rule in (
        (terms.subject, _SUBJECT, "subject", "the subject is an opaque id of letters, digits and ._~:-"),
        (terms.evidence, _DIGEST, "evidence", "the evidence is the SHA-256 of a document, 64 hex digits"),
    ):
        if not pattern.fullmatch(value):
            raise BadRequest(rule, field=field)
    for values, pattern, field, rule in (
        (terms.purposes, _PURPOSE, "purposes", "purposes are one or more words such as calls"),
        (terms.languages, _LANGUAGE, "languages", "languages are one or more tags such as en-US, or *"),
    ):
        if not 0 < len(values) <= MAX_LIST or not all(pattern.fullmatch(v) for v in values):
            raise BadRequest(rule, field=field)
    if terms.until is not None and not now < terms.until < 2**40:
        raise BadRequest("the end must be in the future, in seconds since 1970", field="until")
    if terms.how not in verified:
        raise unverified(terms.how, verified=verified, missing=missing)


def unverified(how: How, *, verified: frozenset[How], missing: str = EARS) -> BadRequest:
    """The refusal of a way of consent that this installation cannot check."""
    return BadRequest(
        f"{how} consent needs the verifier, for which this installation lacks {missing}: "
        f"use {' or '.join(sorted(verified))}",
        field="how",
    )


def new_record(signer: Signer, tenant: str, terms: ConsentTerms, now: float) -> ConsentRecord:
    """A signed record under a new id (128 random bits)."""
    return signer.sign(
        DOMAIN,
        ConsentRecord(
            id=f"cn_{secrets.token_hex(16)}",
            tenant=tenant,
            subject=terms.subject,
            kind=terms.kind.value,
            purposes=terms.purposes,
            languages=terms.languages,
            how=terms.how.value,
            evidence=terms.evidence,
            at_ms=round(now * 1000),
            until_ms=None if terms.until is None else round(terms.until * 1000),
        ),
    )


def is_id(text: str) -> bool:
    """Whether it looks like a consent's id."""
    return CONSENT_ID.fullmatch(text) is not None


def _speaks(allowed: str, language: str) -> bool:
    """A consent for ``en`` covers ``en-US``; one for ``en-US`` covers nothing but itself."""
    if allowed == ANY_LANGUAGE:
        return True
    return language.lower() == allowed.lower() or language.lower().startswith(allowed.lower() + "-")
