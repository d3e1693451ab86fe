"""Browser tokens: what a page may hold instead of a key.

A server that has a key mints one for each connection of its pages: an Ed25519 JWT (RFC 7519, RFC 8037) that
lives a minute at most, works once, and can do no more than the key. One algorithm is accepted, whatever the
token's header says (RFC 8725, 3.1).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sessions.memory_store import MemoryStore
from sessions.principal import Kind, Principal, Scope
from sessions.store import Store, Wall, key
from tts_core.errors import BadRequest, Forbidden, StoreError, Unauthorised

log = logging.getLogger(__name__)

ALGORITHM = "EdDSA"
MAX_LIFE_S = 60
MAX_SKEW_S = 5
MAX_BYTES = 4096
_REQUIRED = ["exp", "iat", "jti", "aud", "sub", "tnt", "scp"]
_BAD = "the token is wrong, expired or used"


def signing_key(seed: bytes) -> Ed25519PrivateKey:
    """The signing key for 32 bytes of :meth:`sessions.secret.DeploymentSecret.derive`."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def key_id(public: Ed25519PublicKey) -> str:
    """The ``kid``: 16 hex digits of the public key's SHA-256."""
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]


class BrowserTokens:
    """Mints and verifies.

    Args:
        seed: 32 secret bytes, the same on every gateway.
        audience: names this deployment; a token for another one is refused.
        store: where used tokens are remembered for all gateways. While it is away each gateway still
            remembers its own, so that calls go on; ``strict`` refuses tokens then (StoreError) instead.
        holder: the live principal of a key id (:meth:`sessions.keys.KeyRing.principal`), so that a revoked
            key ends its tokens and limits are those of now.
        wall: Unix seconds.
        former: public keys of earlier seeds that are still accepted, while a secret is being replaced.
    """

    def __init__(
        self,
        seed: bytes,
        *,
        audience: str,
        store: Store,
        holder: Callable[[str], Principal | None],
        wall: Wall = time.time,
        strict: bool = False,
        former: Iterable[Ed25519PublicKey] = (),
    ) -> None:
        self._private = signing_key(seed)
        public = self._private.public_key()
        self._kid = key_id(public)
        self._keys = {key_id(p): p for p in (public, *former)}
        self._audience = audience
        self._store = store
        self._holder = holder
        self._wall = wall
        self._strict = strict
        self._used = MemoryStore(clock=wall, max_bytes=16 * 1024 * 1024)

    def mint(
        self,
        principal: Principal,
        *,
        scopes: Iterable[Scope] | None = None,
        voice: str | None = None,
        max_characters: int | None = None,
        origin: str | None = None,
        ttl: float = MAX_LIFE_S,
    ) -> str:
        """A token with at most what ``principal`` has; ``ttl`` (1 to 60 s) is the time to connect.

        ``scopes`` defaults to ``speak``. ``origin`` is the page's exact origin (``https://host[:port]``).
        Raises Forbidden for more than the key has or if it is asked with a token; BadRequest for a bad ttl.
        """
        if principal.kind is Kind.TOKEN:
            raise Forbidden("a token cannot make tokens")
        if not 1 <= ttl <= MAX_LIFE_S:
            raise BadRequest(f"a token lives 1 to {MAX_LIFE_S} seconds", field="ttl")
        if max_characters is not None and max_characters < 1:
            raise BadRequest("max_characters must be at least 1", field="max_characters")
        wanted = frozenset({Scope.SPEAK} if scopes is None else scopes)
        if not wanted <= principal.scopes:
            raise Forbidden("a token cannot do more than its key", field="scopes")
        if voice is not None:
            principal.require_voice(voice)
        now = int(self._wall())
        claims: dict[str, Any] = {
            "aud": self._audience,
            "sub": principal.key_id,
            "tnt": principal.tenant,
            "scp": sorted(wanted),
            "iat": now,
            "exp": now + int(ttl),
            "jti": secrets.token_urlsafe(16),
        }
        narrowing = {"vce": voice, "chr": max_characters, "org": origin}
        claims |= {k: v for k, v in narrowing.items() if v is not None}
        return jwt.encode(claims, self._private, algorithm=ALGORITHM, headers={"kid": self._kid})

    async def verify(self, token: str, origin: str | None) -> Principal:
        """The caller who connects with this token from a page of ``origin`` (None: no Origin header).

        The token is used up, unless it is refused before that. Raises Unauthorised, in the same words for
        every fault; Forbidden for a page of another origin; StoreError only if ``strict``.
        """
        claims = self._claims(token)
        holder = self._holder(claims["sub"])
        if holder is None or holder.tenant != claims["tnt"]:
            raise Unauthorised(_BAD)
        bound = claims.get("org")
        if bound is not None and bound != origin:
            raise Forbidden("this token is for another origin")
        if not await self._first_use(claims["tnt"], claims["jti"], claims["exp"] - self._wall()):
            raise Unauthorised(_BAD)
        narrowed = holder.narrow(
            scopes=(Scope(s) for s in claims["scp"] if s in set(Scope)),
            voice=claims.get("vce"),
            max_characters=claims.get("chr"),
            origin=bound,
        )
        return Principal(
            tenant=narrowed.tenant,
            key_id=narrowed.key_id,
            scopes=narrowed.scopes,
            limits=narrowed.limits,
            kind=Kind.TOKEN,
            tenant_limits=narrowed.tenant_limits,
            phrase_cache=narrowed.phrase_cache,
            voice=narrowed.voice,
            max_characters=narrowed.max_characters,
            origin=narrowed.origin,
        )

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_BYTES:
            raise Unauthorised(_BAD)
        try:
            header = jwt.get_unverified_header(token)
            public = self._keys[header["kid"]]
            claims = jwt.decode(
                token,
                public,
                algorithms=[ALGORITHM],
                audience=self._audience,
                # Times are checked below, against our own clock.
                options={
                    "require": _REQUIRED,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "strict_aud": True,
                },
            )
        except (jwt.PyJWTError, KeyError, TypeError, ValueError, RecursionError):
            # Not chained: the library's text may hold parts of the token.
            raise Unauthorised(_BAD) from None
        if not self._sound(claims):
            raise Unauthorised(_BAD)
        return claims

    def _sound(self, claims: dict[str, Any]) -> bool:
        """Types and times; signed by us is no reason to skip them."""
        issued, expires = claims["iat"], claims["exp"]
        if type(issued) is not int or type(expires) is not int:
            return False
        now = self._wall()
        characters = claims.get("chr")
        return (
            issued <= now + MAX_SKEW_S
            and now < expires <= issued + MAX_LIFE_S
            and all(isinstance(claims[c], str) and claims[c] for c in ("jti", "sub", "tnt"))
            and all(isinstance(claims.get(c, ""), str) for c in ("vce", "org"))
            and (characters is None or (type(characters) is int and characters > 0))
            and isinstance(claims["scp"], list)
            and all(isinstance(s, str) for s in claims["scp"])
        )

    async def _first_use(self, tenant: str, token_id: str, left: float) -> bool:
        name = key(tenant, "token", token_id)
        try:
            here = await self._used.set_if_absent(name, b"", left + MAX_SKEW_S)
        except StoreError:  # a flood of good tokens: better to refuse one than to take one twice
            return False
        try:
            return here and await self._store.set_if_absent(name, b"", left + MAX_SKEW_S)
        except StoreError:
            if self._strict:
                raise
            log.warning("token uses are remembered by this gateway alone")
            return here
