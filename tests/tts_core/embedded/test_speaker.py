from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.embedded.gain import MAKE_UP
from tts_core.embedded.model import Acoustics
from tts_core.embedded.phones import Pronouncer
from tts_core.embedded.speaker import Block, Speaker, seed_for
from tts_core.embedded.trim import Trim

W12 = "I can help you with that order right now, just one moment please."
LONG = (
    "Thank you for calling the support desk, my name is Anna and I will be helping you today with whatever "
    "you need, so please tell me a little about the problem that you are seeing on your screen, when it "
    "first began, and whether anything was changed on the machine shortly before that happened. Is that all "
    "right?"
)
RATE = 24_000


def speak(
    speaker: Speaker, text: str, **options: object
) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    blocks = list(speaker.speak(text, **options))  # type: ignore[arg-type]
    pcm = np.concatenate([b.pcm for b in blocks]) if blocks else np.zeros(0, np.float32)
    return pcm, [m for b in blocks for m in b.marks]


def hops(pcm: np.ndarray) -> np.ndarray:
    """RMS in dBFS per 5 ms."""
    cut = pcm[: len(pcm) // 120 * 120].reshape(-1, 120).astype(np.float64)
    level: np.ndarray = 20 * np.log10(np.sqrt((cut**2).mean(axis=1)) + 1e-9)
    return level


def silence(pcm: np.ndarray, floor: float = -58) -> tuple[float, float]:
    """Leading and trailing silence in ms. The floor is 37 dB under the speech after gain."""
    loud = np.flatnonzero(hops(pcm) > floor)
    return 5.0 * loud[0], 5.0 * (len(pcm) // 120 - 1 - loud[-1])


def check_marks(text: str, marks: list[tuple[int, int, int, int]], samples: int) -> None:
    tokens = [t for t in text.split() if any(c.isalnum() for c in t)]
    assert [text[a:b] for a, b, _, _ in marks] == tokens
    at = 0
    for _, _, start, end in marks:
        assert at <= start <= end <= samples
        at = end
    starts = [a for a, _, _, _ in marks]
    assert starts == sorted(set(starts))


def test_it_speaks_at_the_right_level_and_length(speaker: Speaker) -> None:
    pcm, _ = speak(speaker, W12)
    assert 3.0 < len(pcm) / RATE < 4.5
    rms = 20 * np.log10(np.sqrt((pcm.astype(np.float64) ** 2).mean()))
    assert -25 < rms < -18
    assert np.max(np.abs(pcm)) < 1.0


@pytest.mark.parametrize("text", ["Okay.", W12, "Thanks", "She sells fish", "Fifty dollars,", "Yes!"])
@pytest.mark.parametrize("lead", [5.0, 20.0, 75.0])
def test_silence_is_trimmed_to_what_is_asked(
    acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int], text: str, lead: float
) -> None:
    trimmed = Speaker("heart", acoustics, pronouncer, ids, trim=Trim(lead_ms=lead, tail_ms=75))
    before, after = silence(speak(trimmed, text)[0])
    assert lead - 5 <= before <= lead + 30
    assert 65 <= after <= 125


@pytest.mark.parametrize("text", ["Okay.", W12, "Thanks", "She sells fish", "Hush."])
def test_no_sound_is_cut_away(
    acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int], text: str
) -> None:
    whole = Speaker("heart", acoustics, pronouncer, ids, trim=Trim(lead_ms=1e4, tail_ms=1e4))
    tight = Speaker("heart", acoustics, pronouncer, ids, trim=Trim(lead_ms=0, tail_ms=0))
    full, _ = speak(whole, text)
    cut, _ = speak(tight, text)
    # Where the cut version lies in the full one: by the loud, voiced part, whose noise is small.
    lag = int(np.argmax(np.correlate(full[: len(full)], cut, "valid")))
    outside = np.concatenate([full[:lag], full[lag + len(cut) :]])
    assert len(outside) > 0.4 * RATE
    assert hops(outside).max() < -48
    assert np.sum(outside.astype(np.float64) ** 2) < 1e-4 * np.sum(full.astype(np.float64) ** 2)


@pytest.mark.parametrize("text", ["Okay.", W12, "Thanks"])
def test_without_durations_the_energy_alone_trims_as_well(
    model_bytes: bytes, speaker: Speaker, pronouncer: Pronouncer, ids: Mapping[str, int], text: str
) -> None:
    plain = Speaker("heart", Acoustics(model_bytes, durations=False), pronouncer, ids)
    pcm, marks = speak(plain, text)
    before, after = silence(pcm)
    assert Trim().lead_ms - 5 <= before <= Trim().lead_ms + 30
    assert 65 <= after <= 125
    assert abs(len(pcm) - len(speak(speaker, text)[0])) < 0.05 * RATE
    check_marks(text, marks, len(pcm))


def test_marks_lie_on_the_words(speaker: Speaker) -> None:
    text = "Please wait... Done."
    pcm, marks = speak(speaker, text)
    check_marks(text, marks, len(pcm))
    (_, _, a1, b1), (_, _, a2, b2), (_, _, a3, b3) = marks
    level = hops(pcm)
    for a, b in ((a1, b1), (a2, b2), (a3, b3)):
        assert level[a // 120 : b // 120].max() > -30
    # The pause between the sentences is between the marks.
    assert level[(b2 + 1200) // 120 : (a3 - 1200) // 120].max() < -45
    assert a3 - b2 > 0.1 * RATE


ODD_WORDS = """hello there, we're Dr. 5:30 $5.20 3/4 p.m. & — ... “quoted” (aside) 你好 naïve state-of-the-art
B7K29 a I 24/7 www.example.com it's yes. no! Really? x2 -5 1,249.50 #7 50% [link](/a/) Zyqovrian ½ ²"""
WORDS = st.sampled_from(ODD_WORDS.split())


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(WORDS, max_size=12), gap=st.sampled_from([" ", "  ", "\n", "\u00a0"]), lead=st.booleans()
)
def test_every_word_has_exactly_one_mark(speaker: Speaker, words: list[str], gap: str, lead: bool) -> None:
    text = gap * lead + gap.join(words)
    pcm, marks = speak(speaker, text)
    if len(pcm):
        check_marks(text, marks, len(pcm))
    else:
        assert marks == []


@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_is_spoken_or_is_silent(speaker: Speaker, text: str) -> None:
    pcm, marks = speak(speaker, text)
    assert np.all(np.isfinite(pcm))
    assert np.max(np.abs(pcm), initial=0.0) < 1.0
    if len(pcm):
        check_marks(text, marks, len(pcm))


def test_long_text_is_cut_inside_and_marks_go_on(speaker: Speaker) -> None:
    text = f"{LONG} {LONG}"
    blocks = list(speaker.speak(text))
    pcm = np.concatenate([b.pcm for b in blocks])
    assert sum(bool(b.marks) for b in blocks) > 3
    assert [b.last for b in blocks] == [False] * (len(blocks) - 1) + [True]
    check_marks(text, [m for b in blocks for m in b.marks], len(pcm))
    assert 25 < len(pcm) / RATE < 45
    # No part of it is longer silent than a pause between sentences.
    quiet = np.concatenate([[0], np.flatnonzero(hops(pcm) > -50), [len(pcm) // 120]])
    assert np.max(np.diff(quiet)) * 5 < 500


def test_a_word_longer_than_the_network_takes_has_one_mark(speaker: Speaker) -> None:
    text = "Say " + "13579246" * 25 + " now."
    pcm, marks = speak(speaker, text)
    check_marks(text, marks, len(pcm))
    assert marks[1][3] - marks[1][2] > 0.9 * len(pcm) > 30 * RATE


def test_blocks_grow_and_marks_come_first(speaker: Speaker) -> None:
    blocks = list(speaker.speak(W12))
    sizes = [len(b.pcm) / RATE for b in blocks]
    assert sizes[0] <= 0.13
    assert sizes[1] == pytest.approx(0.2)
    assert len(blocks[0].marks) == 13
    assert [b.last for b in blocks] == [False] * (len(blocks) - 1) + [True]
    assert all(not b.marks for b in blocks[1:])


def test_speed_changes_the_length(speaker: Speaker) -> None:
    slow, normal, fast = (len(speak(speaker, W12, speed=s)[0]) for s in (0.5, 1.0, 2.0))
    assert 1.6 < slow / normal < 2.4
    assert 1.5 < normal / fast < 2.4


def test_the_same_request_gives_the_same_samples(speaker: Speaker) -> None:
    one, two = speak(speaker, W12)[0], speak(speaker, W12)[0]
    np.testing.assert_array_equal(one, two)
    seeded = speak(speaker, W12, seed=7)[0]
    np.testing.assert_array_equal(seeded, speak(speaker, W12, seed=7)[0])
    assert not np.array_equal(seeded, one)
    assert len({seed_for("a", "v", 1.0), seed_for("b", "v", 1.0), seed_for("a", "w", 1.0)}) == 3
    speak(speaker, "Hi.", seed=-1)


@pytest.mark.parametrize("text", ["", " ", "...", "—", "你好", "😀"])
def test_what_cannot_be_said_gives_nothing(speaker: Speaker, text: str) -> None:
    assert list(speaker.speak(text)) == []


def test_it_stops_before_the_next_step(speaker: Speaker) -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2  # the first piece passes both questions

    whole = list(speaker.speak(LONG))
    some: list[Block] = list(speaker.speak(LONG, stop=stop))
    assert 0 < len(some) < len(whole) / 2
    assert list(speaker.speak(LONG, stop=lambda: True)) == []


def test_gain_is_applied_once(acoustics: Acoustics, pronouncer: Pronouncer, ids: Mapping[str, int]) -> None:
    plain = Speaker("heart", acoustics, pronouncer, ids, gain=1.0)
    loud = Speaker("heart", acoustics, pronouncer, ids)
    a, b = speak(plain, "Okay.")[0], speak(loud, "Okay.")[0]
    quiet = np.abs(a) < 0.3
    np.testing.assert_allclose(b[quiet], a[quiet] * MAKE_UP, rtol=1e-5)
