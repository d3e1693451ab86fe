from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.gepard.noise import gumbel

MASK = (1 << 64) - 1


def splitmix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def plain(seed: int, step: int, lane: int) -> float:
    gamma = 0x9E3779B97F4A7C15
    key = splitmix((splitmix((seed * gamma) & MASK) + step * gamma) & MASK)
    bits = splitmix((key + (lane + 1) * gamma) & MASK)
    return -math.log(-math.log(((bits >> 12) + 0.5) / 2**52))


@settings(max_examples=50, deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 20), st.integers(0, 255))
def test_each_value_is_the_published_generator(seed: int, step: int, lane: int) -> None:
    noise = gumbel(torch.tensor([seed]), torch.tensor([step]))
    assert noise.shape == (1, 32, 8)
    assert math.isclose(
        noise.view(-1)[lane].item(), plain(seed & MASK, step, lane), rel_tol=1e-5, abs_tol=1e-5
    )


def test_rows_do_not_depend_on_each_other() -> None:
    seeds, steps = torch.arange(16) * 7919, torch.arange(16) % 5
    crowd = gumbel(seeds, steps)
    for row in range(16):
        assert torch.equal(gumbel(seeds[row : row + 1], steps[row : row + 1])[0], crowd[row])


def test_it_is_gumbel_and_neighbours_are_independent() -> None:
    noise = gumbel(torch.zeros(2000, dtype=torch.int64), torch.arange(2000)).double()
    assert abs(noise.mean().item() - 0.57722) < 0.01
    assert abs(noise.var().item() - math.pi**2 / 6) < 0.03
    flat = noise.reshape(2000, -1) - noise.mean()
    for other in (flat.roll(1, 0), flat.roll(1, 1)):
        assert abs((flat * other).mean().item()) < 0.02
    shifted = gumbel(torch.ones(2000, dtype=torch.int64), torch.arange(2000)).double().reshape(2000, -1)
    for lag in range(4):
        assert abs((flat.roll(lag, 0) * (shifted - shifted.mean())).mean().item()) < 0.02
