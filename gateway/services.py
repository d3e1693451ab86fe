"""Everything a route needs, in one typed container under one application key.

A dialect takes it with ``services = request.app[SERVICES]`` and finds settings, clock, engine, scheduler,
normaliser, store, keys, tokens, limits, voices, phrases and metrics there. Tasks that outlive a handler are
started with ``spawn``, so that none is lost and all end with the gateway. Work that must finish before the
process may stop is wrapped in ``in_flight.one()``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.metrics import Metrics
from gateway.settings import Settings
from tts_core.engine import Engine
from tts_core.errors import Draining, VoxwireError

if TYPE_CHECKING:
    from gateway.calls import CallHub
    from gateway.holds import VoiceHolds
    from gateway.native.session import NativeSession
    from gateway.security import Guard
    from gateway.sockets import Socket
    from gateway.speaking import Speaking
    from gateway.trust.check import Inspector
    from gateway.trust.marks import Marking
    from gateway.trust.speaker import SpeakerModel
    from gateway.trust.verifier import Verifier
    from gateway.voice_api.cloning import Cloning
    from gateway.wyoming.server import WyomingServer
    from sessions.denied import DenyList
    from sessions.keys import KeyRing
    from sessions.limits import ContextGate, RateLimiter
    from sessions.phrases import PhraseCache
    from sessions.playback import Playback
    from sessions.runner import ContextRunner
    from sessions.store import Store
    from sessions.tokens import BrowserTokens
    from sessions.voice_desk import VoiceDesk
    from sessions.voices import VoiceStore
    from telephony.wheel import TimerWheel
    from tts_core.scheduler import Scheduler
    from tts_core.text.normaliser import Normaliser

_log = logging.getLogger(__name__)

ErrorShape = Callable[[web.Request, VoxwireError], web.StreamResponse]
"""How a dialect words an error over HTTP; headers such as Retry-After are added by the caller."""

STOP_DEADLINE_S = 5.0
REVOKED = 1008
"""Close code "policy violation" (RFC 6455, 7.4.1)."""


class InFlight:
    """Counts contexts (or calls) that a drain waits for."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, change: int) -> None:
        """One more (+1) or one less (-1)."""
        self.count += change
        if self.count > 0:
            self._idle.clear()
        else:
            self._idle.set()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Hold the gateway open for the block."""
        self.add(1)
        try:
            yield
        finally:
            self.add(-1)

    async def idle(self) -> None:
        """Wait until nothing is going on."""
        await self._idle.wait()


@dataclass(slots=True, eq=False)
class Services:
    """See the module. ``store`` to ``guard`` are there once the application has started."""

    settings: Settings
    engine: Engine
    metrics: Metrics = field(default_factory=Metrics)
    clock: Callable[[], float] = time.monotonic
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: InFlight = field(default_factory=InFlight)
    sockets: set[Socket] = field(default_factory=set)
    error_shapes: dict[str, ErrorShape] = field(default_factory=dict)

    scheduler: Scheduler = field(init=False)
    normaliser: Normaliser = field(init=False)
    store: Store = field(init=False)
    lasting: Store = field(init=False)
    keyring: KeyRing = field(init=False)
    tokens: BrowserTokens = field(init=False)
    limits: ContextGate = field(init=False)
    rates: RateLimiter = field(init=False)
    desk: VoiceDesk = field(init=False)
    inspector: Inspector = field(init=False)
    verifier: Verifier | None = None
    denied: DenyList = field(init=False)
    speakers: SpeakerModel | None = None
    marking: Marking = field(init=False)
    voices: VoiceStore = field(init=False)
    phrases: PhraseCache | None = None
    guard: Guard = field(init=False)

    speaking: Speaking = field(init=False)
    calls: CallHub = field(init=False)
    holds: VoiceHolds = field(init=False)
    cloning: Cloning = field(init=False)
    wheel: TimerWheel = field(init=False)
    wyoming: WyomingServer | None = None
    native_sessions: dict[str, NativeSession] = field(default_factory=dict)

    closing: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    playing: dict[object, tuple[str, Playback]] = field(default_factory=dict)
    """Where the listeners of the open contexts are, with the dialect's name; sampled for the lead."""
    runners: set[ContextRunner] = field(default_factory=set)
    """The open contexts, whoever holds them."""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def refuse_if_draining(self) -> None:
        """Raise Draining once a shutdown has begun: existing contexts finish, none begins."""
        if self.draining.is_set():
            raise Draining("the gateway is restarting", retry_after=1.0)

    def spawn(self, work: Awaitable[Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Run ``work`` in a task that is kept, logged if it fails, and cancelled when the gateway ends."""
        # Bare, so that a coroutine cancelled before it began is not left unawaited inside another.
        coroutine = work if asyncio.iscoroutine(work) else _coroutine(work)
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task failed", exc_info=error)

    def close_sockets_of(self, key_id: str) -> None:
        """A key was revoked: its open sockets end too (trust.md S3)."""
        for socket in list(self.sockets):
            if socket.principal.key_id == key_id:
                self.spawn(socket.close(REVOKED, "the key was revoked"), name="revoked")

    @property
    def tasks(self) -> int:
        """How many spawned tasks run; 0 when idle and nothing leaked."""
        return len(self._tasks)

    async def stop_tasks(self) -> None:
        """Cancel what is left and wait for it, STOP_DEADLINE_S at most."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_DEADLINE_S)


async def _coroutine(work: Awaitable[Any]) -> Any:
    return await work


SERVICES: web.AppKey[Services] = web.AppKey("services", Services)


def services_of(request: web.Request) -> Services:
    """The container of the application that got this request."""
    return request.app[SERVICES]


__all__ = ["SERVICES", "ErrorShape", "InFlight", "Services", "services_of"]
