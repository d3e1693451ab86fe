"""Puts a gateway's parts together, starts them and stops them: the only place that knows all constructors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.calls import CallHub
from gateway.engine import make_engine
from gateway.holds import VoiceHolds
from gateway.security import Guard
from gateway.services import Services
from gateway.settings import Settings
from gateway.speaking import Speaking
from gateway.stores import open_lasting, open_stores
from gateway.trust.check import Inspector
from gateway.trust.ears import open_ears
from gateway.trust.marks import MarkCheck, Marking
from gateway.trust.perth import PerthCheck
from gateway.voice_api.cloning import Cloning
from gateway.wyoming.server import WyomingServer
from sessions.denied import DenyList
from sessions.keys import KeyRing
from sessions.limits import ContextGate, RateLimiter
from sessions.phrases import PhraseCache
from sessions.principal import Principal
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.tokens import BrowserTokens
from sessions.voice_desk import VoiceDesk
from sessions.voice_limits import VoiceLimits
from telephony.wheel import TimerWheel
from tts_core.engine import Engine, Keeper, Observed
from tts_core.errors import SettingsError, StoreError
from tts_core.scheduler import Scheduler
from tts_core.text.normaliser import Normaliser

SAMPLE_S = 0.5
"""How often the lead of every listener is looked at."""

NOTE_AGAIN_S = 5.0
"""Between attempts to write a row while the store is away."""

_log = logging.getLogger(__name__)


def build(
    settings: Settings, *, engine: Engine | None = None, clock: Callable[[], float] = time.monotonic
) -> Services:
    """Make the container with what needs no start. Raises SettingsError."""
    engine = engine or make_engine(settings)
    services = Services(settings=settings, engine=engine, clock=clock)
    services.speaking = Speaking(services)
    services.calls = CallHub(services)
    services.holds = VoiceHolds(services)
    services.cloning = Cloning(services)
    services.inspector = Inspector()
    services.wheel = TimerWheel(clock, on_lateness=lambda late, _: services.metrics.lateness.observe(late))
    services.scheduler = Scheduler(engine, clock, settings.max_contexts or None)
    services.normaliser = Normaliser()
    return services


async def start(services: Services) -> None:
    """Start everything but the engine. Undone by ``close``, also after a failure half way.

    Raises SettingsError for a data folder that cannot be used, for a bind beyond this machine without a key,
    for a port that is taken, and for a Redis that must not hold voices. A store that is away is no error:
    what needs it degrades until it is back.
    """
    settings, closing = services.settings, services.closing
    secret = await asyncio.to_thread(_secret, settings)
    services.wheel.start()
    closing.callback(services.wheel.close)
    services.marking = Marking(secret)
    services.inspector.checks.append(MarkCheck(services.marking))
    if settings.reference_perth != "off":
        perth = PerthCheck(settings.reference_perth)
        closing.push_async_callback(perth.close)
        await perth.start()
        services.inspector.checks.append(perth)
    services.metrics.store_up.set(1)
    store, lasting = await open_stores(
        settings, closing, services.clock, lambda healthy: services.metrics.store_up.set(int(healthy))
    )
    services.store, services.lasting = store, lasting
    keyring = await _keys(services, lasting, secret)
    services.tokens = BrowserTokens(
        secret.derive("browser tokens"),
        audience=settings.public_origin or "voxwire",
        store=store,
        holder=keyring.principal,
    )
    local, local_key = (
        await _local(keyring, settings) if settings.loopback and lasting.healthy else (None, "")
    )
    services.guard = Guard(settings, keyring, services.tokens, local, local_key)
    services.rates = RateLimiter(store, clock=services.clock)
    # Alone, a gateway has nobody to tell its counts.
    services.limits = ContextGate(store if settings.redis_url else None, clock=services.clock)
    closing.push_async_callback(services.limits.close)
    await services.limits.start()
    ears = await open_ears(settings, closing)
    desk = services.desk = VoiceDesk(
        store,
        secret,
        lasting=lasting,
        size=services.engine.info.voice_bytes or None,
        limits=VoiceLimits(
            enrolments_per_hour=settings.voices_per_hour,
            session_voices=settings.session_voices,
            permanent_voices=settings.permanent_voices,
        ),
        verified=ears.verified,
        missing=ears.missing,
        clock=services.clock,
    )
    services.voices = desk.voices
    services.verifier = ears.verifier(store, desk)
    services.speakers = ears.speakers
    services.denied = DenyList(lasting, secret, audit=desk.audit)
    services.inspector.checks.append(ears.check(desk, services.denied))
    closing.push_async_callback(desk.close)
    await desk.start()
    closing.push_async_callback(services.holds.close)
    services.metrics.watch_voices(
        lambda: {
            "hit": services.voices.hits,
            "miss": max(0, services.metrics.voice_lookups - services.voices.hits),
        }
    )
    if settings.phrase_bytes:
        await _phrases(services, store, secret)
    closing.push_async_callback(services.normaliser.close)
    services.spawn(services.normaliser.start(), name="normaliser start")  # it works meanwhile
    services.spawn(_note_marking(services), name="marking noted")
    _watch_engine(services)
    if isinstance(services.engine, Keeper):
        _forget_deleted(services, services.engine)
    services.spawn(_sample_leads(services), name="lead samples")
    await _wyoming(services)
    if settings.redis_url and not settings.secret:
        # A key is kept as an HMAC under the secret: one made under another secret is refused here.
        _log.warning("shared store without a shared secret: set VOXWIRE_SECRET alike on every gateway")
    if services.guard.local_mode:
        _log.warning("local mode: only this machine is served, any API key is accepted from it")


async def close(services: Services) -> None:
    """Stop the engine, and everything that ``start`` began."""
    await services.scheduler.close()
    await services.engine.close()
    await services.closing.aclose()


async def _phrases(services: Services, store: Store, secret: DeploymentSecret) -> None:
    """Keep spoken phrases. Who may use that is each key's and tenant's own choice; it is empty until then."""
    settings, closing = services.settings, services.closing
    phrases = services.phrases = PhraseCache(
        store, secret, max_bytes=settings.phrase_bytes, ttl=settings.phrase_ttl_s, clock=services.clock
    )
    closing.push_async_callback(phrases.close)
    await phrases.start()
    closing.callback(services.voices.on_deleted(phrases.clear_voice))
    services.metrics.watch_phrases(
        lambda: {"hit": phrases.hits, "miss": phrases.misses, "failed": phrases.failures}
    )


async def _wyoming(services: Services) -> None:
    if services.settings.wyoming:
        services.wyoming = WyomingServer(services)
        services.closing.push_async_callback(services.wyoming.close)
        await services.wyoming.start()


async def _keys(services: Services, store: Store, secret: DeploymentSecret) -> KeyRing:
    settings = services.settings
    keyring = services.keyring = key_ring(settings, store, secret)
    services.closing.push_async_callback(keyring.close)
    await keyring.start()
    keyring.on_revoked(services.close_sockets_of)
    if not settings.loopback and not len(keyring) and store.healthy:
        raise SettingsError(
            f"host = {settings.host!r} can be reached from other machines but no API key is set; make one "
            "with 'voxwire keys add NAME', or set VOXWIRE_API_KEYS=NAME:KEY, or keep host at 127.0.0.1"
        )
    return keyring


def key_ring(settings: Settings, store: Store, secret: DeploymentSecret) -> KeyRing:
    """The keys of this deployment: in the shared store where there is one, else in a file of data_dir."""
    source = store if settings.redis_url else settings.data_dir / "keys.json"
    return KeyRing(
        source,
        secret.derive("api keys"),
        configured=settings.api_keys,
        phrase_cache=settings.phrase_cache,
    )


async def open_keys(settings: Settings) -> tuple[KeyRing, Store]:
    """The keys for the command line, started; close both. Raises SettingsError."""
    store = await open_lasting(settings)
    keyring = key_ring(settings, store, _secret(settings))
    await keyring.start()
    return keyring, store


def open_marking(settings: Settings) -> Marking:
    """The deployment's marks for the command line. Raises SettingsError where it has no secret yet."""
    if not settings.secret and not (settings.data_dir / "secret").exists():
        raise SettingsError("there is no secret of a gateway here: set VOXWIRE_SECRET, or use its data_dir")
    return Marking(_secret(settings))


async def _local(keyring: KeyRing, settings: Settings) -> tuple[Principal, str]:
    """Who this machine is, and its generated key."""
    presented = await keyring.ensure_local_key(settings.data_dir / "local.key")
    return keyring.authenticate(presented, loopback=True), presented


def _secret(settings: Settings) -> DeploymentSecret:
    if settings.secret:
        return DeploymentSecret(settings.secret.encode())
    try:
        return DeploymentSecret.load(settings.data_dir / "secret")
    except SettingsError as error:
        raise SettingsError(f"data_dir = {str(settings.data_dir)!r}: {error.message}") from None


async def _note_marking(services: Services) -> None:
    """A row of the audit chain at each start: whether speech carries a mark here (trust.md L7, L9)."""
    event = "mark.on" if services.settings.mark else "mark.off"
    while True:
        try:
            await services.desk.audit.append(event, details={"node": services.desk.nodes.node})
        except StoreError:
            await asyncio.sleep(NOTE_AGAIN_S)
        else:
            return


async def _sample_leads(services: Services) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        for dialect, playback in list(services.playing.values()):
            if playback.sent_samples:
                services.metrics.lead.labels(dialect).observe(playback.lead())


def _watch_engine(services: Services) -> None:
    def read(name: str) -> Callable[[], float]:
        return lambda: float(getattr(services.engine.capacity(), name))

    for name in ("xrt", "slots", "free", "queued", "alive"):
        services.metrics.watch_engine(name, read(name))
    if isinstance(services.engine, Observed):
        services.metrics.watch_engine_events(services.engine.events)
        services.metrics.watch_engine_gauges(services.engine.gauges)


def _forget_deleted(services: Services, engine: Keeper) -> None:
    """Let an engine drop what it keeps of a voice that was deleted."""
    voices = services.voices
    services.closing.callback(
        voices.on_deleted(lambda tenant, voice: engine.forget(voices.salt(tenant, voice)))
    )
