"""Puts a gateway's parts together, starts them and stops them: the only place that knows all constructors."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.calls import CallHub
from gateway.services import Services
from gateway.settings import Settings
from gateway.speaking import Speaking
from telephony.wheel import TimerWheel
from tts_core.engine import Engine
from tts_core.registry import load_engine
from tts_core.scheduler import Scheduler


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
    """Open the store and what lives in it. Raises SettingsError."""
    services.wheel.start()


async def close(services: Services) -> None:
    """Stop everything that ``start`` began, and the engine."""
    services.wheel.close()
    await services.scheduler.close()
    await services.engine.close()
