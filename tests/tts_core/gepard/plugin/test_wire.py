from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import EngineError, SettingsError
from tts_core.gepard.frames import NO_CODES
from tts_core.gepard.layout import Layout, pack
from tts_core.gepard.plugin.wire import adapt, ending, read, request_of
from tts_core.nanocodec import fsq

LAYOUT = Layout(text=512, stop=498, fault=511, prefix_rows=8, voice_rows=64, frame_rows=1024)
frames = st.lists(st.tuples(*(st.integers(0, levels - 1) for levels in fsq.LEVELS)), max_size=4)


def output(
    codes: fsq.Codes, reason: str | None = None, stop_reason: int | None = None, ending: int | None = None
) -> Any:
    """What vLLM's core gives for these frames, and an id that is none after them."""
    tokens = [LAYOUT.frame + i for i in range(len(codes))] + ([] if ending is None else [ending])
    rows = [[token, *ids] for token, ids in zip(tokens, pack(codes).tolist(), strict=False)]
    rows += [[ending, *range(8)]] if ending is not None else []
    logprobs = np.zeros((len(rows), 9), np.float32)
    logprobs[:, 0] = 0.25 * np.arange(1, len(rows) + 1)
    table = SimpleNamespace(logprob_token_ids=np.array(rows, np.int32).reshape(-1, 9), logprobs=logprobs)
    return SimpleNamespace(
        new_logprobs=table if rows else None, finish_reason=reason, stop_reason=stop_reason
    )


ENDINGS = [
    (None, None, None, "", ""),
    ("length", None, None, "length", ""),
    ("stop", LAYOUT.stop, LAYOUT.stop, "stop", ""),
    ("stop", LAYOUT.fault, LAYOUT.fault, "", "fault"),
    ("abort", None, None, "", "abort"),
    ("error", None, None, "", "abort"),
]


@given(asked=st.lists(st.tuples(frames, st.sampled_from(ENDINGS)), max_size=5))
def test_frames_and_ends_of_a_step_are_read(asked: list[tuple[Any, Any]]) -> None:
    codes = [np.array(rows, np.uint8).reshape(-1, fsq.CHANNELS) for rows, _ in asked]
    outputs = [output(one, *end[:3]) for one, (_, end) in zip(codes, asked, strict=True)]
    counts, read_codes, entropy = read(LAYOUT, outputs)
    assert counts == [len(one) for one in codes]
    assert np.array_equal(read_codes, np.concatenate([NO_CODES, *codes]))
    assert entropy.tolist() == [0.25 * (i + 1) for one in codes for i in range(len(one))]
    assert read_codes.dtype == np.uint8 and entropy.dtype == np.float32
    for one, (_, end) in zip(outputs, asked, strict=True):
        assert one.finish_reason is None or ending(LAYOUT, one) == end[3:]


def test_ids_that_are_no_frame_are_an_error() -> None:
    wrong = output(np.zeros((1, 32), np.uint8))
    wrong.new_logprobs.logprob_token_ids[0, 3] = 5
    with pytest.raises(EngineError):
        read(LAYOUT, [wrong])


def test_a_request_in_the_words_of_vllm() -> None:
    extra = {"temperature": 0.5}
    made = request_of("7", [1, 2], layout=LAYOUT, frames=9, salt="voice", extra=extra)
    assert (made.request_id, made.prompt_token_ids, made.cache_salt) == ("7", [1, 2], "voice")
    params = made.sampling_params
    assert (params.max_tokens, params.extra_args, params.temperature) == (9, extra, 0.0)
    assert params.all_stop_token_ids == {LAYOUT.stop, LAYOUT.fault}


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
