"""Phone calls over media streams: ``/media/twilio``.

Twilio connects to us with ``<Connect><Stream url="wss://HOST/media/twilio">``. The upgrade is checked by its
signature over the configured public origin, before anything else (telephony.md 1.1, trust.md S22). The call
is then given to an agent on the native protocol.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from aiohttp import WSCloseCode, web

from gateway import logs
from gateway.calls import Call
from gateway.services import Services, services_of
from gateway.settings import TwilioAccount
from gateway.sockets import Socket, accept
from sessions.principal import Principal
from telephony.media_streams.driver import MediaStreamLeg
from telephony.media_streams.protocol import Dtmf, Media
from telephony.media_streams.signature import HEADER, public_url, validate
from telephony.media_streams.socket import EagerSender
from tts_core.errors import Forbidden, LegClosed, LegError, PeerViolation

log = logging.getLogger(__name__)


def routes(services: Services) -> list[web.RouteDef]:
    """The media routes; there without an account too, so that a call before set-up gets a clear refusal."""
    return [web.get("/media/twilio", twilio)]


class LegSocket:
    """A gateway socket as the leg's text socket (``telephony.media_streams.socket.TextSocket``)."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._send = EagerSender(socket.ws.send_str)

    def send_text(self, text: str) -> None:
        """Write now; LegClosed when the peer is gone or does not read."""
        if self._socket.closed:
            raise LegClosed("the listener hung up")
        self._send(text)

    async def close(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Close; safe to repeat."""
        self._send.close()
        await self._socket.close(code, reason)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Text messages until the peer closes; PeerViolation for a binary one."""
        async for message in self._socket.messages():
            if isinstance(message, bytes):
                raise PeerViolation("binary message on a text protocol")
            yield message


def account_of(services: Services, request: web.Request) -> TwilioAccount:
    """The account whose token signed this upgrade. Raises Forbidden, always with the same words outside."""
    settings = services.settings
    if not settings.twilio:
        log.error("a Twilio stream was refused: no account is configured (VOXWIRE_TWILIO_AUTH_TOKEN)")
        raise Forbidden("no Twilio account is configured here")
    if not settings.public_origin:
        log.error(
            "a Twilio stream was refused: VOXWIRE_PUBLIC_ORIGIN is not set, so no signature can be checked"
        )
        raise Forbidden("the signature cannot be checked: the public origin is not configured")
    url = public_url(settings.public_origin, request.raw_path)
    signature = request.headers.get(HEADER)
    found = [account for account in settings.twilio if validate(account.auth_token, url, signature)]
    if not found:
        log.warning("a Twilio stream was refused: wrong signature for the configured public origin")
        raise Forbidden("the signature does not fit")
    return found[0]


async def twilio(request: web.Request) -> web.StreamResponse:
    """One call."""
    services = services_of(request)
    account = account_of(services, request)
    principal = Principal(account.tenant, "twilio")
    async with accept(services, request, "twilio", principal) as socket:
        with services.in_flight.one():
            await _serve(services, account, socket)
    return socket.ws


async def _serve(services: Services, account: TwilioAccount, socket: Socket) -> None:
    leg = MediaStreamLeg(LegSocket(socket), services.wheel, clock=services.clock)
    try:
        async with leg:
            started = leg.started
            if account.account_sid and started.account_sid != account.account_sid:
                log.error("a Twilio stream was refused: it belongs to another account")
                return
            call = services.calls.new_call(
                leg,
                provider="twilio",
                tenant=account.tenant,
                parameters=started.custom_parameters,
            )
            with logs.bound(call=call.id):
                log.info("call started", extra={"provider": "twilio"})
                try:
                    await _talk(services, call, leg)
                except PeerViolation:
                    call.reason = "failed"
                    raise
                finally:
                    await services.calls.end(call)
                    log.info("call ended", extra={"reason": call.reason})
    except PeerViolation as error:
        log.error("call refused", extra={"reason": error.message})
    except LegError:
        pass


async def _talk(services: Services, call: Call, leg: MediaStreamLeg) -> None:
    """Pass the caller on to an agent until the leg ends."""
    finding = services.spawn(_find(services, call, leg), name="find agent")
    try:
        async for event in leg.events():
            if isinstance(event, Media):
                await call.audio(event.payload)
            elif isinstance(event, Dtmf):
                await call.dtmf(event.digit)
    finally:
        finding.cancel()


async def _find(services: Services, call: Call, leg: MediaStreamLeg) -> None:
    if not await services.calls.find_agent(call):
        call.reason = "failed"
        await leg.close(WSCloseCode.TRY_AGAIN_LATER, "no agent")
