"""Speech on a socket whose messages carry no ids: turns, one after the other, told apart by order alone.

A turn is one context. It begins with the first text and is over when a flush was spoken and nothing came
after it, so that an idle connection holds no place among those who speak. ``clear`` cuts it: all audio of
before has been told when it returns, and what was flushed before is never answered (rule R3 of protocols.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.speaking import Allowance
from sessions.events import TERMINAL, Audio, Cancelled, Done, Event, Failed, Flushed
from sessions.nobody import untold
from tts_core.errors import ContextIdle, VoxwireError

if TYPE_CHECKING:
    from gateway.services import Services
    from gateway.speaking import Voice
    from sessions.context import ContextOptions
    from sessions.principal import Principal
    from sessions.runner import ContextRunner


class Turn:
    """What is spoken between two silences of the client."""

    def __init__(self, number: int, runner: ContextRunner, now: float) -> None:
        self.number = number
        self.runner = runner
        self.over = False
        """It takes no more text; another one begins with the next."""
        self.flushes = 0
        """Asked for and not answered."""
        self.sent = 0
        """Samples of its audio that have left."""
        self.fresh = True
        """There is text that came after the last flush."""
        self.owed = False
        """The answer to its last flush waits for its end."""
        self.said_at = self.flushed_at = now


@dataclass(frozen=True, slots=True)
class Telling:
    """How a dialect words what happens. Each raises LegClosed when the client is gone."""

    audio: Callable[[Turn, Audio], Awaitable[None]]
    flushed: Callable[[Turn | None], Awaitable[None]]
    """A flush was spoken; None where there was nothing to speak."""
    failed: Callable[[Turn, VoxwireError], Awaitable[None]]
    """The turn ended by an error; the socket goes on."""
    ended: Callable[[Turn, Event], Awaitable[None]] | None = None
    """The turn is over, by this terminal event; told after all else, and another turn may begin in it."""


_NOBODY = Telling(untold, untold, untold)


class Turns:
    """The turns of one socket, all with the same voice and format."""

    def __init__(
        self,
        services: Services,
        telling: Telling,
        *,
        dialect: str,
        principal: Principal,
        options: ContextOptions,
        voice: Voice,
    ) -> None:
        self._services, self._dialect, self._principal = services, dialect, principal
        self._voice, self._telling = voice, telling
        self.options = options
        """Of the turns that begin from now on."""
        self._allowance = Allowance(principal)
        self._count = 0
        self._refused = False
        self.turn: Turn | None = None
        """The one under way; None between two."""

    @property
    def open(self) -> Turn | None:
        """The turn that takes text, if there is one."""
        return None if self.turn is None or self.turn.over else self.turn

    def say(self, text: str, *, finishing: bool = False) -> None:
        """Speak more text. White space opens no turn (R8).

        ``finishing``: it was taken before the gateway began to drain, and may open a turn even so. Raises
        Busy, Draining, TextTooLong and LimitExceeded: nothing is opened, or what runs goes on.
        """
        turn = self.open
        if turn is not None:
            turn.runner.text(text)
        elif text.strip():
            self._refused = True
            turn = self._open(text, finishing)
            self._refused = False
        else:
            return
        turn.fresh = True
        turn.said_at = self._services.clock()

    async def flush(self) -> None:
        """Speak all that was said; ``flushed`` is told after its last audio."""
        turn = self.open
        if turn is None:
            if not self.take_excuse():
                await self._telling.flushed(None)
            return
        turn.flushes += 1
        turn.fresh = False
        turn.flushed_at = self._services.clock()
        turn.runner.flush()

    def excuse(self) -> None:
        """A text ended by its error before it came here: the flush behind it needs no answer."""
        self._refused = True

    def take_excuse(self) -> bool:
        """Whether the flush now read belongs to a text that ended by an error, which was its end.

        True once for each such error.
        """
        refused, self._refused = self._refused, False
        return refused

    async def clear(self) -> Cancelled | None:
        """Cut what is spoken and drop what waits; how far it was heard. No audio is told after that."""
        turn, self.turn, self._refused = self.turn, None, False
        if turn is None:
            return None
        turn.over = True
        return await turn.runner.cancel()

    def speed(self, speed: float) -> None:
        """Speak at this speed from the next segment on."""
        self.options = replace(self.options, speed=speed)
        if self.turn is not None:
            context = self.turn.runner.context
            context.options = replace(context.options, speed=speed)

    def end(self) -> Turn | None:
        """No more text for the turn under way, which is spoken to its end; None where there is none."""
        turn = self.open
        if turn is not None:
            turn.over = True
            turn.runner.end()
        return self.turn

    async def wait(self) -> None:
        """Until no turn is under way."""
        while (turn := self.turn) is not None:
            await turn.runner.wait()
            await asyncio.sleep(0)

    async def abort(self) -> None:
        """The client is gone: nothing more is told, and who waits need not any longer."""
        turn, self.turn = self.turn, None
        if turn is not None:
            await turn.runner.abort()
        self._telling = _NOBODY  # those who were told have us

    def _open(self, text: str, finishing: bool) -> Turn:
        services = self._services
        self._count += 1

        async def sink(event: Event) -> None:
            await self._tell(turn, event)

        runner = services.speaking.runner(
            principal=self._principal,
            allowance=self._allowance,
            dialect=self._dialect,
            context_id=f"turn-{self._count}",
            options=self.options,
            sink=sink,
            finishing=finishing,
            has_text=True,
            voice=self._voice,
        )
        turn = Turn(self._count, runner, services.clock())
        runner.text(text)
        self.turn = turn
        runner.start()
        return turn

    async def _tell(self, turn: Turn, event: Event) -> None:
        match event:
            case Audio():
                turn.sent = event.start_sample + event.samples
                await self._telling.audio(turn, event)
            case Flushed():
                turn.flushes -= 1
                context = turn.runner.context
                if not (turn.flushes or turn.over or turn.fresh or context.has_work):
                    # Nothing came after it: give the place among the speaking back until something does.
                    turn.over = True
                    turn.runner.end()
                # Audio may still come of an unfinished tag, of what was silent (it gets a short silence) and
                # of the resampler's tail: the answer comes behind all of it (R6).
                turn.owed = context.ending and not (turn.flushes or turn.fresh)
                if not turn.owed:
                    await self._telling.flushed(turn)
            case Failed() if not isinstance(event.error, ContextIdle):
                # A flush for what it was told last is under way, and would be a second end.
                self._refused = self._refused or (self.turn is turn and turn.fresh)
                await self._telling.failed(turn, event.error)
        if isinstance(event, TERMINAL):
            turn.over = True
            if turn.owed and isinstance(event, Done):
                await self._telling.flushed(turn)
            if self.turn is turn:
                self.turn = None
            if self._telling.ended is not None:
                await self._telling.ended(turn, event)


__all__ = ["Telling", "Turn", "Turns"]
