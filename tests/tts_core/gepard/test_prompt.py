from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.gepard.cases import published
from tts_core.errors import BadRequest, SettingsError, TextTooLong
from tts_core.gepard.config import GepardConfig, Repetition
from tts_core.gepard.prompt import (
    MAX_TEXT_TOKENS,
    branches,
    build_prompt,
    longest_prompt,
    repeats,
    tagged,
    uncond_prompt,
)
from tts_core.gepard.sampling import Sampling

CONFIG = GepardConfig.parse(json.dumps(published()).encode())
SOT, EOT, SOS = 248073, 248074, 248070
_TOKENS = st.integers(0, 248069)


@pytest.mark.parametrize(
    ("n", "times"),
    [
        (1, 8),
        (2, 8),
        (3, 6),
        (4, 4),
        (5, 4),
        (6, 3),
        (7, 3),
        (8, 2),
        (9, 2),
        (10, 2),
        (11, 2),
        (12, 2),
        (13, 1),
    ],
)
def test_short_texts_are_repeated(n: int, times: int) -> None:
    assert repeats(CONFIG, n) == times
    ids = build_prompt(CONFIG, range(n))
    assert ids == (SOT, *range(n), EOT) * times + (SOS,)
    assert len(ids) == times * (n + 2) + 1


def test_repetition_can_be_off() -> None:
    config = replace(CONFIG, repetition=Repetition())
    assert [repeats(config, n) for n in range(20)] == [1] * 20


@given(
    st.lists(_TOKENS, min_size=1, max_size=MAX_TEXT_TOKENS),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
)
def test_the_layout_holds_for_any_rule(tokens: list[int], target: int, below: int, most: int) -> None:
    config = replace(CONFIG, repetition=Repetition(True, target, below, most))
    ids = build_prompt(config, tokens)
    assert ids[-1] == SOS and ids.count(SOS) == 1
    times = ids.count(SOT)
    assert ids.count(EOT) == times == repeats(config, len(tokens))
    assert 1 <= times <= most
    assert times == 1 or (len(tokens) < below and times * len(tokens) < target + len(tokens))
    assert [token for token in ids if token not in (SOT, EOT, SOS)] == tokens * times
    assert config.prefix_rows + len(ids) <= longest_prompt(config)


def test_nothing_to_say() -> None:
    with pytest.raises(BadRequest, match="nothing to say") as caught:
        build_prompt(CONFIG, ())
    assert caught.value.field == "text"


def test_the_bound() -> None:
    build_prompt(CONFIG, [1] * MAX_TEXT_TOKENS)
    with pytest.raises(TextTooLong, match="257"):
        build_prompt(CONFIG, [1] * (MAX_TEXT_TOKENS + 1))


@pytest.mark.parametrize("token", [-1, 248320, SOT, EOT, SOS, 248071, 248076])
def test_tokens_that_may_not_be_spoken(token: int) -> None:
    with pytest.raises(BadRequest):
        build_prompt(CONFIG, [1, token, 2])


def test_the_branch_without_text() -> None:
    assert uncond_prompt(CONFIG, "empty_text") == (SOT, EOT, SOS)
    assert uncond_prompt(CONFIG, "audio_only") == (SOS,)
    with pytest.raises(BadRequest):
        uncond_prompt(CONFIG, "text")  # type: ignore[arg-type]


def test_branches() -> None:
    assert branches(CONFIG, [5], Sampling()) == (build_prompt(CONFIG, [5]), None)
    assert branches(CONFIG, [5], Sampling(cfg_scale=2.0, cfg_mode="audio_only"))[1] == (SOS,)
    # The gate counts the text, not what its repetition makes of it.
    gated = Sampling(cfg_scale=2.0, cfg_max_text_tokens=2)
    assert branches(CONFIG, [5, 6], gated)[1] == (SOT, EOT, SOS)
    assert branches(CONFIG, [5, 6, 7], gated)[1] is None


def test_a_window_that_is_too_small() -> None:
    assert longest_prompt(CONFIG) == 8 + MAX_TEXT_TOKENS + 3
    small = replace(CONFIG, backbone=replace(CONFIG.backbone, max_position_embeddings=200))
    with pytest.raises(SettingsError, match="window"):
        longest_prompt(small)


def test_a_tag() -> None:
    assert tagged("Hola.", "Spanish") == "spanish: Hola."
