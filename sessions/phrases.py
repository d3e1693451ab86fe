"""The cache of spoken phrases: a greeting costs nothing the second time.

Only for keys or tenants that ask for it, and by tenant alone: the name of a phrase is an HMAC under the
tenant's own key, so that nobody learns from a name, a hit or a time what another tenant has said. What is
kept is what the engine made (PCM at its own rate and word marks), so that every output format profits.
The cache never fails a call: a store that is slow or away, or a damaged value, is a miss.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sessions.principal import Principal
from sessions.secret import DeploymentSecret
from sessions.store import Clock, Store, Unsubscribe, key
from tts_core.engine import EngineInfo, SpeechChunk, SpeechRequest, WordMark
from tts_core.errors import StoreError

log = logging.getLogger(__name__)

MAGIC = b"VXP1"
MAX_PHRASE_BYTES = 1 << 20
"""About 21 s at 24 kHz; longer speech is rarely said twice."""
CHANNEL = key("", "phrases", "cleared")
_HEAD = struct.Struct("<4sIII")
_CHECK = 16


@dataclass(frozen=True, slots=True)
class Phrase:
    """Spoken text: ``pcm`` int16 ``[n]`` mono at ``rate`` Hz; ``words`` in samples of it."""

    pcm: npt.NDArray[np.int16]
    rate: int
    words: tuple[WordMark, ...] = ()


@dataclass(frozen=True, slots=True)
class PhraseKey:
    """Names one phrase of one tenant; tells nothing about its text.

    ``voice`` is the id of the tenant's own voice that speaks it, "" for a built-in one.
    """

    tenant: str
    name: str
    voice: str = ""


def pack(phrase: Phrase, name: str) -> bytes:
    """One value: ``VXP1``, rate, samples, words, four numbers a word, samples, checksum; little-endian.

    The checksum (BLAKE2b-128) also covers ``name``, so that a value under another name is damage.
    """
    numbers = np.array(
        [(w.text_start, w.text_end, w.sample_start, w.sample_end) for w in phrase.words], dtype=np.int64
    )
    body = b"".join(
        (
            _HEAD.pack(MAGIC, phrase.rate, len(phrase.pcm), len(phrase.words)),
            numbers.clip(0, 0xFFFF_FFFF).astype("<u4").tobytes(),
            phrase.pcm.astype("<i2", copy=False).tobytes(),
        )
    )
    return body + _checksum(body, name)


def unpack(data: bytes, name: str) -> Phrase | None:
    """The phrase, or None if anything about the value is wrong."""
    if not _HEAD.size + _CHECK <= len(data) <= MAX_PHRASE_BYTES:
        return None
    body, check = data[:-_CHECK], data[-_CHECK:]
    if not hmac.compare_digest(check, _checksum(body, name)):
        return None
    magic, rate, samples, words = _HEAD.unpack_from(body)
    if magic != MAGIC or len(body) != _HEAD.size + 16 * words + 2 * samples:
        return None
    numbers = np.frombuffer(body, "<u4", 4 * words, _HEAD.size).reshape(words, 4).tolist()
    pcm = np.frombuffer(body, "<i2", samples, _HEAD.size + 16 * words).astype(np.int16)
    return Phrase(pcm, rate, tuple(WordMark(*n) for n in numbers))


def _checksum(body: bytes, name: str) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK, key=name.encode()[:64]).digest()


class PhraseCache:
    """Spoken phrases of all tenants.

    Args:
        store: shared by the gateways.
        secret: of the deployment.
        max_bytes: for each tenant, and each voice of its own, in the store; the least recently used go first.
        ttl: seconds a phrase is kept from the time it was made, used or not.
        front_bytes: kept in this process besides, over all tenants.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        ttl: float = 86_400.0,
        front_bytes: int = 16 * 1024 * 1024,
        clock: Clock = time.monotonic,
    ) -> None:
        self._store = store
        self._secret = secret
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._front_bytes = front_bytes
        self._clock = clock
        self._front: OrderedDict[PhraseKey, tuple[bytes, float]] = OrderedDict()
        self._front_size = 0
        self._tenant_keys: OrderedDict[str, bytes] = OrderedDict()
        self._unsubscribe: Unsubscribe | None = None
        self.hits = 0
        self.misses = 0
        self.damaged = 0
        self.failures = 0
        """Times that the store was too slow or away."""

    async def start(self) -> None:
        """Listen for tenants cleared by other gateways."""
        if self._unsubscribe is None:
            self._unsubscribe = await self._store.subscribe(
                CHANNEL, lambda tenant: self._forget(tenant.decode("utf-8", "surrogatepass"))
            )

    async def close(self) -> None:
        """Stop listening and forget what is kept here."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._front.clear()
        self._front_size = 0

    def key(
        self,
        principal: Principal,
        *,
        revision: str,
        voice: str,
        speed: float,
        text: str,
        form: str = "pcm_s16",
        own: bool = False,
    ) -> PhraseKey | None:
        """The phrase's name, or None if this caller did not ask for a cache.

        ``revision`` of the engine (name and revision), ``text`` as given to the engine, ``form`` for whatever
        else changes the audio. ``own``: the voice is one of the tenant's own, whose phrases go with it.
        """
        if not principal.phrase_cache:
            return None
        parts = (revision, voice, repr(float(speed)), text, form)
        message = b"".join(
            len(p).to_bytes(4, "big") + p for p in (x.encode("utf-8", "surrogatepass") for x in parts)
        )
        name = hmac.digest(self._tenant_key(principal.tenant), message, "sha256").hex()
        return PhraseKey(principal.tenant, name, voice if own else "")

    async def get(self, phrase_key: PhraseKey | None) -> Phrase | None:
        """The phrase, or None. Never raises, and takes at most the store's cache deadline."""
        if phrase_key is None:
            return None
        data = self._front_get(phrase_key)
        fetched = data is None
        if data is None:
            try:
                data = await self._store.cache_get(_cache(phrase_key), phrase_key.name)
            except StoreError:
                self.failures += 1
        phrase = None
        if data is not None:
            phrase = unpack(data, phrase_key.name)
            if phrase is None:
                self.damaged += 1
                log.warning("a cached phrase was damaged")
            elif fetched:
                # How long it still lives in the store is not known here: a front copy is short-lived.
                self._front_put(phrase_key, data, min(self._ttl, 60.0))
        if phrase is None:
            self.misses += 1
        else:
            self.hits += 1
        return phrase

    async def put(self, phrase_key: PhraseKey | None, phrase: Phrase) -> bool:
        """Keep a phrase; False if it was not kept in the store. Never raises."""
        if phrase_key is None or not len(phrase.pcm):
            return False
        data = pack(phrase, phrase_key.name)
        if len(data) > min(MAX_PHRASE_BYTES, self._max_bytes):
            return False
        self._front_put(phrase_key, data, min(self._ttl, 60.0))
        try:
            await self._store.cache_put(_cache(phrase_key), phrase_key.name, data, self._ttl, self._max_bytes)
        except StoreError:
            self.failures += 1
            return False
        return True

    async def clear(self, tenant: str) -> int:
        """Drop a tenant's phrases by built-in voices, on every gateway; how many the store had.

        Raises StoreError.
        """
        self._forget(tenant)
        removed = await self._store.cache_clear(_cache(PhraseKey(tenant, "")))
        await self._store.publish(CHANNEL, tenant.encode("utf-8", "surrogatepass"))
        return removed

    async def clear_voice(self, tenant: str, voice: str) -> int:
        """Drop what one of the tenant's own voices has spoken, from the store and here; how many were here.

        Each gateway does it for itself when it hears that the voice was deleted. Raises StoreError.
        """
        here = [k for k in self._front if k.tenant == tenant and k.voice == voice]
        for phrase_key in here:
            self._front_drop(phrase_key)
        await self._store.cache_clear(_cache(PhraseKey(tenant, "", voice)))
        return len(here)

    def of(self, principal: Principal, info: EngineInfo) -> SpokenPhrases | None:
        """The cache for one caller and engine in the engine's own terms; None if the caller has none."""
        return SpokenPhrases(self, principal, info) if principal.phrase_cache else None

    # Inside

    def _tenant_key(self, tenant: str) -> bytes:
        found = self._tenant_keys.get(tenant)
        if found is None:
            found = self._tenant_keys[tenant] = self._secret.derive("phrases", tenant)
            if len(self._tenant_keys) > 1024:
                self._tenant_keys.popitem(last=False)
        return found

    def _front_get(self, phrase_key: PhraseKey) -> bytes | None:
        entry = self._front.get(phrase_key)
        if entry is None:
            return None
        data, until = entry
        if until <= self._clock():
            self._front_drop(phrase_key)
            return None
        self._front.move_to_end(phrase_key)
        return data

    def _front_put(self, phrase_key: PhraseKey, data: bytes, ttl: float) -> None:
        self._front_drop(phrase_key)
        if len(data) > self._front_bytes:
            return
        self._front[phrase_key] = (data, self._clock() + ttl)
        self._front_size += len(data)
        while self._front_size > self._front_bytes:
            self._front_drop(next(iter(self._front)))

    def _front_drop(self, phrase_key: PhraseKey) -> None:
        entry = self._front.pop(phrase_key, None)
        if entry is not None:
            self._front_size -= len(entry[0])

    def _forget(self, tenant: str) -> None:
        for phrase_key in [k for k in self._front if k.tenant == tenant and not k.voice]:
            self._front_drop(phrase_key)


class SpokenPhrases:
    """One caller's phrases as the runner of a context sees them: requests in, chunks out.

    A request with a seed, conditioning bytes of its own, or a previous segment that colours its prosody is
    cached under all of these, too.
    """

    def __init__(self, cache: PhraseCache, principal: Principal, info: EngineInfo) -> None:
        self._cache = cache
        self._principal = principal
        self._info = info

    async def get(self, request: SpeechRequest) -> tuple[SpeechChunk, ...] | None:
        """The request's audio as one last chunk, or None. Never raises."""
        phrase = await self._cache.get(self._key(request))
        if phrase is None or phrase.rate != self._info.native_rate:
            return None
        return (SpeechChunk(phrase.pcm.astype(np.float32) / 32768.0, 0, phrase.words, last=True),)

    async def put(self, request: SpeechRequest, chunks: tuple[SpeechChunk, ...]) -> None:
        """Keep what an engine made, if it made it to the end. Never raises."""
        if not chunks or not chunks[-1].last or 2 * sum(len(c.pcm) for c in chunks) > MAX_PHRASE_BYTES:
            return  # a minute of speech is not converted on the event loop only to be refused
        pcm = np.concatenate([c.pcm for c in chunks])
        whole = np.clip(np.rint(pcm * 32768.0), -32768, 32767).astype(np.int16)
        words = tuple(w for c in chunks for w in c.words)
        await self._cache.put(self._key(request), Phrase(whole, self._info.native_rate, words))

    def _key(self, request: SpeechRequest) -> PhraseKey | None:
        conditioning = hashlib.sha256(request.conditioning).hexdigest() if request.conditioning else ""
        return self._cache.key(
            self._principal,
            revision=f"{self._info.name} {self._info.revision} {self._info.native_rate}",
            voice=request.voice,
            speed=request.speed,
            text=request.text,
            form=repr((request.seed, conditioning, request.continues)),
            own=request.conditioning is not None,
        )


def _cache(phrase_key: PhraseKey) -> str:
    parts = (phrase_key.voice,) if phrase_key.voice else ()
    return key(phrase_key.tenant, "phrases", *parts)
