"""Puts a gateway's parts together, starts them and stops them: the only place that knows all constructors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.calls import CallHub
from gateway.security import Guard
from gateway.services import Services
from gateway.settings import Settings
from gateway.speaking import Speaking
from sessions.keys import KeyRing
from sessions.principal import Principal
from sessions.secret import DeploymentSecret
from sessions.store import open_store
from telephony.wheel import TimerWheel
from tts_core.engine import Engine
from tts_core.errors import SettingsError
from tts_core.registry import load_engine
from tts_core.scheduler import Scheduler

_log = logging.getLogger(__name__)


def build(
    settings: Settings, *, engine: Engine | None = None, clock: Callable[[], float] = time.monotonic
) -> Services:
    """Make the container; nothing runs yet. Raises SettingsError."""
    engine = engine or make_engine(settings)
    services = Services(settings=settings, engine=engine, clock=clock)
    services.speaking = Speaking(services)
    services.calls = CallHub(services)
    services.wheel = TimerWheel(clock)
    services.scheduler = Scheduler(engine, clock, settings.max_contexts or None)
    return services


def make_engine(settings: Settings) -> Engine:
    """The engine that the settings name, not started. Raises SettingsError."""
    options = {"workers": settings.workers} if settings.workers else {}
    return load_engine(settings.engine, **options)


async def start(services: Services) -> None:
    """Open the store and what lives in it.

    Raises SettingsError for a data folder that cannot be used, and for a bind beyond this machine without a
    key. A store that is away is no error: what needs it degrades until it is back.
    """
    settings = services.settings
    secret = await asyncio.to_thread(_secret, settings)
    store = services.store = open_store(settings.redis_url or None, clock=services.clock)
    services.metrics.store_up.set(1)
    store.on_change(lambda healthy: services.metrics.store_up.set(int(healthy)))
    await store.start()
    source = store if settings.redis_url else settings.data_dir / "keys.json"
    keyring = services.keyring = KeyRing(source, secret.derive("api keys"), configured=settings.api_keys)
    await keyring.start()
    keyring.on_revoked(services.close_sockets_of)
    if not settings.loopback and not len(keyring) and store.healthy:
        raise SettingsError(
            f"host = {settings.host!r} can be reached from other machines but no API key is set; make one "
            "with 'voxwire keys add NAME', or set VOXWIRE_API_KEYS=NAME:KEY, or keep host at 127.0.0.1"
        )
    local, local_key = None, ""
    if settings.loopback and store.healthy:
        local, local_key = await _local(keyring, settings)
    await _speech(services, secret)
    services.guard = Guard(settings, keyring, services.tokens, local, local_key)
    services.wheel.start()
    if services.guard.local_mode:
        _log.warning("local mode: only this machine is served, any API key is accepted from it")


async def _local(keyring: KeyRing, settings: Settings) -> tuple[Principal, str]:
    """The generated key of this machine and who it stands for."""
    presented = await keyring.ensure_local_key(settings.data_dir / "local.key")
    return keyring.authenticate(presented, loopback=True), presented


def _secret(settings: Settings) -> DeploymentSecret:
    if settings.secret:
        return DeploymentSecret(settings.secret.encode())
    return DeploymentSecret.load(settings.data_dir / "secret")


async def _speech(services: Services, secret: DeploymentSecret) -> None:
    """Tokens, limits, voices, phrases and the normaliser."""


async def close(services: Services) -> None:
    """Stop everything that ``start`` began, and the engine; also after a start that failed half way."""
    services.wheel.close()
    await services.scheduler.close()
    await services.engine.close()
    if services.keyring is not None:
        await services.keyring.close()
    if services.store is not None:
        await services.store.close()
