"""Texts to read aloud, each of which is valid for two minutes and once (trust.md V2).

A text names the day and the company and ends in six random words, so that no recording of yesterday, of
another company or of another text is an answer to it. The words come from ``challenges.toml``: six of 150 are
one of 10^13 choices. A challenge lies in the store, so that any gateway takes the answer, and is taken by the
one that deletes it, so that no two answers share it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import msgspec

from gateway.trust import reading
from sessions.store import Store, Wall, key
from tts_core.errors import BadRequest

VALID_S = 120.0
WORDS = 6
WRONG_WORDS = 1
"""Of an answer that still passes."""
MAX_COMPANY = 60
Pick = Callable[[Sequence[str], int], list[str]]
"""Chooses so many different words."""

_ID = re.compile(r"ch_[0-9a-f]{32}")
_NOBODY = "ch_none"
_COMPANY = re.compile(r"[^\W_]([\w .&'-]*[\w.])?")


class ChallengeGone(BadRequest):
    """No such challenge of this tenant: it was answered, is too old, or never was."""

    code = "challenge_gone"
    status = 410


class Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How consent is spoken in one language; see ``challenges.toml``."""

    text: str
    date: str
    operator: str
    months: tuple[str, ...]
    slight: frozenset[str]
    words: tuple[str, ...]

    def compose(self, day: datetime, chosen: Sequence[str]) -> tuple[str, str]:
        """The text of a challenge before and after the name of the company."""
        date = self.date.format(month=self.months[day.month - 1], day=day.day, year=day.year)
        before, _, after = self.text.format(date=date, company="\0", words=", ".join(chosen)).partition("\0")
        return before, after


@cache
def languages() -> Mapping[str, Language]:
    """By primary tag."""
    raw = files("gateway.trust").joinpath("challenges.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(raw), dict[str, Language])


def language_of(tag: str) -> str:
    """The primary tag under which there are words. Raises BadRequest that names what there is."""
    primary = tag.partition("-")[0].lower()
    if primary not in languages():
        there = ", ".join(sorted(languages()))
        raise BadRequest(
            f"no consent can be spoken in {tag[:35]!r}: there are words in {there}", field="language"
        )
    return primary


class Challenge(msgspec.Struct, frozen=True):
    """A text, in which language it is, and where in it the company is named."""

    text: str
    language: str
    name: tuple[int, int]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the text in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def wrong(self, heard: str) -> int:
        """How many words were read wrong, see :func:`gateway.trust.reading.wrong`."""
        return reading.wrong(
            self.text, heard, name=slice(*self.name), slight=languages()[self.language].slight
        )


@dataclass(frozen=True, slots=True)
class Issued:
    """A challenge as it is given out; ``expires_at`` in Unix seconds."""

    id: str
    challenge: Challenge
    expires_at: float


def pick(words: Sequence[str], count: int) -> list[str]:
    """So many different words, by the system's generator."""
    return secrets.SystemRandom().sample(words, count)


class Challenges:
    """Gives out and takes back.

    Args:
        store: shared by the gateways.
        wall: Unix seconds.
        pick: chooses the words.
    """

    def __init__(self, store: Store, *, wall: Wall = time.time, pick: Pick = pick) -> None:
        self._store = store
        self._wall = wall
        self._pick = pick

    async def issue(self, tenant: str, *, language: str = "en", company: str = "") -> Issued:
        """A new challenge of the tenant, which names ``company`` (else the tenant, as it is called here).

        Raises BadRequest that names the field; StoreError.
        """
        primary = language_of(language)
        told = languages()[primary]
        company = _company(company) or (told.operator if tenant == "default" else _spoken(tenant))
        now = self._wall()
        chosen = self._pick(told.words, WORDS)
        before, after = told.compose(datetime.fromtimestamp(now, UTC), chosen)
        challenge = Challenge(f"{before}{company}{after}", primary, (len(before), len(before) + len(company)))
        issued = Issued(f"ch_{secrets.token_hex(16)}", challenge, now + VALID_S)
        raw = msgspec.msgpack.encode(issued.challenge)
        await self._store.set(_name(tenant, issued.id), raw, VALID_S)
        return issued

    async def look(self, tenant: str, challenge_id: str) -> Challenge:
        """A challenge that is open still, and stays so. Raises ChallengeGone; StoreError."""
        raw = await self._store.get(_name(tenant, challenge_id))
        if raw is None:
            raise ChallengeGone(
                "this challenge was answered, or is older than two minutes", field="challenge"
            )
        return msgspec.msgpack.decode(raw, type=Challenge)

    async def take(self, tenant: str, challenge_id: str) -> Challenge:
        """The same, gone with this call for everybody else. Raises as :meth:`look`."""
        challenge = await self.look(tenant, challenge_id)
        if not await self._store.delete(_name(tenant, challenge_id)):
            raise ChallengeGone("this challenge was answered", field="challenge")
        return challenge


def _name(tenant: str, challenge_id: str) -> str:
    known = _ID.fullmatch(challenge_id) is not None
    return key(tenant, "challenge", challenge_id if known else _NOBODY)


def _company(name: str) -> str:
    """A name that can be read aloud. Raises BadRequest."""
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if name and (len(name) > MAX_COMPANY or not _COMPANY.fullmatch(name)):
        raise BadRequest(
            f"a company's name has up to {MAX_COMPANY} letters, digits, spaces and . & ' -", field="company"
        )
    return name


def _spoken(tenant: str) -> str:
    return " ".join(part.capitalize() for part in re.split(r"[-_]+", tenant) if part)


__all__ = ["VALID_S", "WRONG_WORDS", "Challenge", "ChallengeGone", "Challenges", "Issued", "languages"]
