"""Which voices live with which session or call, and on this gateway's leases.

A voice made for a session (or a call) is held by the gateway that serves it: renewed every 20 s, and deleted
when that ends. If the gateway dies, the lease ends by itself within a minute (trust.md V9).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tts_core.errors import BadRequest

if TYPE_CHECKING:
    from gateway.services import Services
    from sessions.voices import StoredVoice, VoiceLease


class UnknownSession(BadRequest):
    """Nothing here has the id of the session or call that a voice is to end with."""

    code = "unknown_session"
    status = 404

    def __init__(self) -> None:
        super().__init__("this gateway serves no such session or call", field="session")


class VoiceHolds:
    """The leases of this gateway, by session or call."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held: dict[str, dict[str, VoiceLease]] = {}
        self._scopes: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def check(self, tenant: str, scope: str) -> None:
        """Raise UnknownSession unless this gateway serves a session or call of that tenant and id now."""
        session = self._services.native_sessions.get(scope)
        call = self._services.calls.calls.get(scope)
        living = session is not None and not session.closed and session.principal.tenant == tenant
        if not living and (call is None or call.tenant != tenant):
            raise UnknownSession

    def add(self, voice: StoredVoice) -> None:
        """Hold a voice for its session until that ends. Raises UnknownSession if it has ended meanwhile."""
        scope = voice.session
        assert scope is not None
        self.check(voice.tenant, scope)
        lease = self._services.voices.hold(voice, on_lost=lambda: self._lost(voice.tenant, voice.voice_id))
        self._held.setdefault(scope, {})[voice.voice_id] = lease
        self._scopes[voice.tenant, voice.voice_id] = scope

    def scope(self, tenant: str, voice_id: str) -> str | None:
        """The session or call that a voice lives with; None for every other voice."""
        return self._scopes.get((tenant, voice_id))

    def any(self, scope: str) -> bool:
        """Whether voices live with it."""
        return scope in self._held

    def _lost(self, tenant: str, voice_id: str) -> None:
        """The voice turned out to be gone, at the latest 20 s after it went."""
        scope = self._scopes.pop((tenant, voice_id), None)
        if scope is None:
            return
        del self._held[scope][voice_id]
        if not self._held[scope]:
            del self._held[scope]

    async def end(self, *scopes: str) -> None:
        """These are over: their voices are deleted. Never raises; what cannot be deleted now is later."""
        leases = []
        for scope in scopes:
            for voice_id, lease in self._held.pop(scope, {}).items():
                self._scopes.pop((lease.voice.tenant, voice_id), None)
                leases.append(lease)
        await asyncio.gather(*(lease.close() for lease in leases))

    async def close(self) -> None:
        """The gateway stops: every session is over."""
        await self.end(*list(self._held))


__all__ = ["UnknownSession", "VoiceHolds"]
