from __future__ import annotations

from collections.abc import Mapping

import pytest

from tts_core.embedded import model
from tts_core.embedded.model import FRAMES_PER_UNIT, Acoustics
from tts_core.embedded.phones import Pronouncer


def encode(pronouncer: Pronouncer, ids: Mapping[str, int], text: str) -> list[int]:
    return [0, *(ids[c] for c in " ".join(w.phonemes for w in pronouncer.words(text))), 0]


def test_durations_cover_every_id_and_all_frames(
    acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int]
) -> None:
    assert acoustics.has_durations
    for speed in (0.5, 1.0, 2.0):
        run = encode(pronouncer, ids, "Please hold the line, I am looking it up.")
        spectra = acoustics.run(run, speed)
        assert spectra.starts is not None
        assert len(spectra.starts) == len(run) + 1
        assert spectra.starts[0] == 0
        assert spectra.starts[-1] == spectra.frames
        steps = spectra.starts[1:] - spectra.starts[:-1]
        assert (steps >= 0).all()
        assert (steps % FRAMES_PER_UNIT == 0).all()


def test_speed_changes_the_number_of_frames(
    acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int]
) -> None:
    run = encode(pronouncer, ids, "Please hold the line.")
    slow, normal, fast = (acoustics.run(run, s).frames for s in (0.5, 1.0, 2.0))
    assert slow > 1.5 * normal
    assert normal > 1.4 * fast


def test_durations_can_be_left_alone(
    model_bytes: bytes, pronouncer: Pronouncer, ids: Mapping[str, int]
) -> None:
    plain = Acoustics(model_bytes, durations=False)
    assert not plain.has_durations
    assert plain.run(encode(pronouncer, ids, "Hello."), 1.0).starts is None


def test_a_model_without_the_tensor_is_used_as_it_is(
    model_bytes: bytes, monkeypatch: pytest.MonkeyPatch, pronouncer: Pronouncer, ids: Mapping[str, int]
) -> None:
    monkeypatch.setattr(model, "DURATIONS", "/No_such_tensor")
    other = Acoustics(model_bytes)
    assert not other.has_durations
    assert other.run(encode(pronouncer, ids, "Hello."), 1.0).frames > 50
