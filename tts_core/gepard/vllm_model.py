"""GEPARD on vLLM: many streams at once, by an unmodified vLLM and the plugin in ``plugin``.

The engine runs in processes of its own; this is its client. A dead engine fails every running request with
EngineCrashed and shows in ``alive``; who supervises it calls ``start`` again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tts_core.errors import BadRequest, Busy, EngineCrashed, EngineError, EngineTimeout, SettingsError

from .checkpoint import Checkpoint
from .frames import FrameBatch, FrameRequest, SpeakerPrefix
from .layout import Layout
from .plugin.serving import (
    WEIGHTS,
    Plan,
    check_blocks,
    check_memory,
    engine_arguments,
    make_plan,
    write_folder,
)
from .plugin.voices import Place, VoiceTable

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # everything it needs lies in the folder that it is given
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads and an event loop
}
PLUGIN = "voxwire_gepard"
"""Our entry point in the group ``vllm.general_plugins``: how vLLM's processes find the plugin."""


class VllmModel:
    """The FrameModel of ``frames`` over vLLM's AsyncLLM.

    Args:
        checkpoint: the model.
        dtype: of weights, activations and KV cache: "bfloat16", "float16" or "float32".
        max_streams: requests that run at once; as many again may wait.
        max_frames: most frames of one request.
        max_context: most frames of context of one request.
        voices: speaker prefixes kept in the model, at least ``max_streams``.
        guidance: allow guided requests; each then takes two of vLLM's sequences.
        compiled: compile the model (a minute at the first start, faster steps) or run it as it is written.
        kv_bytes: size of the KV cache; None for what ``max_streams`` requests at full length need.
        frame_rows: rows of the frame table, a power of two; None for four times what can be in use.
        first_timeout_s: seconds to a request's first frame, waiting included, before EngineTimeout.
        step_timeout_s: the same between frames.
        start_timeout_s: the same for ``start``.
        keeps_kv: insist that the KV cache holds every stream, so that none is ever preempted.
        arguments: further arguments for vLLM's ``AsyncEngineArgs``.

    Raises:
        SettingsError: the sizes do not fit each other or the model.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        dtype: str = "bfloat16",
        max_streams: int = 32,
        max_frames: int = 512,
        max_context: int = 64,
        voices: int = 256,
        guidance: bool = False,
        compiled: bool = True,
        kv_bytes: int | None = None,
        frame_rows: int | None = None,
        first_timeout_s: float = 30.0,
        step_timeout_s: float = 10.0,
        start_timeout_s: float = 900.0,
        keeps_kv: bool = True,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan: Plan = make_plan(
            checkpoint.config,
            dtype=dtype,
            max_streams=max_streams,
            max_frames=max_frames,
            max_context=max_context,
            voices=voices,
            guidance=guidance,
            kv_bytes=kv_bytes,
            frame_rows=frame_rows,
        )
        self._checkpoint, self._max_streams = checkpoint, max_streams
        self._max_frames, self._max_context = max_frames, max_context
        self._compiled, self._keeps_kv, self._arguments = compiled, keeps_kv, dict(arguments or {})
        self._first_s, self._step_s, self._start_s = first_timeout_s, step_timeout_s, start_timeout_s
        self._engine: Any = None
        self._folder: Path | None = None
        self._starting = asyncio.Lock()
        self._running = 0
        self._voices = VoiceTable(self.layout.voices)
        self._uploads: dict[Place, asyncio.Future[None]] = {}
        self._faults = 0

    @property
    def layout(self) -> Layout:
        """The id ranges of this engine."""
        return self.plan.layout

    @property
    def alive(self) -> bool:
        """Whether the engine runs."""
        return self._engine is not None and not self._engine.errored

    @property
    def slots(self) -> int:
        """Requests that run at once."""
        return self._max_streams

    @property
    def running(self) -> int:
        """Requests that were begun and are not over."""
        return self._running

    async def start(self) -> None:
        """Start vLLM, or start it anew if it has died; nothing happens while it is alive.

        Raises:
            SettingsError: this machine or this vLLM cannot serve the plan; says what to change.
            EngineTimeout: not up within ``start_timeout_s``.
            EngineError: it did not come up; its own log says why.
        """
        async with self._starting:
            if self.alive:
                return
            await self._stop()
            building = asyncio.ensure_future(asyncio.to_thread(self._build))
            try:
                async with asyncio.timeout(self._start_s):
                    engine = await asyncio.shield(building)
            except (asyncio.CancelledError, TimeoutError) as error:
                # The thread cannot be stopped; what it brings up must not stay.
                building.add_done_callback(_discard)
                if isinstance(error, TimeoutError):
                    raise EngineTimeout("the engine did not start in time") from None
                raise
            self._voices, self._uploads = VoiceTable(self.layout.voices), {}
            self._engine = engine
            try:
                cache = engine.vllm_config.cache_config
                if self._keeps_kv:
                    check_blocks(self.plan, cache.num_gpu_blocks, cache.block_size)
                await self._call("gepard_stats")
            except BaseException:
                await self._stop()
                raise

    async def close(self) -> None:
        """Stop vLLM; running requests end with EngineError. Idempotent."""
        async with self._starting:
            await self._stop()

    async def generate(self, request: FrameRequest) -> AsyncGenerator[FrameBatch, None]:
        """Make frames until the end; closing the iterator aborts within one step.

        Raises:
            BadRequest: the request does not fit this engine.
            Busy: too many requests wait, or too many voices are in use.
            EngineCrashed: the engine is not running, or died under the request.
            EngineTimeout: no frame in time.
            EngineError: frames that the request refers to were overwritten, or vLLM failed otherwise.
        """
        guided = self._check(request)
        if not self.alive:
            raise EngineCrashed("the engine is not running")
        if self._running >= 2 * self._max_streams:
            raise Busy("too many requests wait for the engine", retry_after=1.0)
        self._running += 1
        try:
            async with contextlib.AsyncExitStack() as held:
                stream = await self._begin(held, request, guided)
                deadline = self._first_s
                while True:
                    output = await self._in_time(anext(stream), deadline)
                    deadline = self._step_s
                    batch, failure = self._read(output.outputs[0])
                    if batch is not None:
                        yield batch
                    if failure is not None:
                        raise failure
                    if batch is not None and batch.finish:
                        return
        except StopAsyncIteration:
            raise EngineError("the engine ended a request without a word") from None
        finally:
            self._running -= 1

    async def stats(self) -> dict[str, float]:
        """Counters by name.

        ``running``, ``slots``, ``voices`` (in the table), ``faults`` (requests that lost frames); from the
        engine ``steps``, ``cursor`` (frames allocated), ``resumed`` (requests that were preempted and came
        back: 0 unless the KV cache was made too small) and ``runner`` (vLLM's model runner, 1 or 2).

        Raises:
            EngineError: the engine is not running or does not answer.
        """
        if not self.alive:
            raise EngineCrashed("the engine is not running")
        inner = (await self._call("gepard_stats"))[0]
        own = {
            "running": self._running,
            "slots": self._max_streams,
            "voices": len(self._voices),
            "faults": self._faults,
        }
        return {name: float(value) for name, value in (*own.items(), *inner.items())}

    def _check(self, request: FrameRequest) -> bool:
        """Refuse what does not fit; returns whether the request is guided."""
        if request.sampling.max_frames > self._max_frames:
            raise BadRequest(f"max_frames may be {self._max_frames} at most", field="max_frames")
        if request.context is not None and len(request.context) > self._max_context:
            raise BadRequest(f"the context may have {self._max_context} frames at most", field="context")
        if request.positions > self.plan.positions:
            raise BadRequest("the text is too long for the engine", field="text")
        if max(*request.ids, *(request.uncond or (0,)), 0) >= self.layout.text or min(request.ids) < 0:
            raise BadRequest("the text holds ids that are none", field="text")
        if request.prefix is not None:
            shape = (self.layout.prefix_rows, self._checkpoint.config.hidden_size)
            if not self._checkpoint.config.prefix_rows or request.prefix.rows.shape != shape:
                raise BadRequest("the voice was made for another model", field="voice")
        guided = request.uncond is not None and request.sampling.guides(0)
        if guided and not self.plan.guidance:
            raise BadRequest("this engine was started without guidance", field="cfg_scale")
        return guided

    def _build(self) -> Any:
        """Start vLLM; blocks for up to a minute, so it runs in a thread."""
        for name, value in _ENVIRONMENT.items():  # read when vllm is imported
            os.environ.setdefault(name, value)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        from .plugin import register
        from .plugin.signatures import takes
        from .plugin.wire import adapt

        takes(AsyncLLM, "generate", "prompt", "sampling_params", "request_id")
        takes(AsyncLLM, "collective_rpc", "method", "timeout", "args")
        register()
        if PLUGIN not in {point.name for point in metadata.entry_points(group="vllm.general_plugins")}:
            raise SettingsError("vllm does not see the plugin: install voxwire into this environment")
        tensors = self._checkpoint.directory / WEIGHTS
        cpu = bool(current_platform.is_cpu())
        if cpu:
            check_memory(self.plan, tensors)
        self._folder = Path(tempfile.mkdtemp(prefix="voxwire-gepard-"))
        write_folder(self._folder, self._checkpoint.config, self.plan, tensors)
        arguments = engine_arguments(self._folder, self.plan, cpu=cpu, compiled=self._compiled)
        try:
            config = AsyncEngineArgs(**{**arguments, **self._arguments}).create_engine_config()
            adapt(config, guidance=self.plan.guidance)
            return AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        except SettingsError:
            raise
        except Exception as error:
            _log.exception("vllm did not start")
            raise EngineError(
                "the engine did not start; its log says why (where memory is short, lower max_streams or "
                "max_frames)"
            ) from error

    async def _stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            from vllm.v1.engine.exceptions import EngineDeadError

            # Readers wait on queues that nobody would fill any more.
            engine.output_processor.propagate_error(EngineDeadError())
            if engine.output_handler is not None:
                engine.output_handler.cancel()
            await asyncio.to_thread(engine.shutdown)
            engine.shutdown = (
                _no_more  # it does so again when it is collected, be it at the interpreter's end
            )
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _call(self, method: str, *args: Any) -> list[Any]:
        """Ask the worker; one answer from each."""
        engine = self._engine
        if engine is None:
            raise EngineCrashed("the engine is not running")
        answer: list[Any] = await self._in_time(engine.collective_rpc(method, args=args), self._first_s)
        return answer

    async def _in_time(self, work: Awaitable[_T], seconds: float) -> _T:
        """Await vLLM with a deadline and in our terms."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise EngineTimeout("the engine does not answer") from None
        except EngineDeadError:
            raise EngineCrashed("the engine died under the request") from None
        except (EngineError, StopAsyncIteration, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("vllm failed on a request")
            if not self.alive:
                raise EngineCrashed("the engine died under the request") from error
            raise EngineError("the engine failed on the request") from error

    async def _begin(
        self, held: contextlib.AsyncExitStack, request: FrameRequest, guided: bool
    ) -> AsyncGenerator[Any, None]:
        """Send a request to vLLM; leaving ``held`` takes everything back."""
        engine, layout, sampling = self._engine, self.layout, request.sampling
        before: tuple[int, ...] = ()
        after: list[int] = []
        salt: str | None = None
        if request.prefix is not None:
            place = await held.enter_async_context(self._placed(request.prefix))
            # The cache of keys knows ids; what lies behind a voice id changes.
            before, salt = layout.voice_ids(place.slot), request.prefix.fingerprint
        if request.context is not None and len(request.context):
            codes = np.ascontiguousarray(request.context, np.uint8)
            after = (await self._call("gepard_put_frames", codes.tobytes()))[0]
        extra = sampling.as_extra_args()
        if guided and request.uncond is not None:
            extra["pair"] = uuid.uuid4().hex
            frames = min(sampling.max_frames, sampling.cfg_frames or sampling.max_frames)
            follower = self._sequence(
                engine,
                f"{request.id}-uncond",
                [*before, *request.uncond, *after],
                frames=frames,
                salt=salt,
                extra={**extra, "role": "follower"},
            )
            await held.enter_async_context(self._drained(follower))
            extra["role"] = "leader"
        stream = self._sequence(
            engine,
            request.id,
            [*before, *request.ids, *after],
            frames=sampling.max_frames,
            salt=salt,
            extra=extra,
        )
        held.push_async_callback(self._abort, stream)
        return stream

    @contextlib.asynccontextmanager
    async def _placed(self, prefix: SpeakerPrefix) -> AsyncIterator[Place]:
        """Hold the place of a prefix in the voice table, its rows written."""
        table = self._voices
        place, fresh = table.take(prefix)
        try:
            if not fresh and not np.array_equal(place.prefix.rows, prefix.rows):
                raise BadRequest("two voices have one fingerprint", field="voice")
            if fresh:
                rows = np.ascontiguousarray(prefix.rows, "<f4").tobytes()
                self._uploads[place] = asyncio.ensure_future(self._upload(place, rows, table))
            upload = self._uploads.get(place)
            if upload is not None:
                await asyncio.shield(upload)
            yield place
        finally:
            table.give_back(place)

    async def _upload(self, place: Place, rows: bytes, table: VoiceTable) -> None:
        try:
            await self._call("gepard_set_voice", place.slot, rows)
        except BaseException:
            table.drop(place)
            raise
        finally:
            self._uploads.pop(place, None)

    @contextlib.asynccontextmanager
    async def _drained(self, stream: AsyncGenerator[Any, None]) -> AsyncIterator[None]:
        """Read the half of a guided request that has no text: its frames are the other half's."""

        async def read() -> None:
            # Should it fail, the other half fails too: it is its reader who is told.
            with contextlib.suppress(Exception):
                async for _ in stream:
                    pass

        task = asyncio.create_task(read())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=self._step_s)

    async def _abort(self, stream: AsyncGenerator[Any, None]) -> None:
        """Abort one of vLLM's requests, if it is not over."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._step_s):
                await stream.aclose()

    def _sequence(
        self,
        engine: Any,
        name: str,
        ids: list[int],
        *,
        frames: int,
        salt: str | None,
        extra: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        """One of vLLM's requests. Closing the generator aborts it."""
        from .plugin.wire import params_of, prompt_of

        params = params_of(self.layout, frames, extra)
        stream: AsyncGenerator[Any, None] = engine.generate(prompt_of(ids, salt), params, name)
        return stream

    def _read(self, output: Any) -> tuple[FrameBatch | None, EngineError | None]:
        """One of vLLM's outputs: the frames in it, if any, and what went wrong, if anything."""
        from .plugin.wire import read

        part = read(self.layout, output)
        self._faults += part.failure == "fault"
        batch = None
        if len(part.codes) or part.finish:
            batch = FrameBatch(part.codes, part.entropy, part.finish)
        return batch, EngineError("the engine could not go on with the request") if part.failure else None


def _no_more(timeout: float | None = None) -> None:
    """Take the place of a shutdown that has been done."""


def _discard(building: asyncio.Future[Any]) -> None:
    """Shut an engine down that came up after nobody waited for it any more."""
    if not building.cancelled() and building.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, building.result().shutdown)
