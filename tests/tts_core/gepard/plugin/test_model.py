from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def embedded(inline: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = inline["embedded"]
    return facts


def test_each_kind_of_id_has_its_embedding(embedded: dict[str, Any]) -> None:
    assert embedded["text"]
    assert embedded["voice"]
    assert embedded["frames"] < 1e-5


def test_the_heads_give_all_codes_and_the_stop_in_one(embedded: dict[str, Any]) -> None:
    assert embedded["logits"] == [12, 217]


def test_a_checkpoint_with_a_part_too_few_or_too_many_is_refused_by_name(embedded: dict[str, Any]) -> None:
    assert embedded["missing"] == "the checkpoint lacks parts of heads.weight"
    assert embedded["unknown"].startswith("the checkpoint's tensor model.layers.0.extra.weight has no place")


def test_it_computes_what_the_plain_loop_computes(inline: dict[str, Any]) -> None:
    assert inline["requests"]["identical"] == 8
    assert inline["requests"]["entropy"] < 1e-5
