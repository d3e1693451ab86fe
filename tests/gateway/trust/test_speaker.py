"""Who speaks: the numbers are those of Resemblyzer itself, and people are told apart by them."""

from __future__ import annotations

import subprocess
import threading
import time
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.refusal import ReferenceRefused
from gateway.trust.convert import PINNED
from gateway.trust.mel import mel
from gateway.trust.speaker import (
    THRESHOLD,
    SpeakerModel,
    halves,
    one_speaker,
    require_one_speaker,
    speech,
    window_starts,
)
from tests import envs
from tests.peers import speakers
from tests.peers.speakers import Clip, Samples, over_the_phone
from tts_core.errors import SettingsError, UnsupportedFormat

ORACLE = Path(speakers.__file__).with_name("resemblyzer_oracle.py")


@cache
def sentences() -> tuple[str, ...]:
    lines = (envs.ROOT / "tests/intelligibility/plain.txt").read_text().splitlines()
    return tuple(f"{one} {two}" for one, two in zip(lines[:6], lines[6:12], strict=True))


@pytest.fixture(scope="module")
def model() -> SpeakerModel:
    return speakers.model()


@pytest.mark.slow
def test_the_numbers_are_those_of_the_original(model: SpeakerModel, tmp_path: Path) -> None:
    """Resemblyzer 0.1.4 on torch and librosa, in its own environment, on the same samples."""
    noise = np.random.default_rng(3).standard_normal(40_000).astype(np.float32) * np.float32(0.1)
    clips: dict[str, Samples] = {"noise": noise, "short": noise[:9000], "exact": noise[: 160 * 160]}
    for who, (said, *_) in {"heart": speakers.heart(), "joe": speakers.joe(), **speakers.people()}.items():
        clips[who.replace(" ", "_")] = speech(*said)
    asked, answered = tmp_path / "asked.npz", tmp_path / "answered.npz"
    np.savez(asked, **clips)  # type: ignore[arg-type]
    python = envs.ensure("nemo")
    command = [str(python), "-P", str(ORACLE), str(speakers.packages("speaker")), str(asked), str(answered)]
    subprocess.run(command, check=True, timeout=240)
    with np.load(answered) as theirs:
        for name, pcm in clips.items():
            bands = theirs[f"mel {name}"]
            np.testing.assert_allclose(mel(pcm)[: len(bands)], bands, rtol=1e-4, atol=1e-6 * bands.max())
            windows = model.windows_of(pcm)
            np.testing.assert_allclose(windows, theirs[f"windows {name}"], atol=2e-5)
            whole = windows.mean(axis=0)
            np.testing.assert_allclose(whole / np.linalg.norm(whole), theirs[f"embedding {name}"], atol=2e-5)


@pytest.mark.parametrize("leg", ["as recorded", "over the phone"])
def test_two_speakers_are_not_taken_for_each_other(model: SpeakerModel, leg: str) -> None:
    """V3: over all pairs of clips of two voices, at most 1 % false accepts."""

    def embedded(clips: tuple[Clip, ...]) -> Samples:
        heard = [over_the_phone(clip) for clip in clips] if leg == "over the phone" else clips
        return np.stack([model.embed(*clip) for clip in heard])

    one, two = embedded(speakers.heart(sentences())), embedded(speakers.joe(sentences()))
    cross = one @ two.T
    assert cross.size == 36
    assert np.mean(cross >= THRESHOLD) <= 0.01
    assert cross.max() < THRESHOLD - 0.15
    for same in (one @ one.T, two @ two.T):
        assert np.mean(same < THRESHOLD) <= 0.05


def test_two_people_on_one_line_are_told_apart(model: SpeakerModel) -> None:
    """The hardest pair at hand: two people, one call, one channel."""
    first, second = ([model.embed(*clip) for clip in clips] for clips in speakers.people().values())
    assert all(model.similarity(a, b) < THRESHOLD for a, b in product(first, second))
    assert model.similarity(first[0], first[1]) >= THRESHOLD
    assert model.similarity(second[1], second[2]) >= THRESHOLD


def test_a_clip_and_the_same_over_the_phone_are_one_person(model: SpeakerModel) -> None:
    for clip in (*speakers.heart(), *speakers.joe()):
        assert model.similarity(model.embed(*clip), model.embed(*over_the_phone(clip))) > 0.95


def test_several_speakers_are_named(model: SpeakerModel) -> None:
    rate = 16_000
    heart, joe = (
        np.concatenate([speech(*clip) for clip in said]) for said in (speakers.heart(), speakers.joe())
    )
    both = np.concatenate([heart[: 6 * rate], joe[: 6 * rate]])
    turns = np.concatenate(
        [
            part
            for at in range(0, 9 * rate, 3 * rate)
            for part in (heart[at : at + 3 * rate], joe[at : at + 3 * rate])
        ]
    )
    for pcm in (both, turns):
        windows = model.windows(pcm, rate)
        assert not one_speaker(windows)
        with pytest.raises(ReferenceRefused) as refused:
            require_one_speaker(windows)
        assert refused.value.code == "reference_several_speakers"
    for alone in (heart, joe, heart[: 5 * rate]):
        require_one_speaker(model.windows(alone, rate))


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_every_rate_gives_the_same_voice(model: SpeakerModel, rate: int) -> None:
    from telephony.dsp.resample import Resampler

    pcm, own = speakers.heart()[1]
    resampler = Resampler(own, rate)
    moved = np.concatenate([resampler.process(pcm), resampler.flush()])
    vector = model.embed(moved, rate)
    assert vector.shape == (256,) and vector.dtype == np.float32
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert model.similarity(vector, model.embed(pcm, own)) > 0.98


def test_loudness_and_pauses_do_not_matter(model: SpeakerModel) -> None:
    pcm, rate = speakers.joe()[0]
    whole = model.embed(pcm, rate)
    silence = np.zeros(2 * rate, np.float32)
    assert model.similarity(whole, model.embed(pcm * np.float32(0.1), rate)) > 0.98
    assert model.similarity(whole, model.embed(np.concatenate([silence, pcm, silence]), rate)) > 0.99


@pytest.mark.parametrize(
    "pcm",
    [
        np.zeros(0, np.float32),
        np.zeros(80_000, np.float32),
        np.full(80_000, 0.5, np.float32)[:9000],
        np.eye(1, 80_000, 500, dtype=np.float32)[0],
    ],
)
def test_too_little_speech_is_named(model: SpeakerModel, pcm: Samples) -> None:
    with pytest.raises(ReferenceRefused) as refused:
        model.embed(pcm, 16_000)
    assert refused.value.reason == "too_little_speech"


def test_unknown_rates_are_refused(model: SpeakerModel) -> None:
    with pytest.raises(UnsupportedFormat):
        model.embed(np.ones(50_000, np.float32), 11_025)


def test_only_the_pinned_file_is_loaded(tmp_path: Path) -> None:
    data = speakers.model_file().read_bytes()
    path = tmp_path / "speaker.onnx"
    for bad in (
        b"",
        data[:-1],
        data + b"\0",
        data[:1000] + b"\1" + data[1001:],
        speakers.wheel_weights().read_bytes(),
    ):
        path.write_bytes(bad)
        with pytest.raises(SettingsError, match="convert-speaker"):
            SpeakerModel.load(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        SpeakerModel.load(tmp_path / "none")
    with pytest.raises(SettingsError, match="cannot be read"):
        SpeakerModel.load(tmp_path)
    path.write_bytes(data)
    assert SpeakerModel.load(path).digest == PINNED


def test_python_goes_on_meanwhile(model: SpeakerModel) -> None:
    """The network holds no lock of Python: another thread, as an event loop's, is not held up."""
    pcm = np.concatenate([clip for clip, _ in speakers.heart()])[: 15 * 24_000]
    model.embed(pcm, 24_000)
    worker = threading.Thread(target=model.embed, args=(pcm, 24_000))
    before, turns = time.thread_time(), 0
    worker.start()
    while worker.is_alive():
        turns += 1
    worker.join()
    assert turns > 1000
    assert time.thread_time() > before


@given(st.integers(1, 20 * 16_000))
def test_windows_cover_a_recording(samples: int) -> None:
    starts = window_starts(samples)
    assert starts[0] == 0
    assert all(b - a == 77 for a, b in pairwise(starts))
    # A quarter of a window, or less than a step, is left at the end at most.
    assert samples - (starts[-1] + 160) * 160 <= 160 * 160 * 0.75
    if len(starts) > 1:
        assert (samples - starts[-1] * 160) / (160 * 160) >= 0.75


@given(st.integers(1, 12), st.integers(0, 1000))
def test_halves_do_not_mind_the_order(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    windows = np.abs(random.standard_normal((count, 256))).astype(np.float32)
    windows /= np.linalg.norm(windows, axis=1, keepdims=True)
    found = halves(windows)
    assert 0 <= found <= 1.0001
    assert abs(halves(random.permutation(windows)) - found) < 1e-4
