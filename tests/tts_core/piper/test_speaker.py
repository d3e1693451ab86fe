"""One voice, loaded in this process: the real network, its words and its pieces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers.piper_engine import RATE, VOICE, bundled
from tests.tts_core.piper.conftest import add_voice
from tts_core.errors import EngineError
from tts_core.piper.speaker import PIECE, SLACK, Block, Model, Speaker, cut, starts_of

W12 = "I can help you with that order right now, just one moment please."
LONG = (
    "On Monday, three of the twelve clients, who had called before noon, were told by the agent at the desk "
    "that they should call again, since nobody who could help them was there, and so they complained."
)


def never() -> bool:
    return False


def say(speaker: Speaker, text: str, stop: Callable[[], bool] = never, **options: Any) -> list[Block]:
    return list(speaker.speak(text, options.get("speed", 1.0), options.get("seed"), stop))


def pcm(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([b.pcm for b in blocks])


def test_marks_are_the_networks_durations(model: Model) -> None:
    """A pause within the text shows: the word before it is long, and all words lie where there is sound."""
    (block,) = say(model.speaker(None), "One, two.", seed=1)
    marks = [(W[2], W[3]) for W in block.marks]
    assert [(m[0], m[1]) for m in block.marks] == [(0, 4), (5, 9)]
    assert 0 <= marks[0][0] < marks[0][1] <= marks[1][0] < marks[1][1] <= len(block.pcm)
    quiet = np.abs(block.pcm).reshape(-1)[marks[1][0] - int(0.1 * RATE) : marks[1][0] + int(0.02 * RATE)]
    assert quiet.min() < 0.02


def test_a_sentence_is_a_block_and_a_long_one_is_cut(model: Model) -> None:
    speaker = model.speaker(None)
    assert len(say(speaker, "Hello there. How are you?")) == 2
    blocks = say(speaker, LONG)
    assert len(blocks) > 1
    assert [b.last for b in blocks] == [False] * (len(blocks) - 1) + [True]
    assert [LONG[m[0] : m[1]] for b in blocks for m in b.marks] == LONG.split()
    at = 0
    for block in blocks:
        for mark in block.marks:
            assert at <= mark[2] <= mark[3]
            at = mark[3]


def test_it_stops_before_the_next_piece(model: Model) -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 1

    assert len(say(model.speaker(None), LONG, stop)) == 1


def test_ends_are_short_and_nothing_clips(model: Model) -> None:
    wave = pcm(say(model.speaker(None), W12))
    loud = np.flatnonzero(np.abs(wave) > 0.02)
    assert loud[0] < 0.08 * RATE
    assert len(wave) - loud[-1] < 0.15 * RATE
    assert np.abs(wave).max() < 0.981
    assert 0.05 < np.sqrt((wave**2).mean()) < 0.15


def test_a_seed_is_spoken_without_noise(model: Model) -> None:
    speaker = model.speaker(None)
    one, two, other = (pcm(say(speaker, W12, seed=s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(pcm(say(speaker, "Hello there.")), pcm(say(speaker, "Hello there.")))


def test_no_client_writes_phonemes(model: Model) -> None:
    """Piper reads ``[[ ]]`` as phonemes; here they are words in brackets."""
    blocks = say(model.speaker(None), "Say [[hello]] now.", seed=1)
    np.testing.assert_array_equal(pcm(blocks), pcm(say(model.speaker(None), "Say   hello   now.", seed=1)))


@pytest.mark.parametrize("text", ["", " ", "...", "— !", "[[ ]]"])
def test_nothing_to_say(model: Model, text: str) -> None:
    assert say(model.speaker(None), text) == []


def test_without_onnx_words_are_shared_out(
    model: Model, piper_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    plain = Model(bundled() / f"{VOICE}.onnx", RATE)
    (exact,), (shared,) = (say(m.speaker(None), W12, seed=1) for m in (model, plain))
    np.testing.assert_array_equal(exact.pcm, shared.pcm)
    assert [m[:2] for m in exact.marks] == [m[:2] for m in shared.marks]
    error = [abs(a[2] - b[2]) / RATE for a, b in zip(exact.marks, shared.marks, strict=True)]
    assert 0 < max(error) < 0.5


def test_a_voice_of_another_rate_and_language(piper_here: None, tmp_path: Path) -> None:
    path = add_voice(tmp_path, "de_DE-other-low", audio={"sample_rate": 16000}, espeak={"voice": "de"})
    text = "Die Nummer ist 21."
    (block,) = say(Model(path, RATE).speaker(None), text, seed=1)
    assert [text[m[0] : m[1]] for m in block.marks] == text.split()
    # The network is joe's, whose samples are taken for slower ones here.
    spectrum = np.abs(np.fft.rfft(block.pcm))
    above = spectrum[int(len(spectrum) * 8200 / (RATE / 2)) :]
    assert np.sqrt((above**2).sum() / (spectrum**2).sum()) < 0.02
    assert block.marks[-1][3] <= len(block.pcm)


def test_what_cannot_be_loaded_is_named(piper_here: None, tmp_path: Path) -> None:
    (tmp_path / "odd.onnx").write_bytes(b"x")
    (tmp_path / "odd.onnx.json").write_text("{}")
    with pytest.raises(EngineError, match=r"odd\.onnx could not be loaded"):
        Model(tmp_path / "odd.onnx", RATE)


@pytest.mark.parametrize(
    "changes",
    [
        {"espeak": {"voice": "xx-nobody"}},
        {"num_speakers": 2, "speaker_id_map": {"a": 0, "b": 1}},
    ],
    ids=["no such language", "speakers it has not"],
)
def test_so_is_what_does_not_fit_its_description(
    piper_here: None, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = add_voice(tmp_path, "odd", **changes)
    with pytest.raises(EngineError, match=r"^the voice odd\.onnx c(annot speak|ould not be loaded)$"):
        Model(path, RATE)


def test_and_what_says_nothing(piper_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_core.piper.speaker.WARM_UP", "...")
    with pytest.raises(EngineError, match=rf"^the voice {VOICE}\.onnx cannot speak$"):
        Model(bundled() / f"{VOICE}.onnx", RATE)


def test_without_piper_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "piper", None)
    with pytest.raises(EngineError, match="extra 'piper'"):
        Model(tmp_path / "any.onnx", RATE)


@given(st.lists(st.text("abc ,:", min_size=1, max_size=700), min_size=1, max_size=4))
def test_pieces_cover_everything_and_are_short(sentences: list[str]) -> None:
    pieces = cut([list(s) for s in sentences])
    assert [p.first for p in pieces] == [0, *(p.last for p in pieces[:-1])]
    assert pieces[-1].last == sum(map(len, sentences))
    assert all(0 < p.last - p.first <= PIECE + SLACK for p in pieces)
    assert [p.tail for p in pieces].count(2) == 1
    assert sum(p.tail > 0 for p in pieces) == len(sentences)


IDS = {"^": [1], "_": [0], "$": [2], " ": [3], "a": [4], "b": [5, 6]}


def test_phonemes_begin_where_the_network_says() -> None:
    #                 ^  _  a  _  ␠  _  b  b  _  $ (x has no number)
    counts = np.array([2, 3, 5, 1, 1, 1, 4, 4, 2, 9])
    starts = starts_of("a xb", IDS, counts, 10, 32)
    assert list(starts) == [5, 11, 13, 13, 23]


def test_without_durations_they_are_taken_for_equally_long() -> None:
    assert list(starts_of("a b", IDS, None, 9, 100)) == [0, 50, 50, 100]
    assert list(starts_of("a b", IDS, np.ones(3), 9, 100)) == [0, 50, 50, 100]
    assert list(starts_of("  ", IDS, None, 9, 100)) == [0, 0, 0]
