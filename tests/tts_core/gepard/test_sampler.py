from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.errors import EngineError
from tts_core.gepard.layout import LOGITS, SERIALS, Layout, unpack
from tts_core.gepard.reference import draw, entropy
from tts_core.gepard.sampler import FrameSampler
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec import fsq

torch.set_num_threads(1)
LAYOUT = Layout(text=512, stop=498, fault=511, prefix_rows=8, voice_rows=64, frame_rows=1024)
EDGES = np.cumsum(fsq.LEVELS)[:-1]


def make(slots: int = 16, layout: Layout = LAYOUT) -> FrameSampler:
    return FrameSampler(torch.zeros(layout.frame_rows, fsq.CHANNELS, dtype=torch.uint8), layout, slots)


def logits(generator: torch.Generator, n: int, stop: float = -9.0) -> torch.Tensor:
    raw = torch.randn(n, LOGITS, generator=generator) * 2
    raw[:, -1] = stop
    return raw


def heads_of(raw: torch.Tensor) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return np.split(raw[:-1].numpy(), EDGES)


def step(
    sampler: FrameSampler, raw: torch.Tensor, slots: list[int], valid: list[bool] | None = None
) -> tuple[list[int], fsq.Codes]:
    drawn = sampler.sample(raw, sampler.rows(torch.tensor(slots)), torch.tensor(valid or [True] * len(slots)))
    return drawn.tokens.tolist(), unpack(drawn.frames.tolist())


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.4]),
    top_k=st.sampled_from([0, 1, 2, 5, 7, 50]),
    seed=st.integers(-(1 << 63), (1 << 63) - 1),
    repetition_penalty=st.sampled_from([1.0, 0.8, 1.3]),
    repetition_window=st.sampled_from([0, 1, 3, 32]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(samplings, min_size=1, max_size=6), st.integers(0, 1 << 30))
def test_every_row_follows_the_reference_rules(asked: list[Sampling], seed: int) -> None:
    """A batch of unlike requests, in slots of any order, draws what the plain rules draw for each alone."""
    generator = torch.Generator().manual_seed(seed)
    sampler, n = make(), len(asked)
    slots = torch.randperm(16, generator=generator)[:n].tolist()
    for slot, sampling in zip(slots, asked, strict=True):
        sampler.join(slot, sampling.as_extra_args())
    past: list[list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = [[] for _ in asked]
    for _ in range(8):
        raw = logits(generator, n)
        drawn = sampler.sample(raw, sampler.rows(torch.tensor(slots)), torch.ones(n, dtype=torch.bool))
        codes = unpack(drawn.frames.tolist())
        for row, sampling in enumerate(asked):
            want = draw(heads_of(raw[row]), past[row], sampling)
            assert codes[row].tolist() == want.tolist()
            past[row].append(want)
            assert abs(drawn.entropy[row].item() - entropy(heads_of(raw[row]))) < 1e-5
        for token, row in zip(drawn.tokens.tolist(), codes, strict=True):
            held = sampler.table[(token - LAYOUT.frame) & (LAYOUT.frame_rows - 1)]
            assert held.tolist() == row.tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
    st.integers(0, 1 << 20),
)
def test_rows_that_are_used_again_draw_what_fresh_ones_do(
    valid: list[list[bool]], joins: set[int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    asked = [Sampling(seed=seed + i, repetition_penalty=1.3, repetition_window=2) for i in range(3)]
    once, anew = make(), make()
    slots = torch.tensor([5, 0, 2])
    for sampler in (once, anew):
        for slot, one in zip(slots.tolist(), asked, strict=True):
            sampler.join(slot, one.as_extra_args())
    rows = once.rows(slots)
    for k, ready in enumerate(valid):
        if k in joins:  # another request in the place of one of them
            for sampler in (once, anew):
                sampler.join(0, Sampling(seed=k).as_extra_args())
        raw, now = logits(generator, 3), torch.tensor(ready)
        first = once.sample(raw, rows, now)
        second = anew.sample(raw, anew.rows(slots), now)
        for ours, theirs in zip(first, second, strict=True):
            assert torch.equal(ours, theirs)


def test_frequencies_are_those_of_the_tempered_truncated_belief() -> None:
    generator = torch.Generator().manual_seed(5)
    n, rounds = 1024, 30
    raw = logits(generator, 1)
    layout = Layout(text=512, stop=498, fault=511, prefix_rows=8, voice_rows=64, frame_rows=1 << 16)
    sampler = make(n, layout)
    for slot in range(n):
        sampler.join(slot, Sampling(temperature=0.7, top_k=4, seed=slot).as_extra_args())
    counts = np.zeros((fsq.CHANNELS, 8))
    for _ in range(rounds):
        _, codes = step(sampler, raw.expand(n, -1), list(range(n)))
        for code in range(8):
            counts[:, code] += (codes == code).sum(0)
    for channel, head in enumerate(heads_of(raw[0])):
        scaled = head.astype(np.float64) / 0.7
        belief = np.where(scaled >= np.sort(scaled)[-4], np.exp(scaled - scaled.max()), 0)
        belief /= belief.sum()
        error = counts[channel, : len(head)] / (n * rounds) - belief
        # Four standard deviations of a frequency at its widest.
        assert np.abs(error).max() < 4 * (0.25 / (n * rounds)) ** 0.5
        assert not counts[channel, : len(head)][belief == 0].any()


def test_the_stop_head_is_not_asked_before_the_first_frame() -> None:
    generator = torch.Generator().manual_seed(0)
    sampler = make()
    for slot, threshold in enumerate((0.5, 1.0, 0.5)):
        sampler.join(slot, {"stop_threshold": threshold})
    sure = logits(generator, 3, stop=9.0)
    sure[2, -1] = -0.1
    first, _ = step(sampler, sure, [0, 1, 2])
    assert all(token >= LAYOUT.frame for token in first)
    second, _ = step(sampler, sure, [0, 1, 2])
    assert second[0] == LAYOUT.stop
    assert second[1] >= LAYOUT.frame
    assert second[2] >= LAYOUT.frame


def test_rows_that_are_not_ready_draw_nothing_that_counts() -> None:
    generator = torch.Generator().manual_seed(1)
    sampling = Sampling(temperature=1.0, repetition_penalty=1.3, seed=3)
    plain, chunked = make(), make()
    for sampler in (plain, chunked):
        sampler.join(4, sampling.as_extra_args())
    for _ in range(3):
        step(chunked, logits(generator, 1), [4], [False])
    for _ in range(5):
        raw = logits(generator, 1)
        assert step(plain, raw, [4])[1].tolist() == step(chunked, raw, [4])[1].tolist()


def test_a_preempted_request_goes_on_as_if_nothing_had_been() -> None:
    generator = torch.Generator().manual_seed(2)
    sampling = Sampling(temperature=0.8, repetition_penalty=1.4, repetition_window=5, seed=9)
    whole, broken = make(), make()
    whole.join(0, sampling.as_extra_args())
    broken.join(0, sampling.as_extra_args())
    output: list[int] = []
    for i in range(20):
        if i == 9:
            broken.leave(0)
            broken.join(7, sampling.as_extra_args(), [1, 2, 3], output)
        raw = logits(generator, 1)
        tokens, codes = step(broken, raw, [7 if i >= 9 else 0])
        output += tokens
        assert codes.tolist() == step(whole, raw, [0])[1].tolist()
    assert broken.resumed == 1


@pytest.mark.parametrize("start", [0, SERIALS - 500])
def test_a_handle_is_good_for_one_turn_of_the_ring_and_then_a_fault(start: int) -> None:
    """Also across the wrap of the serials."""
    generator = torch.Generator().manual_seed(3)
    sampler = make()
    sampler.cursor = start
    codes = torch.tensor([[level - 1 for level in fsq.LEVELS]] * 2, dtype=torch.uint8)
    handles = sampler.put(codes)
    sampler.join(1, {}, [5, *handles])
    assert step(sampler, logits(generator, 1), [1])[0][0] >= LAYOUT.frame
    sampler.join(0, {})
    while (sampler.cursor - start) % SERIALS < LAYOUT.frame_rows - 1:
        step(sampler, logits(generator, 1), [0])
    sampler.join(1, {}, [5, *handles])
    sampler.join(2, {}, [5, handles[1]])
    sampler.join(3, {}, [5], handles)
    tokens, _ = step(sampler, logits(generator, 3), [1, 2, 3])
    assert all(token >= LAYOUT.frame for token in tokens)
    sampler.join(1, {}, [5, *handles])
    sampler.join(3, {}, [5], handles)
    assert step(sampler, logits(generator, 2), [1, 3])[0] == [LAYOUT.fault] * 2


def test_frames_that_go_stale_while_a_prompt_is_read_are_noticed() -> None:
    generator = torch.Generator().manual_seed(4)
    sampler = make()
    handles = sampler.put(torch.zeros(1, fsq.CHANNELS, dtype=torch.uint8))
    sampler.join(0, {}, handles)
    for _ in range(LAYOUT.frame_rows // 2 + 1):
        token = step(sampler, logits(generator, 2), [0, 1], [False, True])[0][0]
    assert token == LAYOUT.fault
    assert step(sampler, logits(generator, 1), [0])[0] == [LAYOUT.fault]


def test_logits_that_are_no_numbers_are_a_fault_of_that_row_alone() -> None:
    generator = torch.Generator().manual_seed(4)
    sampler = make()
    raw = logits(generator, 2)
    raw[0, 7] = float("nan")
    tokens, _ = step(sampler, raw, [0, 1])
    assert tokens[0] == LAYOUT.fault
    assert tokens[1] >= LAYOUT.frame


def test_more_frames_than_rows_are_refused() -> None:
    with pytest.raises(EngineError):
        make().put(torch.zeros(LAYOUT.frame_rows + 1, fsq.CHANNELS, dtype=torch.uint8))


def pair(sampler: FrameSampler, leader: int, follower: int, **more: object) -> None:
    params = {**Sampling(temperature=0.0, cfg_scale=2.5).as_extra_args(), "pair": "p", **more}
    sampler.join(leader, {**params, "role": "leader"})
    sampler.join(follower, {**params, "role": "follower"})


def test_a_pair_draws_one_frame_from_the_mixed_logits() -> None:
    generator = torch.Generator().manual_seed(6)
    sampler = make()
    pair(sampler, 3, 5)
    sampler.join(9, {})
    sampling = Sampling(temperature=0.0)
    for _ in range(4):
        raw = logits(generator, 3)
        tokens, codes = step(sampler, raw, [5, 9, 3])
        mixed = raw[0] + 2.5 * (raw[2] - raw[0])
        assert codes[2].tolist() == draw(heads_of(mixed), [], sampling).tolist()
        assert codes[0].tolist() == codes[2].tolist()
        assert tokens[0] == tokens[2] != tokens[1]
        assert codes[1].tolist() == draw(heads_of(raw[1]), [], sampling).tolist()


def test_the_half_with_text_alone_decides_the_end_of_both() -> None:
    generator = torch.Generator().manual_seed(7)
    sampler = make()
    pair(sampler, 3, 5)
    raw = logits(generator, 2)
    raw[1, -1] = 9.0
    assert min(step(sampler, raw, [3, 5])[0]) >= LAYOUT.frame
    assert min(step(sampler, raw, [3, 5])[0]) >= LAYOUT.frame
    raw[:, -1] = torch.tensor([9.0, -9.0])
    assert step(sampler, raw, [3, 5])[0] == [LAYOUT.stop] * 2


def test_onset_guidance_lets_the_other_half_go() -> None:
    generator = torch.Generator().manual_seed(8)
    sampler = make()
    pair(sampler, 3, 5, cfg_frames=2)
    for _ in range(2):
        assert min(step(sampler, logits(generator, 2), [3, 5])[0]) >= LAYOUT.frame
    sampler.leave(5)
    raw = logits(generator, 1)
    tokens, codes = step(sampler, raw, [3])
    assert tokens[0] >= LAYOUT.frame
    assert codes[0].tolist() == draw(heads_of(raw[0]), [], Sampling(temperature=0.0)).tolist()


@pytest.mark.parametrize(
    "loss", ["partner gone", "not in the batch", "prompt unread", "behind", "partner faults"]
)
def test_a_pair_that_is_not_whole_ends_both_its_halves(loss: str) -> None:
    generator = torch.Generator().manual_seed(9)
    sampler = make()
    pair(sampler, 3, 5)
    step(sampler, logits(generator, 2), [3, 5])
    raw, slots, valid = logits(generator, 2), [3, 5], [True, True]
    if loss == "partner gone":
        sampler.leave(5)
        raw, slots, valid = raw[:1], [3], [True]
    elif loss == "not in the batch":
        raw, slots, valid = raw[:1], [3], [True]
    elif loss == "prompt unread":
        valid = [True, False]
    elif loss == "behind":
        sampler.join(5, {**Sampling().as_extra_args(), "pair": "p", "role": "follower"})
    else:
        raw[1, 0] = float("inf")
    tokens, _ = step(sampler, raw, slots, valid)
    assert set(tokens) == {LAYOUT.fault}


def test_a_half_without_text_that_is_alone_ends() -> None:
    sampler = make()
    sampler.join(0, {"pair": "p", "role": "follower"})
    assert step(sampler, logits(torch.Generator(), 1), [0])[0] == [LAYOUT.fault]


def test_a_slot_that_is_used_again_remembers_nothing() -> None:
    generator = torch.Generator().manual_seed(10)
    sampler = make()
    sampling = Sampling(temperature=0.0, repetition_penalty=1.5, repetition_window=0)
    sampler.join(0, sampling.as_extra_args())
    for _ in range(6):
        step(sampler, logits(generator, 1), [0])
    sampler.join(0, sampling.as_extra_args())
    raw = logits(generator, 1, stop=9.0)
    tokens, codes = step(sampler, raw, [0])
    assert tokens[0] >= LAYOUT.frame
    assert codes[0].tolist() == draw(heads_of(raw[0]), [], sampling).tolist()
