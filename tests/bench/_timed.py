"""The worker extension of the gepard bench: when the model ran, and for how long."""

from __future__ import annotations

import time
from typing import Any

from tts_core.gepard.plugin.worker_ext import GepardWorkerExtension


class TimedExtension(GepardWorkerExtension):
    """Our worker calls, and one that says when the model ran and for how long."""

    def gepard_clock(self) -> list[tuple[int, float, float]]:
        """Rows, begin and end (monotonic seconds) of each forward since the last call."""
        model = self.model_runner.get_model()
        if not hasattr(model, "bench_calls"):
            model.bench_calls = []
            forward, logits = model.forward, model.compute_logits

            def timed_forward(input_ids: Any, *args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                hidden = forward(input_ids, *args, **kwargs)
                model.bench_calls.append([len(hidden), began, time.perf_counter()])
                return hidden

            def timed_logits(*args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                out = logits(*args, **kwargs)
                model.bench_calls[-1][2] += time.perf_counter() - began
                return out

            model.forward, model.compute_logits = timed_forward, timed_logits
        calls = [tuple(call) for call in model.bench_calls]
        model.bench_calls.clear()
        return calls
