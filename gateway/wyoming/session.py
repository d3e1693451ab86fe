"""What one connection asks for, spoken in order: whole texts and texts in pieces.

No event carries an id, so one context is spoken after the other. While a text comes in pieces, a
``synthesize`` is passed over: Home Assistant sends the whole text once more before ``synthesize-stop``, for
servers that do not know pieces. An error ends the connection, as it does with the protocol's own servers: a
client waits for the end of its audio or of the connection, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.speaking import Allowance
from gateway.spoken import HTTP_RUN_AHEAD_S, base_options
from sessions.events import RATES, Audio, AudioFormat, Done, Event, Failed
from sessions.nobody import unheard, untold
from sessions.principal import Principal
from tts_core.errors import BadRequest
from tts_core.text.segment import TextMode

from . import wire

if TYPE_CHECKING:
    from gateway.services import Services
    from gateway.speaking import Voice
    from sessions.runner import ContextRunner

DIALECT = "wyoming"
FALLBACK_RATE = 24000
"""For an engine whose own rate is none that we send."""


class _Stream:
    """A text that comes in pieces."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.runner: ContextRunner | None = None
        """None until there is something to say: white space opens nothing."""


class Session:
    """One connection's speech.

    Args:
        services: of the gateway.
        principal: whom the connection speaks for.
        send: writes bytes to the client; raises LegClosed when it is gone.
        end: ends the connection after what was sent.
    """

    def __init__(
        self,
        services: Services,
        principal: Principal,
        send: Callable[[bytes], Awaitable[None]],
        end: Callable[[], None],
    ) -> None:
        self._services, self._principal = services, principal
        self._send, self._end = send, end
        rate = services.engine.info.native_rate
        self._wording = wire.Wording(rate if rate in RATES else FALLBACK_RATE)
        self._allowance = Allowance(principal)
        self._stream: _Stream | None = None
        self._speaking: ContextRunner | None = None
        self._count = 0

    @property
    def busy(self) -> bool:
        """Whether something is spoken; a text in pieces of which nothing has come yet is not."""
        return self._speaking is not None

    async def answer(self, event: wire.Event) -> bool:
        """Answer ``describe`` and ``ping``, whatever else goes on; False for any other event.

        Raises BadRequest, LegClosed.
        """
        if event.type == "describe":
            listed = await self._services.speaking.listed(self._principal)
            await self._send(wire.info(self._services.engine.info, [voice for voice, _ in listed]))
        elif event.type == "ping":
            await self._send(wire.pong(wire.read(event, wire.Ping).text))
        else:
            return False
        return True

    async def take(self, event: wire.Event) -> None:
        """Do what ``event`` asks; for a whole text, or the end of one in pieces, returns when it is spoken.

        Raises VoxwireError; what it is of does not matter to the client, whose connection is to end.
        """
        match event.type:
            case "synthesize":
                await self._whole(event)
            case "synthesize-start":
                if self._stream is not None:
                    raise BadRequest("synthesize-stop comes before the next synthesize-start")
                self._stream = _Stream(await self._voice(wire.read(event, wire.Start)))
            case "synthesize-chunk":
                self._piece(event)
            case "synthesize-stop":
                await self._stop()

    async def fail(self, error: Exception) -> None:
        """Tell an error and end the connection."""
        fault = wire.ours(error)
        self._services.metrics.refused(fault.code)
        await self._send(wire.error(fault))
        self._end()

    async def abort(self) -> None:
        """The client is gone: stop at once."""
        self._stream = None
        if self._speaking is not None:
            await self._speaking.abort()
            self._speaking = None
        self._send, self._end = untold, unheard  # the connection has us

    async def _whole(self, event: wire.Event) -> None:
        start = wire.read(event, wire.Start)
        text = wire.text_of(event, self._services.settings.max_context_chars)
        if self._stream is not None:
            return
        voice = await self._voice(start)
        if not text.strip():
            await self._send(self._wording.start() + self._wording.stop(0))
            return
        runner = self._open(voice, TextMode.FINAL)
        runner.text(text)
        runner.end()
        await runner.wait()

    def _piece(self, event: wire.Event) -> None:
        stream = self._begun()
        text = wire.text_of(event, self._services.settings.max_context_chars)
        if stream.runner is None:
            if not text.strip():
                return
            stream.runner = self._open(stream.voice, TextMode.DELTA)
        stream.runner.text(text)

    async def _stop(self) -> None:
        stream = self._begun()
        if stream.runner is None:
            self._stream = None
            await self._send(wire.STOPPED)
            return
        stream.runner.end()
        await stream.runner.wait()

    def _begun(self) -> _Stream:
        if self._stream is None:
            raise BadRequest("synthesize-start comes first")
        return self._stream

    async def _voice(self, start: wire.Start) -> Voice:
        asked = start.voice or wire.Voice()
        speaking, principal = self._services.speaking, self._principal
        if not asked.id and asked.language:
            listed = [voice for voice, _ in await speaking.listed(principal)]
            return await speaking.resolve(
                principal, wire.for_language(asked.language, listed, speaking.voice(principal, ""))
            )
        return await speaking.resolve(principal, asked.id)

    def _open(self, voice: Voice, mode: TextMode) -> ContextRunner:
        """A running context. Raises Busy and Draining."""
        services = self._services
        self._count += 1
        options = replace(
            base_options(services, self._principal).with_mode(mode),
            voice=voice.id,
            format=AudioFormat(rate=self._wording.rate),
            # No listener's clock: Home Assistant wants all of it, as soon as there is any.
            run_ahead_s=HTTP_RUN_AHEAD_S,
        )
        runner = services.speaking.runner(
            principal=self._principal,
            allowance=self._allowance,
            dialect=DIALECT,
            context_id=f"{DIALECT}-{self._count}",
            options=options,
            sink=self._tell,
            has_text=True,
            voice=voice,
        )
        self._speaking = runner
        runner.start()
        return runner

    async def _tell(self, event: Event) -> None:
        wording = self._wording
        match event:
            case Audio():
                begin = b"" if event.start_sample else wording.start()
                await self._send(begin + wording.chunk(event.data, event.start_sample))
            case Done():
                streamed, self._stream, self._speaking = self._stream is not None, None, None
                await self._send(wording.stop(event.total_samples) + (wire.STOPPED if streamed else b""))
            case Failed():
                self._stream = self._speaking = None
                await self.fail(event.error)


__all__ = ["DIALECT", "Session"]
