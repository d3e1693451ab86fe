"""GEPARD on vLLM: many streams at once, by an unmodified vLLM and the plugin in ``plugin``.

All of vLLM runs in one process beside the gateway (``plugin.stepper``); this is what starts it and checks
requests. Nothing of vLLM is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tts_core.child.program import Program
from tts_core.errors import BadRequest

from .checkpoint import Checkpoint
from .frames import FrameRequest
from .layout import Layout
from .model_process import Limits, ModelProcess
from .plugin.serving import Plan, make_plan

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # everything it needs lies in the folder that it is given
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # this process is the only one
}


class VllmModel(ModelProcess):
    """The FrameModel of ``frames`` over vLLM's engine core.

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
        threads: that compute where the model runs on the CPU; None for one per core.
        first_timeout_s: seconds to a request's first frame, waiting included, before EngineTimeout.
        step_timeout_s: the same between frames.
        start_timeout_s: the same for ``start``.
        keeps_kv: insist that the KV cache holds every stream, so that none is ever preempted.
        arguments: further arguments for vLLM's ``EngineArgs``, plain values.

    Raises:
        SettingsError: the sizes do not fit each other or the model.
    """

    entry = "tts_core.gepard.plugin.stepper:main"

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
        threads: int | None = None,
        first_timeout_s: float = 30.0,
        step_timeout_s: float = 10.0,
        start_timeout_s: float = 900.0,
        keeps_kv: bool = True,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        sizes: dict[str, Any] = {
            "dtype": dtype,
            "max_streams": max_streams,
            "max_frames": max_frames,
            "max_context": max_context,
            "voices": voices,
            "guidance": guidance,
            "kv_bytes": kv_bytes,
            "frame_rows": frame_rows,
        }
        self.plan: Plan = make_plan(checkpoint.config, **sizes)
        self._max_frames, self._max_context = max_frames, max_context
        options = {
            "directory": str(checkpoint.directory.resolve()),
            "plan": sizes,
            "compiled": compiled,
            "keeps_kv": keeps_kv,
            "arguments": dict(arguments or {}),
        }
        super().__init__(
            Program("vllm", self.entry, start_timeout_s, threads=threads, env=_environment()),
            options,
            checkpoint.config,
            slots=max_streams,
            waiting=max_streams,
            # Who waits in vain is told before the process is given up.
            limits=Limits(first_timeout_s, step_timeout_s, 2 * max(first_timeout_s, step_timeout_s)),
        )

    @property
    def layout(self) -> Layout:
        """The id ranges of this engine."""
        return self.plan.layout

    async def start(self) -> None:
        """Start vLLM, or start it anew if it has died; nothing happens while it is alive.

        Raises:
            ImportError: there is no vLLM here.
            SettingsError: this machine or this vLLM cannot serve the plan; says what to change.
            EngineError: it did not come up, its own log says why, or not within ``start_timeout_s``.
        """
        if find_spec("vllm") is None:
            raise ImportError("vllm is not installed", name="vllm")
        await super().start()

    async def stats(self) -> dict[str, float]:
        """Counters by name: those of ``ModelProcess``, and more.

        ``slots``; ``voices`` in the table, ``faults`` (requests that lost frames), ``steps``, ``cursor``
        (frames allocated), ``resumed`` (requests that were preempted and came back: 0 unless the KV cache was
        made too small) and ``runner`` (vLLM's model runner, 1 or 2).

        Raises:
            EngineError: the engine is not running or does not answer.
        """
        inner = await self.ask("stats")
        own = {**await super().stats(), "slots": self.slots}
        return {name: float(value) for name, value in (*own.items(), *inner.items())}

    def _check(self, request: FrameRequest) -> None:
        """Refuse what does not fit."""
        if request.sampling.max_frames > self._max_frames:
            raise BadRequest(f"max_frames may be {self._max_frames} at most", field="max_frames")
        if request.context is not None and len(request.context) > self._max_context:
            raise BadRequest(f"the context may have {self._max_context} frames at most", field="context")
        if request.positions > self.plan.positions:
            raise BadRequest("the text is too long for the engine", field="text")
        super()._check(request)
        if request.prefix is not None and (
            not self._config.prefix_rows or len(request.prefix.rows) != self.layout.prefix_rows
        ):
            raise BadRequest("the voice was made for another model", field="voice")
        if request.uncond is not None and request.sampling.guides(0) and not self.plan.guidance:
            raise BadRequest("this engine was started without guidance", field="cfg_scale")


def _environment() -> dict[str, str]:
    """What vLLM reads from the environment. Words that are set already are left as they are."""
    made = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    made["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    torch = find_spec("torch")
    if torch is not None and torch.origin is not None and "libgomp" not in os.environ.get("LD_PRELOAD", ""):
        # One OpenMP for torch and for vLLM's kernels, as vLLM sees to for workers that it starts itself.
        found = sorted((Path(torch.origin).parent / "lib").glob("libgomp*.so*"))
        preload = [*map(str, found[:1]), os.environ.get("LD_PRELOAD", "")]
        made["LD_PRELOAD"] = ":".join(path for path in preload if path)
    return made
