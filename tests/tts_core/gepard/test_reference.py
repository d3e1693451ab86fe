"""The plain loop beside a plainer one: transformers' backbone, everything read again for each frame."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tts_core.gepard.cases import TEXT, joined, prefix_of, random_codes, request
from tests.tts_core.gepard.test_backbone import peer
from tts_core.errors import BadRequest, EngineError, TextTooLong
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest, SpeakerPrefix
from tts_core.gepard.noise import gumbel
from tts_core.gepard.reference import ReferenceModel, draw, entropy
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec import fsq


class Plainer:
    """No cache, no fused heads, double the time of the other one: greedy and guided requests."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.w = checkpoint.tensors()
        self.backbone = peer(checkpoint, checkpoint.tensors("model."))

    def embed(self, codes: Any) -> torch.Tensor:
        w = self.w
        row = torch.cat([w[f"audio_embeddings.{k}.weight"][int(c)] for k, c in enumerate(codes)])
        row = torch.nn.GELU()(w["audio_embed_proj.0.weight"] @ row + w["audio_embed_proj.0.bias"])
        row = w["audio_embed_proj.2.weight"] @ row + w["audio_embed_proj.2.bias"]
        row = (row - row.mean()) / torch.sqrt(row.var(unbiased=False) + 1e-5)
        return row * w["audio_embed_scale"]

    def hidden(self, ids: tuple[int, ...], prefix: SpeakerPrefix | None, frames: list[Any]) -> torch.Tensor:
        rows = [self.w["model.embed_tokens.weight"][list(ids)]]
        if prefix is not None:
            rows.insert(0, torch.tensor(prefix.rows))
        rows += [self.embed(frame)[None] for frame in frames]
        return self.backbone(inputs_embeds=torch.cat(rows)[None], use_cache=False).last_hidden_state[0, -1]

    def heads(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        w = self.w
        return [w[f"codebook_heads.{k}.weight"] @ hidden + w[f"codebook_heads.{k}.bias"] for k in range(32)]

    @torch.inference_mode()
    def run(self, asked: FrameRequest) -> tuple[list[list[int]], str]:
        s = asked.sampling
        before = [] if asked.context is None else [list(frame) for frame in asked.context]
        frames: list[list[int]] = []
        while len(frames) < s.max_frames:
            hidden = self.hidden(asked.ids, asked.prefix, before + frames)
            stop = self.w["stop_head.weight"] @ hidden + self.w["stop_head.bias"]
            if frames and float(torch.sigmoid(stop)) > s.stop_threshold:
                return frames, "stop"
            heads = self.heads(hidden)
            if asked.uncond and s.cfg_scale != 1.0 and (s.cfg_frames is None or len(frames) < s.cfg_frames):
                others = self.heads(self.hidden(asked.uncond, asked.prefix, before + frames))
                heads = [u + s.cfg_scale * (c - u) for c, u in zip(heads, others, strict=True)]
            if s.repetition_penalty != 1.0:
                window = frames[-s.repetition_window :] if s.repetition_window else frames
                for k, head in enumerate(heads):
                    for code in {frame[k] for frame in window}:
                        head[code] *= 1 / s.repetition_penalty if head[code] > 0 else s.repetition_penalty
            frames.append([int(head.argmax()) for head in heads])
        return frames, "length"


@pytest.fixture(scope="module")
def plainer(checkpoint: Checkpoint) -> Plainer:
    return Plainer(checkpoint)


CASES: list[dict[str, Any]] = [
    {},
    {"prefix": 1},
    {"prefix": 2, "text": "No."},
    {"text": "Your order number is one two three."},
    {"repetition_penalty": 1.3, "repetition_window": 8},
    {"repetition_penalty": 1.2, "repetition_window": 0, "prefix": 3},
    {"cfg_scale": 3.0, "prefix": 1},
    {"cfg_scale": 2.0, "cfg_mode": "audio_only"},
    {"cfg_scale": 3.0, "cfg_frames": 4, "repetition_penalty": 1.5},
    {"cfg_scale": 0.0, "max_frames": 6},
    {"context": 5, "prefix": 2},
    {"context": 3, "cfg_scale": 2.0},
    {"stop_threshold": 1.0, "max_frames": 50},
    {"stop_threshold": 0.0, "max_frames": 50},
    {"max_frames": 1},
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(f"{k}={v}" for k, v in case.items()) or "plain"
)
def test_equals_a_loop_without_cache(
    checkpoint: Checkpoint, model: ReferenceModel, plainer: Plainer, case: dict[str, Any]
) -> None:
    case = dict(case)
    prefix = prefix_of(checkpoint, case.pop("prefix")) if "prefix" in case else None
    context = random_codes(case.pop("context")) if "context" in case else None
    asked = request(checkpoint, prefix=prefix, context=context, **case)
    codes, _, finish = joined(model.frames(asked))
    assert (codes.tolist(), finish) == plainer.run(asked)


def test_both_ends_occur(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    texts = [f"This is number {n}, and that was number {n - 1}." for n in range(12)]
    ends = Counter(joined(model.frames(request(checkpoint, text)))[2] for text in texts)
    assert ends["stop"] >= 2 and ends["length"] >= 2


def test_the_end_by_the_stop_head(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    """At threshold 0 the second step ends it: the first frame comes without a look at the stop head."""
    codes, entropies, finish = joined(model.frames(request(checkpoint, stop_threshold=0.0)))
    assert len(codes) == len(entropies) == 1 and finish == "stop"
    codes, _, finish = joined(model.frames(request(checkpoint, stop_threshold=0.0, max_frames=1)))
    assert len(codes) == 1 and finish == "length"


def test_guidance_of_the_onset_alone(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    def run(**more: Any) -> np.ndarray[Any, Any]:
        return joined(model.frames(request(checkpoint, stop_threshold=1.0, **more)))[0]

    plain, whole, onset = run(), run(cfg_scale=3.0), run(cfg_scale=3.0, cfg_frames=3)
    assert np.array_equal(whole[:3], onset[:3]) and not np.array_equal(whole, onset)
    assert not np.array_equal(plain, whole)
    assert np.array_equal(plain, run(cfg_scale=3.0, cfg_frames=0))
    assert np.array_equal(plain, run(cfg_scale=3.0, cfg_max_text_tokens=3))


def test_the_second_branch_costs_nothing_past_the_onset(
    checkpoint: Checkpoint, model: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 0
    forward = model.backbone.forward

    def counted(*args: Any) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return forward(*args)

    monkeypatch.setattr(model.backbone, "forward", counted)
    joined(model.frames(request(checkpoint, cfg_scale=3.0, cfg_frames=4, max_frames=10, stop_threshold=1.0)))
    assert passes == 10 + 4


def test_context_goes_on_where_it_was(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    """The frames of a request, given back as context, are followed by what followed them."""
    asked = request(checkpoint, max_frames=30, stop_threshold=1.0, prefix=prefix_of(checkpoint, 4))
    codes, _, _ = joined(model.frames(asked))
    more = replace(asked, context=codes[:12], sampling=replace(asked.sampling, max_frames=18))
    assert np.array_equal(joined(model.frames(more))[0], codes[12:])


def test_seeds(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    def run(seed: int) -> bytes:
        return joined(model.frames(request(checkpoint, temperature=0.8, seed=seed, max_frames=8)))[
            0
        ].tobytes()

    made = [run(seed) for seed in (0, 1, -5, 1 << 62)]
    assert made == [run(seed) for seed in (0, 1, -5, 1 << 62)]
    assert len(set(made)) == 4


def test_requests_in_turns_do_not_touch_each_other(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    asked = [
        request(
            checkpoint, TEXT[n:], prefix=prefix_of(checkpoint, n), temperature=0.5 * n, seed=n, max_frames=12
        )
        for n in range(3)
    ]
    alone = [joined(model.frames(each))[0].tobytes() for each in asked]
    turns = [model.frames(each) for each in asked]
    rows = itertools.zip_longest(*turns)
    together = zip(*rows, strict=True)
    assert [joined(batch for batch in each if batch is not None)[0].tobytes() for each in together] == alone
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"ids": (512,)}, BadRequest),
        ({"ids": (-1,)}, BadRequest),
        ({"uncond": (512,)}, BadRequest),
        ({"prefix": SpeakerPrefix.of(np.zeros((8, 32), np.float32))}, BadRequest),
        ({"ids": (1,) * 4090}, TextTooLong),
    ],
)
def test_requests_that_are_not_of_this_model(
    checkpoint: Checkpoint, model: ReferenceModel, change: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        model.frames(replace(request(checkpoint), **change))


def test_a_model_that_gives_no_numbers(checkpoint: Checkpoint) -> None:
    weights = checkpoint.tensors()
    weights["codebook_heads.3.bias"][2] = float("nan")
    with pytest.raises(EngineError, match="not numbers"):
        next(ReferenceModel(checkpoint.config, weights).frames(request(checkpoint)))
    weights = checkpoint.tensors()
    weights["stop_head.bias"][0] = float("nan")
    frames = ReferenceModel(checkpoint.config, weights).frames(request(checkpoint))
    next(frames)
    with pytest.raises(EngineError, match="not numbers"):
        next(frames)


# -- the draw -----------------------------------------------------------------------------------------


def logits(seed: int, spread: float = 2.0) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    generator = np.random.default_rng(seed)
    return [generator.normal(0, spread, levels).astype(np.float32) for levels in fsq.LEVELS]


def _softmax(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shares = np.exp(values - values.max())
    return shares / shares.sum()


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.4, 0), (1.7, 3), (1.0, 1), (1.0, 7)])
def test_frequencies(temperature: float, top_k: int) -> None:
    """Over many seeds each head's codes come as often as the rules say: within four standard deviations."""
    heads, count = logits(3), 1500
    drawn = np.stack(
        [draw(heads, [], Sampling(temperature=temperature, top_k=top_k, seed=seed)) for seed in range(count)]
    )
    for k, head in enumerate(heads):
        wide = head.astype(np.float64) / temperature
        kept = wide >= np.sort(wide)[-min(top_k, len(wide))] if top_k else np.ones(len(wide), bool)
        want = _softmax(np.where(kept, wide, -np.inf))
        got = np.bincount(drawn[:, k], minlength=len(head)) / count
        slack = np.where(want > 0, 4 / count, 0.0)  # rare codes come by ones
        assert (np.abs(got - want) <= 4 * np.sqrt(want * (1 - want) / count) + slack).all()
    assert not top_k or {len(set(column)) for column in drawn.T} <= set(range(1, top_k + 1))


def test_the_noise_is_the_shared_one() -> None:
    heads = logits(5)
    for seed, step in ((0, 0), (7, 3), (-9, 250)):
        noise = gumbel(torch.tensor([seed]), torch.tensor([step]))[0].numpy()
        want = [
            int((head / np.float32(0.6) + noise[k, : len(head)]).argmax()) for k, head in enumerate(heads)
        ]
        before = [np.zeros(32, np.int64)] * step
        assert draw(heads, before, Sampling(temperature=0.6, seed=seed)).tolist() == want


def test_penalty_looks_back_as_far_as_its_window() -> None:
    """A code is made less likely while it is in the window, each once however often it came."""
    heads = [np.array([2.0, 1.5, *[-9.0] * (levels - 2)], np.float32) for levels in fsq.LEVELS]
    first, other = np.zeros(32, np.int64), np.full(32, 2, np.int64)

    def chosen(before: list[np.ndarray[Any, Any]], window: int) -> set[int]:
        sampling = Sampling(temperature=0.0, repetition_penalty=1.4, repetition_window=window)
        return set(draw(heads, before, sampling).tolist())

    assert chosen([], 4) == {0}
    assert chosen([first], 4) == {1}  # 2.0 / 1.4 < 1.5
    assert chosen([first, other, other, other], 4) == {1}
    assert chosen([first, other, other, other, other], 4) == {0}
    assert chosen([first, *[other] * 90], 0) == {1}
    assert chosen([first, first, first, first + 1], 4) == {0}  # both once: 1.43 against 1.07


def test_penalty_of_negative_logits() -> None:
    heads = [np.array([-1.0, -1.2, *[-9.0] * (levels - 2)], np.float32) for levels in fsq.LEVELS]
    sampling = Sampling(temperature=0.0, repetition_penalty=1.3)
    assert set(draw(heads, [np.zeros(32, np.int64)], sampling).tolist()) == {1}


def test_ties_at_the_edge_of_top_k_stay() -> None:
    heads = [np.array([1.0, 1.0, 1.0, *[0.0] * (levels - 3)], np.float32) for levels in fsq.LEVELS]
    drawn = {
        int(c) for seed in range(40) for c in draw(heads, [], Sampling(temperature=1.0, top_k=2, seed=seed))
    }
    assert drawn == {0, 1, 2}


def test_logits_are_left_as_they_were() -> None:
    heads = logits(1)
    kept = [head.copy() for head in heads]
    draw(heads, [np.zeros(32, np.int64)], Sampling(repetition_penalty=2.0, top_k=2))
    assert all(np.array_equal(head, copy) for head, copy in zip(heads, kept, strict=True))


def test_entropy() -> None:
    flat = [np.zeros(levels, np.float32) for levels in fsq.LEVELS]
    sure = [np.array([1000.0, *[0.0] * (levels - 1)], np.float32) for levels in fsq.LEVELS]
    assert entropy(flat) == pytest.approx(1.0)
    assert entropy(sure) == pytest.approx(0.0)
    assert entropy(flat[:16] + sure[16:]) == pytest.approx(0.5)
    two = [np.array([0.0, 0.0, *[-1000.0] * (levels - 2)], np.float32) for levels in fsq.LEVELS]
    assert entropy(two) == pytest.approx(np.mean([math.log(2) / math.log(levels) for levels in fsq.LEVELS]))


def test_entropy_is_of_the_belief_not_of_the_draw(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    first = [
        joined(model.frames(request(checkpoint, temperature=t, top_k=k, max_frames=1)))[1][0]
        for t, k in ((0.0, 0), (0.3, 0), (2.0, 2))
    ]
    assert first[0] == first[1] == first[2] and 0 < first[0] < 1
