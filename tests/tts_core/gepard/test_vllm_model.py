"""vLLM with the plugin, both model runners, against the plain loop: equal in every code of every frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tts_core.gepard.plugin.groups import Scenarios

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def scenario(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    scenarios = Scenarios(directory, tmp_path_factory.mktemp)
    yield scenarios
    scenarios.close()


def is_equal(facts: dict[str, Any]) -> None:
    """All sixteen requests equal the plain loop; frames came one by one, and three clients left."""
    assert facts["identical"] == 16
    assert facts["frames"] > 1000
    assert facts["batches"] > 0.8 * facts["frames"]
    assert facts["left_after"] == [7, 7, 7]
    assert facts["finishes"] == ["length", "stop"]


@pytest.mark.parametrize("turn", ["first", "again"])
def test_sixteen_at_once_are_each_the_plain_loop(scenario: Scenarios, turn: str) -> None:
    facts = scenario("base")
    is_equal(facts[turn])
    assert facts["before_the_end"]["runner"] == 1
    assert facts["before_the_end"]["resumed"] == 0


def test_the_ring_of_frames_wraps_unheard(scenario: Scenarios) -> None:
    """All of this scenario ran with 1024 rows."""
    facts = scenario("base")["before_the_end"]
    assert facts["cursor"] > 4 * 1024
    assert facts["faults"] == 0


def test_sixty_four_requests_wait_for_each_other_and_are_equal(scenario: Scenarios) -> None:
    assert scenario("base")["sixty_four"] == 64


def test_a_seed_says_the_same_alone_and_in_a_crowd_and_in_the_plain_loop(scenario: Scenarios) -> None:
    facts = scenario("base")
    assert facts["seeds_alone_as_in_a_crowd"] == 16
    assert facts["seeds_as_the_reference"] == 16
    assert facts["another_seed_differs"]


def test_a_slow_reader_gets_several_frames_at_once(scenario: Scenarios) -> None:
    facts = scenario("base")["slow_reader"]
    assert facts["identical"] == 1
    assert facts["batches"] < 20


def test_more_voices_than_places_each_keep_their_own_sound(scenario: Scenarios) -> None:
    """Also where the keys of another voice's rows were cached under the same ids."""
    facts = scenario("base")["voices"]
    assert facts == {"in_turn": 40, "again": 40, "together": 30, "kept": 32, "different": 40}


def test_frames_of_before_are_read_as_if_they_had_been_drawn(scenario: Scenarios) -> None:
    assert scenario("base")["context"] == {"asked": 4, "identical": 4}


def test_what_does_not_fit_is_refused_by_its_field(scenario: Scenarios) -> None:
    assert scenario("base")["refused"] == [
        "max_frames", "text", "text", "text", "voice", "cfg_scale", "context",
    ]  # fmt: skip


def test_leaving_aborts_within_a_step(scenario: Scenarios) -> None:
    facts = scenario("base")["abort"]
    # One step may be under way when the abort arrives, one more before the count is asked for.
    assert facts["steps_too_many"] <= 2
    assert facts["steps_after_cancelling"] == 0
    assert facts["running"] == 0


def test_a_dead_engine_fails_its_requests_and_can_be_started_again(scenario: Scenarios) -> None:
    facts = scenario("base")["killed"]
    assert facts["errors"] == ["engine_crashed"] * 4
    assert facts["running"] == 0
    assert not facts["alive"]
    assert facts["late"] == "engine_crashed"
    assert facts["alive_again"]
    assert facts["identical_again"] == 6


def test_closing_ends_what_runs(scenario: Scenarios) -> None:
    facts = scenario("base")
    assert facts["killed"]["closed"] == ["engine_error"] * 3
    assert not facts["alive_after_close"]


@pytest.mark.parametrize("turn", ["first", "again"])
def test_prompts_in_pieces_and_preemption_change_nothing(scenario: Scenarios, turn: str) -> None:
    facts = scenario("preempted")
    is_equal(facts[turn])
    assert facts["stats"]["resumed"] > 0
    assert facts["stats"]["faults"] == 0


def test_lost_frames_are_an_error_and_never_wrong_audio(scenario: Scenarios) -> None:
    facts = scenario("stale")
    assert facts["errors"] > 0
    assert facts["identical"] + facts["errors"] == 16
    assert facts["wrong_frames"] == 0
    assert facts["stats"]["faults"] == facts["errors"]
    assert facts["later"] == 1


@pytest.mark.parametrize("turn", ["first", "again"])
def test_guided_pairs_are_the_two_passes_of_the_plain_loop(scenario: Scenarios, turn: str) -> None:
    facts = scenario("pairs")[turn]
    assert facts == {"pairs": 8, "plain": 8, "unguided": 0}


def test_many_pairs_wait_for_room_and_leave_whole(scenario: Scenarios) -> None:
    facts = scenario("pairs")
    assert facts["forty"] == 40
    assert facts["left_after"] == [5, 5, 5, 5]
    assert facts["steps_after_leaving"] == 0
    assert facts["stats"]["faults"] == 0


def test_model_runner_v2_is_the_plain_loop_too(scenario: Scenarios) -> None:
    facts = scenario("v2")
    is_equal(facts["first"])
    assert facts["stats"]["runner"] == 2
    assert facts["stats"]["cursor"] > 1024
    assert facts["seeds_as_the_reference"] == 8
    assert facts["context"] == {"asked": 4, "identical": 4}
    assert facts["pairs"] == 8


def test_model_runner_v2_survives_pieces_and_preemption(scenario: Scenarios) -> None:
    facts = scenario("v2_preempted")
    is_equal(facts["first"])
    assert facts["stats"]["runner"] == 2
    assert facts["stats"]["resumed"] > 0


def test_asynchronous_scheduling_with_preemption(scenario: Scenarios) -> None:
    facts = scenario("v2_async")
    assert facts["scheduler"] == {"async": True, "class": "AsyncScheduler", "in_flight": 2}
    is_equal(facts["first"])
    assert facts["stats"]["resumed"] > 0


def test_asynchronous_scheduling_with_pairs(scenario: Scenarios) -> None:
    facts = scenario("v2_async_pairs")
    assert facts["scheduler"] == {"async": True, "class": "AsyncPairScheduler", "in_flight": 2}
    is_equal(facts["first"])
    assert facts["pairs"] == 8


def test_a_compiled_model_is_the_plain_loop_too(scenario: Scenarios) -> None:
    facts = scenario("compiled")
    is_equal(facts["first"])
    is_equal(facts["again"])
