"""Scheduler for guided requests: the two halves of a pair must take every step together.

Guidance needs the logits of a request with its text and of one without (``cfg_mode``) in the same step. Both
are ordinary requests to vLLM, named a pair in ``extra_args``; the sampler joins them. So this scheduler holds
a half until the other has come, admits both in one step and only when both fit whole, and lets no long prompt
take the budget from a running half. Whoever came first is served first, paired or not.

Should the halves part nevertheless (a preemption), the sampler ends both: an error, never wrong audio.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from .signatures import takes

takes(Scheduler, "add_request", "request")
takes(Scheduler, "schedule")
takes(Scheduler, "finish_requests", "request_ids", "finished_status")
takes(Scheduler, "get_request_counts")
takes(Scheduler, "get_num_unfinished_requests")

HALF_TIMEOUT_S = 10.0
"""The client sends both halves at once; one whose partner has not come by then is dropped."""


def _pair(request: Any) -> tuple[str, str]:
    """Name of the pair and role of a request, both empty for one that stands alone."""
    extra = (request.sampling_params.extra_args or {}) if request.sampling_params else {}
    return str(extra.get("pair", "")), str(extra.get("role", ""))


def _wanted(request: Any) -> int:
    """Tokens that a running request has still to read, 1 for one that draws frames."""
    wanted: int = request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens
    return max(wanted, 0)


class _Pairs:
    """What the two schedulers below add to vLLM's."""

    running: list[Any]
    waiting: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._halves: dict[str, tuple[Any, float]] = {}
        self._line: deque[tuple[Any, ...]] = deque()

    def add_request(self, request: Any) -> None:
        """Queue a request; half of a pair waits for its other half first."""
        name, role = _pair(request)
        if not name:
            if self._line:
                self._line.append((request,))
            else:
                super().add_request(request)  # type: ignore[misc]
            return
        now = time.monotonic()
        self._halves = {key: half for key, half in self._halves.items() if now - half[1] < HALF_TIMEOUT_S}
        other = self._halves.pop(name, None)
        if other is None:
            self._halves[name] = (request, now)
        elif role == "leader":
            self._line.append((request, other[0]))
        else:
            self._line.append((other[0], request))

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Also of requests that are still held here."""
        if request_ids is None:
            self._halves.clear()
            self._line.clear()
        else:
            ids = {request_ids} if isinstance(request_ids, str) else set(request_ids)
            request_ids = ids
            self._halves = {k: h for k, h in self._halves.items() if h[0].request_id not in ids}
            # The partner of one that is gone could never run: it is the client's to abort both.
            self._line = deque(group for group in self._line if not any(r.request_id in ids for r in group))
        return super().finish_requests(request_ids, finished_status)  # type: ignore[misc]

    def get_num_unfinished_requests(self) -> int:
        """Including those that are held here and can run."""
        inner: int = super().get_num_unfinished_requests()  # type: ignore[misc]
        return inner + sum(len(group) for group in self._line)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Let in what fits, then let vLLM schedule, those that draw frames first."""
        # A stable order: a prompt that is read in chunks must not take a half's one token.
        self.running.sort(key=lambda request: _wanted(request) > 1)
        self._admit()
        return super().schedule(*args, **kwargs)  # type: ignore[misc]

    def _admit(self) -> None:
        me: Any = self
        size = me.cache_config.block_size
        tokens = me.scheduler_config.max_num_batched_tokens
        tokens -= sum(_wanted(request) for request in (*self.running, *self.waiting))
        room = me.max_num_running_reqs - sum(me.get_request_counts())
        blocks = me.kv_cache_manager.block_pool.get_num_free_blocks() - len(self.running)
        while self._line:
            group = self._line[0]
            need = sum(request.num_tokens for request in group)
            need_blocks = sum(-(-request.num_tokens // size) + 1 for request in group)
            fits = need <= tokens and len(group) <= room and need_blocks <= blocks
            # A pair that does not fit an idle engine never will: the sampler is left to say so.
            if len(group) > 1 and not fits and (self.running or self.waiting):
                return
            self._line.popleft()
            for request in group:
                super().add_request(request)  # type: ignore[misc]
            tokens, room, blocks = tokens - need, room - len(group), blocks - need_blocks


class PairScheduler(_Pairs, Scheduler):
    """vLLM's scheduler with pairs."""


class AsyncPairScheduler(_Pairs, AsyncScheduler):
    """vLLM's asynchronous scheduler with pairs."""
