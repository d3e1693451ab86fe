"""Browser tokens, most of all the hostile ones."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from sessions.memory_store import MemoryStore
from sessions.principal import Kind, Limits, Principal, Scope
from sessions.redis_store import RedisStore
from sessions.store import Store
from sessions.tokens import BrowserTokens, key_id, signing_key
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock
from tts_core.errors import BadRequest, Forbidden, StoreError, Unauthorised

SEED = b"s" * 32
KID = key_id(signing_key(SEED).public_key())
HOLDER = Principal("acme", "k1", frozenset({Scope.SPEAK, Scope.VOICE_READ}), Limits(contexts=3))
ORIGIN = "https://app.example:8443"


class Keys:
    """A ring with one key."""

    def __init__(self) -> None:
        self.live: Principal | None = HOLDER

    def __call__(self, name: str) -> Principal | None:
        return self.live if name == HOLDER.key_id else None


def _tokens(clock: Clock, store: Store | None = None, **more: Any) -> BrowserTokens:
    more.setdefault("holder", Keys())
    return BrowserTokens(
        SEED, audience="voxwire", store=store or MemoryStore(clock=clock), wall=clock, **more
    )


async def test_a_token_is_its_key_with_less(clock: Clock, store: Store) -> None:
    tokens = _tokens(clock, store)
    p = await tokens.verify(tokens.mint(HOLDER, voice="ada", max_characters=500, origin=ORIGIN), ORIGIN)
    assert p == Principal(
        "acme",
        "k1",
        frozenset({Scope.SPEAK}),
        Limits(contexts=3),
        Kind.TOKEN,
        voice="ada",
        max_characters=500,
        origin=ORIGIN,
    )
    wide = await tokens.verify(tokens.mint(HOLDER, scopes=HOLDER.scopes), None)
    assert wide.scopes == HOLDER.scopes
    assert wide.origin is None


async def test_works_once_over_all_gateways(clock: Clock, store: Store) -> None:
    one, two = _tokens(clock, store), _tokens(clock, store)
    token = one.mint(HOLDER)
    results = await asyncio.gather(*(t.verify(token, None) for t in (one, two) * 5), return_exceptions=True)
    assert sum(isinstance(r, Principal) for r in results) == 1
    assert sum(isinstance(r, Unauthorised) for r in results) == 9


async def test_the_wrong_page_does_not_use_it_up(clock: Clock) -> None:
    tokens = _tokens(clock)
    token = tokens.mint(HOLDER, origin=ORIGIN)
    others = (
        None,
        "",
        "null",
        "https://app.example",
        "http://app.example:8443",
        ORIGIN + "/",
        "https://evil",
    )
    for other in others:
        with pytest.raises(Forbidden):
            await tokens.verify(token, other)
    await tokens.verify(token, ORIGIN)


async def test_expiry_to_the_second(clock: Clock) -> None:
    tokens = _tokens(clock)
    early, late = tokens.mint(HOLDER, ttl=30), tokens.mint(HOLDER, ttl=30)
    clock.move(29.9)
    await tokens.verify(early, None)
    clock.move(0.1)
    with pytest.raises(Unauthorised):
        await tokens.verify(late, None)


def test_minting_never_widens(clock: Clock) -> None:
    tokens = _tokens(clock)
    with pytest.raises(Forbidden):
        tokens.mint(HOLDER, scopes={Scope.SPEAK, Scope.ADMIN})
    with pytest.raises(Forbidden):
        tokens.mint(Principal("acme", "k1", frozenset({Scope.DETECT})))
    with pytest.raises(Forbidden):
        tokens.mint(Principal("acme", "k1", kind=Kind.TOKEN))
    with pytest.raises(Forbidden):
        tokens.mint(Principal("acme", "k1", voice="ada"), voice="bob")
    for ttl in (0, 61, -1, float("nan")):
        with pytest.raises(BadRequest):
            tokens.mint(HOLDER, ttl=ttl)
    with pytest.raises(BadRequest):
        tokens.mint(HOLDER, max_characters=0)


async def test_a_revoked_key_ends_its_tokens(clock: Clock) -> None:
    keys = Keys()
    tokens = _tokens(clock, holder=keys)
    token = tokens.mint(HOLDER)
    keys.live = None
    with pytest.raises(Unauthorised):
        await tokens.verify(token, None)


async def test_a_key_that_lost_a_scope_takes_it_from_its_tokens(clock: Clock) -> None:
    keys = Keys()
    tokens = _tokens(clock, holder=keys)
    token = tokens.mint(HOLDER, scopes=HOLDER.scopes)
    keys.live = Principal("acme", "k1", frozenset({Scope.VOICE_READ}))
    assert (await tokens.verify(token, None)).scopes == {Scope.VOICE_READ}


def _claims(clock: Clock, **changes: Any) -> dict[str, Any]:
    claims: dict[str, Any] = {
        "aud": "voxwire",
        "sub": "k1",
        "tnt": "acme",
        "scp": ["speak"],
        "iat": int(clock.now),
        "exp": int(clock.now) + 60,
        "jti": "j" * 22,
    }
    claims |= changes
    return {k: v for k, v in claims.items() if v is not ...}


def _sign(claims: dict[str, Any], seed: bytes = SEED, **header: Any) -> str:
    return jwt.encode(claims, signing_key(seed), algorithm="EdDSA", headers={"kid": KID, **header})


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _raw(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    return ".".join((_b64(json.dumps(header).encode()), _b64(json.dumps(claims).encode()), _b64(signature)))


def _public_bytes() -> list[bytes]:
    public = signing_key(SEED).public_key()
    return [
        public.public_bytes_raw(),
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
    ]


def _hmac(claims: dict[str, Any], secret: bytes) -> str:
    """HS256 signed with our public key as the secret, by hand: libraries refuse to make such a thing."""
    import hmac

    head = _raw({"alg": "HS256", "typ": "JWT", "kid": KID}, claims).rsplit(".", 1)[0]
    return f"{head}.{_b64(hmac.digest(secret, head.encode(), 'sha256'))}"


def _swap_claims(token: str, claims: dict[str, Any]) -> str:
    head, _, signature = token.split(".")
    return f"{head}.{_b64(json.dumps(claims).encode())}.{signature}"


Forge = Callable[[Clock], str]
HOSTILE: dict[str, Forge] = {
    "alg none": lambda c: _raw({"alg": "none", "kid": KID}, _claims(c)),
    "alg None with our signature": lambda c: _raw({"alg": "None", "kid": KID}, _claims(c), b"x" * 64),
    "alg missing": lambda c: _raw({"kid": KID}, _claims(c), b"x" * 64),
    "alg a list": lambda c: _raw({"alg": ["EdDSA"], "kid": KID}, _claims(c), b"x" * 64),
    "signature stripped": lambda c: _sign(_claims(c)).rsplit(".", 1)[0] + ".",
    "HS256 with the raw public key": lambda c: _hmac(_claims(c), _public_bytes()[0]),
    "HS256 with the PEM public key": lambda c: _hmac(_claims(c), _public_bytes()[1]),
    "HS256 with the DER public key": lambda c: _hmac(_claims(c), _public_bytes()[2]),
    "ES256": lambda c: jwt.encode(
        _claims(c), ec.generate_private_key(ec.SECP256R1()), algorithm="ES256", headers={"kid": KID}
    ),
    "Ed448 under the same name": lambda c: jwt.encode(
        _claims(c), Ed448PrivateKey.generate(), algorithm="EdDSA", headers={"kid": KID}
    ),
    "another Ed25519 key under our kid": lambda c: _sign(_claims(c), seed=b"t" * 32),
    "unknown kid": lambda c: _sign(_claims(c), kid="0" * 16),
    "kid a path": lambda c: _sign(_claims(c), kid="../../dev/null"),
    "no kid": lambda c: jwt.encode(_claims(c), signing_key(SEED), algorithm="EdDSA"),
    "key in the header": lambda c: _sign(
        _claims(c), seed=b"t" * 32, jwk={"kty": "OKP", "crv": "Ed25519", "x": _b64(b"t" * 32)}
    ),
    "critical extension": lambda c: _sign(_claims(c), crit=["b64"], b64=False),
    "widened after signing": lambda c: _swap_claims(_sign(_claims(c)), _claims(c, scp=["speak", "admin"])),
    "tenant changed after signing": lambda c: _swap_claims(_sign(_claims(c)), _claims(c, tnt="other")),
    "expired": lambda c: _sign(_claims(c, iat=int(c.now) - 60, exp=int(c.now))),
    "lives too long": lambda c: _sign(_claims(c, exp=int(c.now) + 61)),
    "from the future": lambda c: _sign(_claims(c, iat=int(c.now) + 30)),
    "exp true": lambda c: _sign(_claims(c, exp=True)),
    "exp infinite": lambda c: _sign(_claims(c, exp=float("inf"))),
    "exp text": lambda c: _sign(_claims(c, exp=str(int(c.now) + 30))),
    "wrong audience": lambda c: _sign(_claims(c, aud="elsewhere")),
    "audience list": lambda c: _sign(_claims(c, aud=["voxwire", "elsewhere"])),
    "tenant of another key": lambda c: _sign(_claims(c, tnt="other")),
    "unknown key": lambda c: _sign(_claims(c, sub="k2")),
    "scopes a text": lambda c: _sign(_claims(c, scp="speak admin")),
    "scopes not texts": lambda c: _sign(_claims(c, scp=[["speak"]])),
    "characters negative": lambda c: _sign(_claims(c, chr=-1)),
    "characters true": lambda c: _sign(_claims(c, chr=True)),
    "voice a list": lambda c: _sign(_claims(c, vce=["ada"])),
    "id empty": lambda c: _sign(_claims(c, jti="")),
    "too large": lambda c: _sign(_claims(c, pad="x" * 4096)),
    "not a token": lambda c: "vx_0123456789ab_secret",
    "empty": lambda c: "",
    "dots": lambda c: "..",
    "not ASCII": lambda c: "é.é.é",
    "lone surrogate": lambda c: "\ud800.a.b",
    "nested without end": lambda c: _b64(b"[" * 3000) + ".e30.eA",
    "a JSON array": lambda c: _b64(b"[]") + "." + _b64(b"[]") + "." + _b64(b"x"),
}
for _name in ("exp", "iat", "jti", "aud", "sub", "tnt", "scp"):
    HOSTILE[f"without {_name}"] = lambda c, n=_name: _sign(_claims(c, **{n: ...}))  # type: ignore[misc]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile(name: str, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = _tokens(clock)
    token = HOSTILE[name](clock)
    with pytest.raises(Unauthorised) as caught:
        await tokens.verify(token, ORIGIN)
    assert type(caught.value) is Unauthorised
    assert caught.value.message == "the token is wrong, expired or used"
    assert caught.value.__cause__ is None
    assert not token or token not in caplog.text


async def test_the_table_is_hostile_for_its_stated_reason_only(clock: Clock) -> None:
    """The base that the table bends is accepted."""
    assert (await _tokens(clock).verify(_sign(_claims(clock)), ORIGIN)).tenant == "acme"


async def test_signed_scopes_beyond_the_key_give_nothing(clock: Clock) -> None:
    """Even our own signature cannot make a token wider than its key."""
    token = _sign(_claims(clock, scp=["speak", "admin", "call:out", "no such scope"]))
    assert (await _tokens(clock).verify(token, None)).scopes == {Scope.SPEAK}


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda b: f"{_b64(b)}.{_b64(b)}.{_b64(b)}"))
async def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(Unauthorised):
        await _tokens(Clock()).verify(token, None)


@given(st.integers(0, 10_000), st.integers(0, 7))
async def test_any_flipped_bit_is_refused_or_means_the_same(at: int, bit: int) -> None:
    clock = Clock()
    tokens = _tokens(clock)
    good = _sign(_claims(clock))
    raw = bytearray(good.encode())
    raw[at % len(raw)] ^= 1 << bit
    try:
        p = await tokens.verify(raw.decode("latin-1"), None)
    except Unauthorised:
        return
    # Base64 has unused bits at the end of each part: those may differ.
    assert (p.tenant, p.key_id, p.scopes) == ("acme", "k1", frozenset({Scope.SPEAK}))


async def test_a_replaced_secret_is_accepted_for_a_while(clock: Clock) -> None:
    former = signing_key(b"o" * 32)
    token = jwt.encode(
        _claims(clock), former, algorithm="EdDSA", headers={"kid": key_id(former.public_key())}
    )
    with pytest.raises(Unauthorised):
        await _tokens(clock).verify(token, None)
    await _tokens(clock, former=[former.public_key()]).verify(token, None)


async def test_store_away(own_redis: RedisServer, clock: Clock) -> None:
    """Calls go on, each gateway remembering for itself; or not, if told so."""
    store = RedisStore(own_redis.url)
    own_redis.kill()
    tokens, strict = _tokens(clock, store), _tokens(clock, store, strict=True)
    token = tokens.mint(HOLDER)
    await tokens.verify(token, None)
    with pytest.raises(Unauthorised):
        await tokens.verify(token, None)
    with pytest.raises(StoreError):
        await strict.verify(tokens.mint(HOLDER), None)
    await store.close()


async def test_a_flood_of_good_tokens_never_makes_one_work_twice(clock: Clock) -> None:
    tokens = _tokens(clock)
    tokens._used = MemoryStore(clock=clock, max_entries=2)
    minted = [tokens.mint(HOLDER) for _ in range(3)]
    results = await asyncio.gather(*(tokens.verify(t, None) for t in minted * 2), return_exceptions=True)
    assert sum(isinstance(r, Principal) for r in results) == 2
    clock.move(66)
    await tokens.verify(tokens.mint(HOLDER), None)
