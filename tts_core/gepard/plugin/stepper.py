"""vLLM's engine core in this process, step by step. Runs in a ``model_worker``.

An ordinary vLLM has its core in a process of its own and a client that speaks with it over sockets, in an
event loop; here the core, the worker and the model share one process and one thread, and a request is handed
over by a call. Everything below the core is vLLM's own: scheduler, KV cache, both model runners, and batches
in flight where scheduling is asynchronous.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.errors import BadRequest, EngineError, SettingsError, VoxwireError

from ..checkpoint import Checkpoint
from ..config import GepardConfig
from ..frames import Finish, FrameRequest, SpeakerPrefix
from ..model_worker import Given, run, unknown
from .serving import (
    WEIGHTS,
    Plan,
    check_blocks,
    check_memory,
    engine_arguments,
    make_plan,
    write_folder,
)
from .voices import Place, VoiceTable
from .wire import adapt, ending, read, request_of

log = logging.getLogger(__name__)

FOLLOWER = "-uncond"
"""Ends the name of the half of a guided request that has no text: its frames are the other half's."""


def main(fd: int) -> None:
    """Be a worker; never returns."""
    run(fd, load, family=True)


def load(options: Mapping[str, Any]) -> Stepper:
    """Start vLLM.

    Args:
        options: ``directory`` of the checkpoint, ``plan`` (arguments of ``make_plan``), ``compiled``,
            ``keeps_kv`` and ``arguments``, see ``VllmModel``.

    Raises:
        SettingsError: this machine or this vLLM cannot serve the plan; says what to change.
        EngineError: it did not come up; its own log says why.
    """
    checkpoint = Checkpoint.open(Path(options["directory"]))
    plan = make_plan(checkpoint.config, **options["plan"])
    core = _core(checkpoint, plan, options["arguments"], compiled=options["compiled"])
    cache = core.engine_core.vllm_config.cache_config
    if options["keeps_kv"]:
        check_blocks(plan, cache.num_gpu_blocks, cache.block_size)
    return Stepper(checkpoint.config, plan, core)


def _core(checkpoint: Checkpoint, plan: Plan, arguments: Mapping[str, Any], *, compiled: bool) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.executor import Executor
    from vllm.v1.outputs import LogprobsLists

    from . import register
    from .signatures import has, takes

    takes(InprocClient, "__init__", "vllm_config", "executor_class", "log_stats")
    takes(InprocClient, "get_output")
    takes(InprocClient, "add_request", "request")
    takes(InprocClient, "abort_requests", "request_ids")
    takes(InprocClient, "collective_rpc", "method", "timeout", "args")
    has(EngineCoreRequest, "request_id", "prompt_token_ids", "mm_features", "sampling_params", "cache_salt")
    has(EngineCoreOutput, "request_id", "new_token_ids", "new_logprobs", "finish_reason", "stop_reason")
    has(LogprobsLists, "logprob_token_ids", "logprobs")
    register()
    tensors = checkpoint.directory / WEIGHTS
    cpu = bool(current_platform.is_cpu())
    if cpu:
        check_memory(plan, tensors)
    # Read while the core starts, and never again.
    with tempfile.TemporaryDirectory(prefix="voxwire-gepard-") as name:
        write_folder(Path(name), checkpoint.config, plan, tensors)
        wanted = {**engine_arguments(Path(name), plan, cpu=cpu, compiled=compiled), **arguments}
        try:
            config = EngineArgs(**wanted).create_engine_config()
            adapt(config, guidance=plan.guidance)
            return InprocClient(config, Executor.get_class(config), log_stats=False)
        except SettingsError:
            raise
        except Exception as error:
            log.exception("vllm did not start")
            raise EngineError(
                "the engine did not start; its log says why (where memory is short, lower max_streams or "
                "max_frames)"
            ) from error


@dataclass(slots=True)
class _Running:
    """A request in vLLM: its number, the voice place it uses, and the names of its sequences."""

    ident: int
    place: Place | None
    names: list[str]


class Stepper:
    """Requests in vLLM. Fulfils ``model_worker.Served``.

    Args:
        config: of the model.
        plan: the sizes that ``core`` was made with.
        core: vLLM's ``InprocClient``.
    """

    def __init__(self, config: GepardConfig, plan: Plan, core: Any) -> None:
        self.core, self._plan, self._layout = core, plan, plan.layout
        self._hidden = config.hidden_size
        self._prefixes = bool(config.prefix_rows)
        self._voices = VoiceTable(self._layout.voices)
        self._running: dict[str, _Running] = {}
        self._faults = 0

    @property
    def busy(self) -> bool:
        """Whether vLLM has requests, or has still to hear that one is over, or a batch is in flight."""
        engine = self.core.engine_core
        return bool(engine.scheduler.has_requests() or engine.batch_queue)

    def begin(self, ident: int, request: FrameRequest) -> None:
        """Hand a request to vLLM.

        Raises:
            BadRequest: its voice is of another model, or its fingerprint that of another voice.
            Busy: too many voices are in use.
        """
        running = _Running(ident, None, [])
        before: tuple[int, ...] = ()
        salt: str | None = None
        if request.prefix is not None:
            running.place = self._place(request.prefix)
            # The cache of keys knows ids; what lies behind a voice id changes.
            before, salt = self._layout.voice_ids(running.place.slot), request.prefix.fingerprint
        try:
            self._send(running, request, before, salt)
        except BaseException:
            self._drop(running)
            raise

    def cancel(self, ident: int) -> None:
        """Abort a request."""
        running = self._running.get(str(ident))
        if running is not None:
            self._drop(running)

    def step(self) -> Given:
        """One step of vLLM, or what a batch in flight gave."""
        outputs = [output for output in self.core.get_output().outputs if output.request_id in self._running]
        counts, codes, entropy = read(self._layout, outputs)
        parts: list[tuple[int, int, Finish]] = []
        failures: list[tuple[int, VoxwireError]] = []
        for output, count in zip(outputs, counts, strict=True):
            running = self._running[output.request_id]
            finish: Finish = ""
            if output.finish_reason is not None:
                finish, failure = ending(self._layout, output)
                if failure:
                    self._faults += failure == "fault"
                    error = EngineError("the engine could not go on with the request")
                    failures.append((running.ident, error))
                self._drop(running)
            if count or finish:
                parts.append((running.ident, count, finish))
        return Given(parts, codes, entropy, failures)

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """``stats``, ``forget``, or a method of the worker's extension (``worker_ext``): what it gave."""
        if name == "stats":
            inner = self._rpc("gepard_stats")
            return {"voices": len(self._voices), "faults": self._faults, **inner}
        if name == "forget":
            place = self._voices.forget(str(arguments[0]))
            if place is not None and place.users == 0:
                self._erase(place)
            return None
        if not name.startswith("gepard_"):
            raise unknown(name)
        return self._rpc(name, *arguments)

    def _rpc(self, name: str, *arguments: Any) -> Any:
        return self.core.collective_rpc(name, None, arguments)[0]

    def _erase(self, place: Place) -> None:
        """Overwrite the rows of a voice that was deleted."""
        rows = np.zeros((self._layout.prefix_rows, self._hidden), "<f4")
        self._rpc("gepard_set_voice", place.slot, rows.tobytes())

    def _place(self, prefix: SpeakerPrefix) -> Place:
        """The place of a prefix in the voice table, in use, its rows written."""
        if not self._prefixes or prefix.rows.shape != (self._layout.prefix_rows, self._hidden):
            raise BadRequest("the voice was made for another model", field="voice")
        place, fresh = self._voices.take(prefix)
        try:
            if fresh:
                self._rpc("gepard_set_voice", place.slot, prefix.rows.astype("<f4").tobytes())
            elif not np.array_equal(place.prefix.rows, prefix.rows):
                raise BadRequest("two voices have one fingerprint", field="voice")
        except BaseException:
            if fresh:
                self._voices.drop(place)
            self._voices.give_back(place)
            raise
        return place

    def _send(
        self, running: _Running, request: FrameRequest, before: tuple[int, ...], salt: str | None
    ) -> None:
        after: list[int] = []
        if request.context is not None and len(request.context):
            after = self._rpc("gepard_put_frames", np.ascontiguousarray(request.context).tobytes())
        sampling, name = request.sampling, str(running.ident)
        extra = sampling.as_extra_args()
        if request.uncond is not None and sampling.guides(0):
            extra |= {"pair": name, "role": "leader"}
            frames = min(sampling.max_frames, sampling.cfg_frames or sampling.max_frames)
            self._add(
                running,
                name + FOLLOWER,
                [*before, *request.uncond, *after],
                frames=frames,
                salt=salt,
                extra={**extra, "role": "follower"},
            )
        ids = [*before, *request.ids, *after]
        self._add(running, name, ids, frames=sampling.max_frames, salt=salt, extra=extra)
        self._running[name] = running

    def _add(self, running: _Running, name: str, ids: list[int], **how: Any) -> None:
        running.names.append(name)
        self.core.add_request(request_of(name, ids, layout=self._layout, **how))

    def _drop(self, running: _Running) -> None:
        """Forget a request: abort what of it vLLM still has, and let others have its place."""
        self._running.pop(str(running.ident), None)
        self.core.abort_requests(running.names)
        if running.place is not None:
            place, running.place = running.place, None
            self._voices.give_back(place)
            if place.erase and place.users == 0:
                self._erase(place)
