from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import EngineError, SettingsError
from tts_core.gepard.layout import Layout, pack
from tts_core.gepard.plugin.wire import adapt, prompt_of, read
from tts_core.nanocodec import fsq

LAYOUT = Layout(text=512, stop=498, fault=511, prefix_rows=8, voice_rows=64, frame_rows=1024)
frames = st.lists(st.tuples(*(st.integers(0, levels - 1) for levels in fsq.LEVELS)), max_size=4)


def output(
    codes: fsq.Codes, reason: str | None = None, stop_reason: int | None = None, ending: int | None = None
) -> Any:
    """What vLLM gives for these frames, and an id that is none after them."""
    tokens = [LAYOUT.frame + i for i in range(len(codes))] + ([] if ending is None else [ending])
    rows = [[token, *ids] for token, ids in zip(tokens, pack(codes).tolist(), strict=False)]
    rows += [[ending, *range(8)]] if ending is not None else []
    flat = SimpleNamespace(
        token_ids=[token for row in rows for token in row],
        logprobs=[
            0.25 * (i + 1) if column == 0 else 0.0 for i, row in enumerate(rows) for column in range(9)
        ],
        start_indices=[9 * i for i in range(len(rows))],
        end_indices=[9 * i + 9 for i in range(len(rows))],
    )
    return SimpleNamespace(token_ids=tokens, logprobs=flat, finish_reason=reason, stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("reason", "stop_reason", "ending", "finish", "failure"),
    [
        (None, None, None, "", ""),
        ("length", None, None, "length", ""),
        ("stop", LAYOUT.stop, LAYOUT.stop, "stop", ""),
        ("stop", LAYOUT.fault, LAYOUT.fault, "", "fault"),
        ("abort", None, None, "", "abort"),
        ("error", None, None, "", "abort"),
    ],
)
@given(rows=frames)
def test_frames_and_the_end_are_read(
    reason: str | None, stop_reason: int | None, ending: int | None, finish: str, failure: str, rows: Any
) -> None:
    codes = np.array(rows, np.uint8).reshape(-1, fsq.CHANNELS)
    part = read(LAYOUT, output(codes, reason, stop_reason, ending))
    assert np.array_equal(part.codes, codes)
    assert part.entropy.tolist() == [0.25 * (i + 1) for i in range(len(codes))]
    assert (part.finish, part.failure) == (finish, failure)


def test_an_output_without_tokens_is_nothing() -> None:
    part = read(LAYOUT, SimpleNamespace(token_ids=[], logprobs=None, finish_reason=None, stop_reason=None))
    assert (len(part.codes), part.finish, part.failure) == (0, "", "")


def test_ids_that_are_no_frame_are_an_error() -> None:
    wrong = output(np.zeros((1, 32), np.uint8))
    wrong.logprobs.token_ids[3] = 5
    with pytest.raises(EngineError):
        read(LAYOUT, wrong)


def test_a_salt_goes_with_the_prompt() -> None:
    assert prompt_of((1, 2), None) == {"type": "token", "prompt_token_ids": [1, 2]}
    assert prompt_of((1,), "voice")["cache_salt"] == "voice"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_our_classes_stand_in_where_they_are_needed(asynchronous: bool) -> None:
    config: Any = SimpleNamespace(
        use_v2_model_runner=asynchronous,
        parallel_config=SimpleNamespace(worker_cls="vllm.v1.worker.cpu_worker.CPUWorker"),
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous, scheduler_cls=None),
    )
    adapt(config, guidance=False)
    assert config.scheduler_config.scheduler_cls is None
    assert config.parallel_config.worker_cls.startswith("vllm.") == asynchronous
    config.parallel_config.worker_cls = "vllm.v1.worker.gpu_worker.Worker"
    adapt(config, guidance=True)
    assert str(config.scheduler_config.scheduler_cls).endswith("AsyncPairScheduler") == asynchronous


def test_a_platform_that_we_do_not_know_is_refused() -> None:
    config = SimpleNamespace(
        use_v2_model_runner=False, parallel_config=SimpleNamespace(worker_cls="vllm.other.Worker")
    )
    with pytest.raises(SettingsError, match="platform"):
        adapt(config, guidance=False)
