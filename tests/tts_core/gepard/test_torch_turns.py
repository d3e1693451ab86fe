from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tts_core.gepard.cases import request
from tts_core.errors import BadRequest, EngineError, SettingsError, TextTooLong
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.torch_turns import Turns, load


def asked(checkpoint: Checkpoint, frames: int) -> FrameRequest:
    return request(checkpoint, max_frames=frames, stop_threshold=1.0)


def order(turns: Turns) -> list[int]:
    """Whose frames came, until nobody is left."""
    came: list[int] = []
    while turns.busy:
        given = turns.step()
        ((ident, _, _),) = given.parts
        assert not given.failures
        came.append(ident)
    return came


def test_requests_take_turns_and_the_newest_goes_first(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    turns = Turns(model, 4)
    turns.begin(1, asked(checkpoint, 4))
    turns.begin(2, asked(checkpoint, 4))
    assert order(turns) == [2, 1, 2, 1, 2, 1, 2, 1]


def test_who_finds_no_place_waits_for_one(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    turns = Turns(model, 1)
    for ident in (1, 2, 3, 4):
        turns.begin(ident, asked(checkpoint, 2))
    turns.cancel(3)
    assert order(turns) == [1, 1, 2, 2, 4, 4]


def test_a_cancelled_request_gives_nothing_more(checkpoint: Checkpoint, model: ReferenceModel) -> None:
    turns = Turns(model, 1)
    turns.begin(1, asked(checkpoint, 2000))
    turns.begin(2, asked(checkpoint, 2))
    turns.step()
    turns.cancel(1)
    turns.cancel(9)
    assert order(turns) == [2, 2]


def test_a_request_that_fails_ends_alone(
    checkpoint: Checkpoint, model: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(model, 4)
    for wrong, kind in (((1 << 20,), BadRequest), ((1,) * 5000, TextTooLong)):
        with pytest.raises(kind):
            turns.begin(4, replace(request(checkpoint), ids=wrong))

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(model, "_logits", broken)
    turns.begin(1, asked(checkpoint, 2))
    given = turns.step()
    ((ident, error),) = given.failures
    assert not given.parts and ident == 1 and isinstance(error, EngineError)
    assert not turns.busy


def test_nothing_can_be_asked(model: ReferenceModel) -> None:
    assert Turns(model, 1).call("forget", ("a fingerprint",)) is None
    with pytest.raises(EngineError):
        Turns(model, 1).call("stats", ())


def test_load_refuses_what_is_no_checkpoint(tmp_path: Path, directory: Path) -> None:
    options = {"directory": str(tmp_path), "dtype": "float32", "slots": 2, "threads": 1}
    with pytest.raises(SettingsError):
        load(options)
    turns = load({**options, "directory": str(directory), "dtype": "bfloat16"})
    turns.begin(1, request(Checkpoint.open(directory)))
    assert len(order(turns)) > 0
