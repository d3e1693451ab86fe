"""Phone calls and the agents that answer them.

A call comes in on a media leg; an agent is a native session that said it serves calls. The hub brings them
together. Contexts that an agent opens for a call take turns on its leg: one writer at a time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sessions.events import Audio, AudioFormat, Encoding
from sessions.playback import PlaybackClock
from telephony.dsp import pcm
from telephony.dsp.resample import Resampler
from telephony.playout import Playout
from tts_core.errors import LegClosed

if TYPE_CHECKING:
    from gateway.services import Services

log = logging.getLogger(__name__)

AGENT_WAIT_S = 15.0
"""A caller hears silence while no agent is free; after this long the call is ended."""


LAST_WORDS_S = 30.0
"""A hang-up waits this long for contexts that are still being spoken."""


class Leg(Protocol):
    """What a call needs of a media leg (``telephony.media_streams.driver.MediaStreamLeg``)."""

    @property
    def playout(self) -> Playout:
        """Positions and the queue."""
        ...

    async def play(self, data: bytes) -> object:
        """Queue encoded audio, waiting for room; LegClosed when the listener hung up."""
        ...

    def clear(self) -> int:
        """Drop what is queued at once; the position heard, in samples."""
        ...

    def end_utterance(self) -> None:
        """Pad the last frame; LegClosed."""
        ...

    async def drained(self) -> object:
        """Return when everything queued has been played."""
        ...

    async def hangup(self) -> None:
        """End the call after what is queued has been played."""
        ...

    async def close(self) -> None:
        """End the call now."""
        ...


class Agent(Protocol):
    """What the hub needs of a native session."""

    @property
    def free_calls(self) -> int:
        """How many more calls it takes now."""
        ...

    @property
    def agent_name(self) -> str:
        """The name by which calls may ask for it."""
        ...

    def caller_format(self) -> AudioFormat | None:
        """How it wants the caller's audio; None for not at all."""
        ...

    async def call_started(self, call: Call) -> None:
        """The call is this agent's."""
        ...

    async def call_dtmf(self, call: Call, digit: str) -> None:
        """A key was pressed."""
        ...

    async def call_audio(self, call: Call, seq: int, start: int, data: bytes) -> None:
        """The caller's audio in the agent's format."""
        ...

    async def call_ended(self, call: Call, reason: str) -> None:
        """The call is over."""
        ...


class Turn:
    """A context's turn to speak on a leg; fulfils ``sessions.playback.Playback``."""

    def __init__(self, leg: Leg, lock: asyncio.Lock, rate: int, clock: Callable[[], float]) -> None:
        self._leg = leg
        self._lock = lock
        self._rate = rate
        self._dry = PlaybackClock(rate, clock)
        self._base: int | None = None
        self._played = 0  # samples given to the leg
        self._final: int | None = None
        self._holding = False
        self.over = asyncio.Event()

    @property
    def sent_samples(self) -> int:
        """Samples the context has made for the leg."""
        return self._dry.sent_samples

    def sent(self, samples: int) -> float:
        """See ``Playback.sent``."""
        return self._dry.sent(samples)

    def heard(self) -> int:
        """Samples of this context that the caller has heard, by the leg's marks and clock."""
        if self._final is not None:
            return self._final
        if self._base is None:
            return 0
        return max(0, min(self._played, self._leg.playout.heard_samples() - self._base))

    def lead(self) -> float:
        """Seconds made and not yet heard, the leg's queue included."""
        return (self.sent_samples - self.heard()) / self._rate

    def reported(self, sample: int) -> None:
        """The leg knows better than the agent."""

    async def play(self, event: Audio) -> None:
        """Give audio to the leg, after the context before has finished."""
        if self._base is None:
            await self._lock.acquire()
            self._holding = True
            self._base = self._leg.playout.position
        self._played += event.samples
        await self._leg.play(event.data)

    def cut(self) -> int:
        """Clear the leg at once if this context is speaking."""
        if self._holding:
            assert self._base is not None
            heard = self._leg.clear() - self._base
            self._final = max(0, min(self._played, heard))
        else:
            self._final = self.heard()
        self.release()
        return self._final

    def release(self) -> None:
        """Let the next context speak."""
        self.over.set()
        if self._holding:
            self._holding = False
            self._lock.release()
            try:
                self._leg.end_utterance()
            except LegClosed:
                pass  # the caller hung up

    async def drained(self) -> None:
        """Wait until the caller has heard everything."""
        if self._holding:
            await self._leg.drained()
            self._final = self.heard()


class Call:
    """One call with its leg.

    Args:
        leg: the media leg, started.
        provider: "twilio".
        tenant: whose call it is.
        parameters: what the call's document passed on.
        index: names the call in binary frames.
    """

    def __init__(
        self,
        services: Services,
        leg: Leg,
        *,
        provider: str,
        tenant: str,
        parameters: Mapping[str, str],
        index: int,
        fmt: AudioFormat | None = None,
    ) -> None:
        self.id = f"c_{secrets.token_hex(12)}"
        self.index = index
        self.provider = provider
        self.tenant = tenant
        self.parameters = dict(parameters)
        self.caller = parameters.get("caller") or parameters.get("from") or parameters.get("From") or ""
        self.called = parameters.get("called") or parameters.get("to") or parameters.get("To") or ""
        self.format = fmt or AudioFormat(Encoding.MULAW, 8000)
        self.agent: Agent | None = None
        self.reason = "caller"
        self._services = services
        self._leg = leg
        self._lock = asyncio.Lock()
        self._convert: Callable[[bytes], bytes] | None = None
        self._seq = 0
        self._samples = 0
        self._ending = False
        self._turns: set[Turn] = set()

    def turn(self) -> Turn:
        """A turn for a new context."""
        turn = Turn(self._leg, self._lock, self.format.rate, self._services.clock)
        self._turns = {t for t in self._turns if not t.over.is_set()} | {turn}
        return turn

    async def hang_up(self, *, after_audio: bool) -> None:
        """Begin to end the call; returns at once.

        ``after_audio``: contexts that were opened before are spoken and heard first, within LAST_WORDS_S.
        """
        if self._ending and after_audio:
            return
        self._ending = True
        self.reason = "agent"
        self._services.spawn(self._last_words() if after_audio else self._leg.close(), name="hang up")

    async def _last_words(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                for turn in self._turns:
                    await turn.over.wait()
        except TimeoutError:
            log.warning("a call was ended in the middle of a turn", extra={"call": self.id})
        await self._leg.hangup()

    async def assign(self, agent: Agent) -> None:
        """Give the call to an agent."""
        self.agent = agent
        fmt = agent.caller_format()
        if fmt is not None:
            self._convert = _converter(self.format, fmt)
        await agent.call_started(self)

    async def audio(self, payload: bytes) -> None:
        """The caller said something."""
        if self.agent is None or self._convert is None:
            return
        data = self._convert(payload)
        wanted = self.agent.caller_format()
        assert wanted is not None
        start, self._samples = self._samples, self._samples + len(data) // wanted.width
        seq, self._seq = self._seq, self._seq + 1
        if data:
            await self.agent.call_audio(self, seq, start, data)

    async def dtmf(self, digit: str) -> None:
        """The caller pressed a key."""
        if self.agent is not None:
            await self.agent.call_dtmf(self, digit)

    async def ended(self) -> None:
        """The leg is gone."""
        if self.agent is not None:
            try:
                await self.agent.call_ended(self, self.reason)
            except LegClosed:
                pass


def _converter(source: AudioFormat, wanted: AudioFormat) -> Callable[[bytes], bytes]:
    """Turns the leg's audio into what the agent wants; keeps its resampler's state."""
    if source == wanted:
        return bytes
    resampler = Resampler(source.rate, wanted.rate)

    def convert(payload: bytes) -> bytes:
        samples = resampler.process(pcm.decode(payload, source.encoding.value).astype(np.float32))
        return pcm.encode(samples, wanted.encoding.value)

    return convert


def why_none(agents: Sequence[Agent], wanted: str) -> str:
    """Why no agent took a call: what an operator must look at first."""
    if not agents:
        return "no agent is connected"
    if wanted and all(agent.agent_name != wanted for agent in agents):
        return "no agent has the name that the call asks for"
    return "all agents are busy"


class CallHub:
    """Brings calls and agents of one gateway together."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._agents: dict[str, list[Agent]] = {}
        self._changed = asyncio.Event()
        self._index = 0
        self.calls: dict[str, Call] = {}

    def agent_ready(self, agent: Agent, tenant: str) -> None:
        """The agent may get calls of its tenant from now on."""
        agents = self._agents.setdefault(tenant, [])
        if agent not in agents:
            agents.append(agent)
        self._changed.set()

    def agent_gone(self, agent: Agent, tenant: str) -> None:
        """The agent gets no more calls."""
        agents = self._agents.get(tenant, [])
        if agent in agents:
            agents.remove(agent)

    def capacity_changed(self) -> None:
        """An agent has room again."""
        self._changed.set()

    def new_call(self, leg: Leg, *, provider: str, tenant: str, parameters: Mapping[str, str]) -> Call:
        """A call whose leg has started."""
        self._index += 1
        call = Call(
            self._services, leg, provider=provider, tenant=tenant, parameters=parameters, index=self._index
        )
        self.calls[call.id] = call
        return call

    async def find_agent(self, call: Call) -> bool:
        """Give the call to the free agent with most room, waiting up to AGENT_WAIT_S; False if none came.

        A call with the custom parameter ``agent`` goes to an agent of that name only.
        """
        wanted = call.parameters.get("agent", "")
        try:
            async with asyncio.timeout(AGENT_WAIT_S):
                while True:
                    self._changed.clear()
                    free = [
                        a
                        for a in self._agents.get(call.tenant, [])
                        if a.free_calls > 0 and (not wanted or a.agent_name == wanted)
                    ]
                    if free:
                        await call.assign(max(free, key=lambda a: a.free_calls))
                        return True
                    await self._changed.wait()
        except TimeoutError:
            reason = why_none(self._agents.get(call.tenant, []), wanted)
            log.warning(
                "no agent for a call", extra={"call": call.id, "tenant": call.tenant, "reason": reason}
            )
            return False

    async def end(self, call: Call) -> None:
        """The call is over: its agent is told."""
        self.calls.pop(call.id, None)
        await call.ended()
        await self._services.holds.end(call.id)
        self._changed.set()
