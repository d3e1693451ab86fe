"""Who is calling, what they may do and how much of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tts_core.errors import BadRequest, Forbidden


class Scope(StrEnum):
    """What a key may do; nothing implies anything else."""

    SPEAK = "speak"
    VOICE_READ = "voice:read"
    VOICE_ENROL = "voice:enrol"
    VOICE_DELETE = "voice:delete"
    CALL = "call"
    """Attach to incoming calls as their agent."""
    CALL_OUT = "call:out"
    DETECT = "detect"
    ADMIN = "admin"


DEFAULT_SCOPES = frozenset({Scope.SPEAK})


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Scopes by name. Raises BadRequest that names the accepted ones."""
    try:
        return frozenset(Scope(n) for n in names)
    except ValueError:
        raise BadRequest(f"scopes are {', '.join(Scope)}", field="scopes") from None


class Kind(StrEnum):
    """How the caller proved who they are."""

    KEY = "key"
    CONFIGURED = "configured"
    LOCAL = "local"
    TOKEN = "token"  # noqa: S105 - a kind, not a token


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key or a tenant may use; None is no limit.

    ``contexts``: contexts that generate at the same time. The others are per minute.
    """

    contexts: int | None = None
    requests_per_minute: int | None = None
    characters_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    ``limits`` are the key's, ``tenant_limits`` those that all keys of the tenant share. ``phrase_cache``:
    whether spoken phrases may be kept. ``voice``, ``max_characters`` and ``origin`` narrow a browser token to
    one voice, that many characters over the whole session, and one page origin.
    """

    tenant: str
    key_id: str
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    limits: Limits = field(default_factory=Limits)
    kind: Kind = Kind.KEY
    tenant_limits: Limits = field(default_factory=Limits)
    phrase_cache: bool = False
    voice: str | None = None
    max_characters: int | None = None
    origin: str | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the scope was granted."""
        return scope in self.scopes

    def require(self, scope: Scope) -> None:
        """Raises Forbidden without the scope."""
        if scope not in self.scopes:
            raise Forbidden(f"this key lacks the scope {scope}")

    def require_voice(self, voice: str) -> None:
        """Raises Forbidden if the caller is bound to another voice."""
        if self.voice is not None and voice != self.voice:
            raise Forbidden("this token is for another voice", field="voice")

    def narrow(
        self,
        *,
        scopes: Iterable[Scope] | None = None,
        voice: str | None = None,
        max_characters: int | None = None,
        origin: str | None = None,
    ) -> Principal:
        """The same caller with less; what was already narrowed stays so, whatever is asked."""
        characters = [c for c in (self.max_characters, max_characters) if c is not None]
        return replace(
            self,
            scopes=self.scopes if scopes is None else self.scopes & frozenset(scopes),
            voice=self.voice if self.voice is not None else voice,
            max_characters=min(characters) if characters else None,
            origin=self.origin if self.origin is not None else origin,
        )
