"""An engine over a model of frames and a codec: segments in, speech out, one request of the model each.

The model (``frames.FrameModel``: vLLM, or the plain loop) and the codec work in processes of their own. What
is here prepares requests, joins the two, watches over lengths and belief, and starts the model again when it
has died.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tts_core.engine import Capacity, EngineInfo, Samples, SpeechChunk, SpeechRequest, VoiceInfo
from tts_core.errors import BadRequest, EngineCrashed, EngineError, SettingsError, TextTooLong, VoxwireError
from tts_core.nanocodec import fsq

from .budget import Budget, budget_of
from .continuity import MOST_FRAMES, Before, Continuity
from .enroller import Enroller
from .frames import FrameModel, FrameRequest, SpeakerPrefix
from .hunger import Hunger
from .marks import Marks, Pace
from .prefixes import DEFAULT, PLAIN, Prefixes, pack
from .prompt import MAX_TEXT_TOKENS, branches
from .sampling import Sampling
from .silence import MOST
from .speed import Lap, Speed
from .take import Codec, Plan, Take

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .tokenizer import Tokenizer

log = logging.getLogger(__name__)

LANGUAGES = ("en-US", "en-GB", "es-MX", "pt-BR", "nl-NL")
"""What the published model was made for; nine tenths of its training is English (report, section 4.1.2)."""

MAX_TEXT = 4000
"""Characters of one request, as of the built-in engine; its tokens bound it far sooner."""

WATCH_S = 0.25
"""How often the model is looked at."""

BACKOFF_S = (0.1, 1.0, 5.0, 15.0, 60.0)
"""Pause before the model is started again, by how often in a row that failed or did not last."""

STEADY_S = 300.0
"""A model that lived this long has recovered: the next death begins with the shortest pause."""

MISSING = (
    "this engine needs its model's packages: install voxwire with the extra 'gepard' (CUDA), 'gepard-cpu' "
    "or, for the engine 'gepard-torch', 'gepard-model'"
)

WARM_TEXT = "Hello, and thank you for calling."
WARM_FRAMES = 16
WARM_STREAMS = 4
"""What is spoken to nobody at the start: first-time work is done then, and the speed is known, for one
stream and for a few.
"""

_SEEDS = 1 << 64


@dataclass(frozen=True, slots=True)
class Options:
    """How an engine speaks.

    Args:
        sampling: of every request; its seed and frame cap are each request's own.
        guard: act on belief that stays flat (see ``guard``).
        continuity: let short segments go on from each other (see ``continuity``).
        trim: leave out silence at the beginning (see ``silence``).
    """

    sampling: Sampling = field(default_factory=Sampling)
    guard: bool = True
    continuity: bool = False
    trim: bool = True


class FrameEngine:
    """An engine over a model of frames and a codec. Fulfils ``tts_core.engine.Engine``.

    22.05 kHz. A seed and a text give the same audio, whoever else speaks; without a seed it is drawn anew.
    Word marks are estimates (see ``marks``). The speed cannot be changed.

    Args:
        name: of the engine.
        checkpoint: what the model was made of.
        model: not started.
        codec: not started.
        codec_digest: names the codec's weights; hex.
        options: see there.
        clock: monotonic seconds; that of the requests' deadlines.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        model: FrameModel,
        codec: Codec,
        *,
        codec_digest: str,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoint, self._model, self._codec = checkpoint, model, codec
        self._options = options or Options()
        self._clock = clock
        cloning = checkpoint.config.cloning is not None
        self._prefixes = Prefixes(checkpoint.config)
        self._info = EngineInfo(
            name=name,
            revision=f"{checkpoint.digest[:16]}-{codec_digest[:16]}",
            native_rate=fsq.SAMPLE_RATE,
            voices=_voices(cloning),
            languages=LANGUAGES,
            can_clone=cloning,
            voice_bytes=self._prefixes.size,
            speed_range=(1.0, 1.0),
        )
        self._tokenizer: Tokenizer | None = None
        self._enroller = Enroller(checkpoint.directory)
        self._continuity = Continuity(MOST_FRAMES if self._options.continuity else 0, clock)
        self._pace = Pace()
        self._speed = Speed(clock)
        self._hunger = Hunger(clock)
        self._watching: asyncio.Task[None] | None = None
        self._erasing: set[asyncio.Future[None]] = set()
        self._started = False
        self._closed = False
        self._counts = dict.fromkeys(
            ("requests", "truncated", "derailed", "silent", "again", "trimmed_ms", "crashes", "restarts"), 0
        )

    # -- contract -------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine; ``revision`` has the hashes of checkpoint and codec."""
        return self._info

    async def start(self) -> None:
        """Start model and codec, read the tokenizer, speak to nobody once.

        Raises:
            SettingsError: something that a setting names cannot be served; names it.
            EngineError: the model or the codec did not start.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        if self._started:
            return
        self._started = True
        starts = [
            asyncio.ensure_future(start)
            for start in (
                _start_model(self._model),
                self._codec.start(),
                self._read_tokenizer(),
                self._read_null(),
            )
        ]
        try:
            await asyncio.gather(*starts)
            await self._warm_up()
        except BaseException:
            for starting in starts:
                starting.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.close()
            raise
        self._watching = asyncio.create_task(self._watch(), name="gepard watch")

    async def close(self) -> None:
        """Stop at once; running requests end with EngineError. Idempotent."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for erasing in tuple(self._erasing):
            erasing.cancel()
        await asyncio.gather(
            self._model.close(), self._codec.close(), self._enroller.close(), return_exceptions=True
        )

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """Make a voice of a clip: seconds of work in other processes, after those that wait.

        Args:
            reference: float32 ``[n]``, mono, at most 60 s.
            rate: must be 22050: who takes clips in converts them.

        Returns:
            The prefix, float16 little-endian ``[8, hidden]``.

        Raises:
            BadRequest: another rate, or the clip is empty, too long or no numbers.
            EngineError: this model cannot clone, the engine does not run, or it failed.
        """
        if not self._info.can_clone:
            raise EngineError("this model cannot clone voices")
        if rate != fsq.SAMPLE_RATE:
            raise BadRequest(f"a reference must have {fsq.SAMPLE_RATE} Hz", field="reference")
        return pack(await self._enroller.prefix(await self._codec.encode(reference)))

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Speak one segment; see ``Engine.synthesize``.

        A try that is bad before anything of it was given (belief that stays flat, no sound) is repeated once
        with another seed, unless the request brings its own: then its audio is what its seed says.

        Raises:
            BadRequest: a speed other than 1, or bytes that are no voice of this model.
            UnknownVoice: no such voice.
            TextTooLong: more than 256 tokens.
            Busy: too many requests wait.
            EngineCrashed: model or codec died under it, or are not running.
            EngineError: not started, closed, or it failed on this text.
        """
        tokenizer = self._check(request)
        prefix = self._prefixes.of(request.voice, request.conditioning, request.salt)
        if not any(character.isalnum() for character in request.text):
            yield SpeechChunk(np.zeros(0, np.float32), 0, (), last=True)
            return
        ids = tokenizer.encode(request.text)
        before = self._before(request, tokenizer)
        self._counts["requests"] += 1
        self._continuity.drop(request)  # until it is spoken
        self._speed.enter()
        try:
            for attempt in (1, 2):
                take = self._prepare(request, ids, prefix, before, attempt)
                try:
                    async with aclosing(take.chunks()) as chunks:
                        async for chunk in chunks:
                            yield chunk
                except EngineCrashed:
                    self._counts["crashes"] += 1
                    # Another process may be there to take it; nobody has heard anything yet.
                    if take.given or attempt == 2 or not self._alive():
                        raise
                    continue
                self._note(request, take)
                if not take.wants_again:
                    return
        finally:
            self._speed.leave()

    def capacity(self) -> Capacity:
        """The speed with every slot taken, decoding included, as measured; and the present load."""
        slots, running = self._model.slots, self._model.running
        return Capacity(
            xrt=self._speed.xrt(slots),
            slots=slots,
            free=max(0, slots - running),
            queued=max(0, running - slots),
            alive=int(self._alive()),
        )

    # -- beyond the contract --------------------------------------------------------------------------

    def events(self) -> dict[str, int]:
        """How often it happened since the start.

        ``requests``; of their tries, those ``truncated`` at a bound, ``derailed`` or ``silent``, and those
        made ``again``; ``trimmed_ms`` of silence left out; ``crashes`` under a request; ``restarts`` of the
        model.
        """
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """The codec's duty, 0 to 1, and the seconds a frame takes with the streams at work now."""
        return {"codec_duty": self._codec.duty, "frame_s": self._speed.frame_s(max(1, self._speed.running))}

    def forget(self, salt: str) -> int:
        """Drop what is kept under ``salt``, as its voice was deleted; how many copies of it there were.

        The model overwrites its own between two steps, or when the last request has ended that speaks with
        it.
        """
        self._continuity.forget(salt)
        gone = self._prefixes.forget(salt)
        for fingerprint in gone:
            erasing = asyncio.ensure_future(self._model.forget(fingerprint))
            self._erasing.add(erasing)
            erasing.add_done_callback(self._erased)
        return len(gone)

    def _erased(self, erasing: asyncio.Future[None]) -> None:
        self._erasing.discard(erasing)
        if not erasing.cancelled() and erasing.exception() is not None:
            log.warning("the model did not say that it has forgotten a voice", exc_info=erasing.exception())

    # -- requests -------------------------------------------------------------------------------------

    def _alive(self) -> bool:
        return self._started and not self._closed and self._model.alive and self._codec.alive

    def _check(self, request: SpeechRequest) -> Tokenizer:
        if self._closed or self._tokenizer is None:
            raise EngineError("the engine is not running")
        if request.speed != 1.0:
            raise BadRequest("this engine speaks at its own speed: 1", field="speed")
        if len(request.text) > MAX_TEXT:
            raise TextTooLong(f"a segment may have {MAX_TEXT} characters", field="text")
        return self._tokenizer

    def _before(self, request: SpeechRequest, tokenizer: Tokenizer) -> Before | None:
        """The segment to go on from, if both fit into one prompt."""
        before = self._continuity.before(request)
        if before is None or len(tokenizer.encode(f"{before.text} {request.text}")) > MAX_TEXT_TOKENS:
            return None
        return before

    def _prepare(
        self,
        request: SpeechRequest,
        ids: list[int],
        prefix: SpeakerPrefix | None,
        before: Before | None,
        attempt: int,
    ) -> Take:
        budget = budget_of(request.text)
        if before is not None and self._tokenizer is not None:
            ids = self._tokenizer.encode(f"{before.text} {request.text}")
        plan = Plan(
            request=self._frames(
                # Ids of requests are the gateway's; a try that is being aborted may still bear its own.
                f"{request.id}#{secrets.token_hex(4)}",
                ids,
                prefix,
                cap=budget.cap,
                seed=request.seed,
                before=before,
            ),
            budget=budget,
            deadline=request.deadline,
            again=request.seed is None and attempt == 1,
            guard=self._options.guard,
            trim=MOST if self._options.trim else 0,
            pace=self._speed.frame_s(self._speed.running),
        )
        marks = Marks(request.text, self._pace.of(request.salt or request.voice))
        return Take(
            self._model,
            self._codec,
            plan,
            marks=marks,
            lap=Lap(self._speed),
            clock=self._clock,
            hunger=self._hunger,
        )

    def _frames(
        self,
        name: str,
        ids: list[int],
        prefix: SpeakerPrefix | None,
        *,
        cap: int,
        seed: int | None,
        before: Before | None = None,
    ) -> FrameRequest:
        seed = secrets.randbits(64) if seed is None else seed
        sampling = replace(
            self._options.sampling,
            seed=(seed + _SEEDS // 2) % _SEEDS - _SEEDS // 2,
            max_frames=cap,
        )
        prompt, uncond = branches(self._checkpoint.config, ids, sampling)
        return FrameRequest(name, prompt, prefix, sampling, uncond, before.codes if before else None)

    def _note(self, request: SpeechRequest, take: Take) -> None:
        """Count what became of a try; learn from one that was spoken to its end."""
        self._counts["trimmed_ms"] += round(take.trimmed * 1000 / fsq.SAMPLE_RATE)
        bad = [word for word in ("truncated", "derailed", "silent") if getattr(take, word)]
        for word in bad:
            self._counts[word] += 1
        if bad:
            self._counts["again"] += take.wants_again
            log.warning(
                "speech went wrong",
                extra={
                    "request": request.id,
                    "reason": "+".join(bad),
                    "frames": len(take.frames),
                    "characters": len(request.text),
                    "again": take.wants_again,
                },
            )
            return
        self._pace.learn(request.salt or request.voice, request.text, take.samples)
        if self._options.continuity:
            self._continuity.keep(request, np.stack(take.frames))

    # -- start and restart ----------------------------------------------------------------------------

    async def _read_tokenizer(self) -> None:
        self._tokenizer = await asyncio.to_thread(self._checkpoint.tokenizer)

    async def _read_null(self) -> None:
        if self._info.can_clone:
            self._prefixes.learned(await self._enroller.null_prefix())

    async def _warm_up(self) -> None:
        """Speak to nobody, alone and then a few at a time."""
        for count in (1, min(WARM_STREAMS, self._model.slots)):
            warming = [asyncio.ensure_future(self._warm(f"warm-{count}-{i}")) for i in range(count)]
            try:
                await asyncio.gather(*warming)
            finally:
                for task in warming:
                    task.cancel()

    async def _warm(self, name: str) -> None:
        if self._tokenizer is None:
            raise EngineError("the tokenizer was not read")
        budget = Budget(1.0, WARM_FRAMES, WARM_FRAMES)
        prefix = self._prefixes.of(DEFAULT, None, "")
        request = self._frames(name, self._tokenizer.encode(WARM_TEXT), prefix, cap=WARM_FRAMES, seed=0)
        request = replace(request, sampling=replace(request.sampling, stop_threshold=1.0))
        plan = Plan(request, budget, None, again=False, guard=False, trim=0, pace=self._speed.frame_s(1))
        self._speed.enter()
        try:
            take = Take(
                self._model,
                self._codec,
                plan,
                marks=Marks("", 1.0),
                lap=Lap(self._speed),
                clock=self._clock,
                hunger=self._hunger,
            )
            async with aclosing(take.chunks()) as chunks:
                async for _ in chunks:
                    pass
        finally:
            self._speed.leave()

    async def _watch(self) -> None:
        """Start the model again whenever it has died."""
        deaths, since = 0, self._clock()
        while True:
            await asyncio.sleep(WATCH_S)
            if self._model.alive:
                if deaths and self._clock() - since > STEADY_S:
                    deaths = 0
                if not self._hunger.stuck:
                    continue
                log.error("the model gives nothing any more")
                await self._model.close()
            self._hunger.forget()
            pause = BACKOFF_S[min(deaths, len(BACKOFF_S) - 1)]
            deaths += 1
            log.error("the model died; it is started again", extra={"after_s": pause})
            await asyncio.sleep(pause)
            try:
                await _start_model(self._model)
            except VoxwireError as error:
                log.error("the model did not start again", extra={"reason": error.message})
                continue
            except Exception:
                log.exception("the model did not start again")
                continue
            self._counts["restarts"] += 1
            since = self._clock()
            log.warning("the model is back")


async def _start_model(model: FrameModel) -> None:
    try:
        await model.start()
    except ImportError as error:
        raise SettingsError(MISSING) from error


def _voices(cloning: bool) -> tuple[VoiceInfo, ...]:
    neutral = VoiceInfo(DEFAULT, "Default", description="The model's own choice of a speaker")
    if not cloning:
        return (neutral,)
    return (neutral, VoiceInfo(PLAIN, "Plain", description="No speaker given at all: may change by the text"))
