from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.dsp import pcm
from telephony.marks import MarkEvent, Outcome
from telephony.playout import Playout
from telephony.profile import EXOTEL, TWILIO, Profile
from tests.virtual import Clock
from tts_core.errors import LegClosed, LegError

RTP = Profile("rtp", owns_clock=True, needs_silence=True, has_marks=False, has_clear=False)
SPEECH = bytes(range(1, 251)) * 640  # 20 s without a silent byte


class Wire:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes | str]] = []

    def media(self, payload: bytes) -> None:
        self.log.append(("media", payload))

    def mark(self, name: str) -> None:
        self.log.append(("mark", name))

    def clear(self) -> None:
        self.log.append(("clear", ""))

    @property
    def audio(self) -> bytes:
        return b"".join(value for kind, value in self.log if kind == "media" and isinstance(value, bytes))

    @property
    def sizes(self) -> list[int]:
        return [len(value) for kind, value in self.log if kind == "media"]


class Rig:
    def __init__(self, profile: Profile = TWILIO) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.ended: list[MarkEvent] = []
        self.busy = 0
        self.playout = Playout(profile, self.clock, self.wire, self.ended.append, self.wake)

    def wake(self) -> None:
        self.busy += 1

    def run(self, seconds: float) -> None:
        """Tick each 20 ms."""
        for _ in range(round(seconds / 0.02)):
            self.clock.now += 0.02
            self.playout.tick(self.clock.now, self.clock.now)


def test_the_first_audio_leaves_at_once_and_the_lead_is_bounded() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:160])
    assert rig.wire.sizes == [160]
    rig.playout.play(SPEECH[160:16000])
    assert rig.playout.lead_s() == pytest.approx(0.32)  # whole messages within the first burst of 0.4 s
    leads = []
    for _ in range(60):
        rig.run(0.02)
        leads.append(rig.playout.lead_s())
    assert max(leads) <= 0.4 + 1e-6
    assert all(0.24 - 1e-6 <= lead <= 0.34 + 1e-6 for lead in leads[26:])
    assert set(rig.wire.sizes[2:]) == {800}
    assert SPEECH.startswith(rig.wire.audio)


def test_slow_audio_is_passed_on_without_waiting_for_whole_messages() -> None:
    rig = Rig()
    for index in range(10):
        rig.playout.play(SPEECH[index * 160 : (index + 1) * 160])
        rig.run(0.02)
    assert rig.wire.sizes == [160] * 10


def test_only_whole_frames_leave_and_the_end_is_padded() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:250])
    assert rig.wire.sizes == [160]
    assert not rig.playout.busy
    rig.run(0.04)
    assert rig.wire.sizes == [160]
    rig.playout.end_utterance()
    assert rig.wire.audio == SPEECH[:250] + b"\xff" * 70
    assert rig.playout.stats.padded_samples == 70
    assert rig.playout.position == rig.playout.sent_samples == 320


@given(st.lists(st.integers(0, 700), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_any_chunking_gives_the_same_bytes(sizes: list[int], ticks: list[int]) -> None:
    rig = Rig()
    at = 0
    for size, wait in zip(sizes, ticks + [0] * 30, strict=False):
        rig.playout.play(SPEECH[at : at + size])
        at += size
        rig.run(wait * 0.02)
    rig.playout.end_utterance()
    rig.run(10)
    assert rig.wire.audio == SPEECH[:at] + b"\xff" * (-at % 160)
    assert all(size % 160 == 0 and size for size in rig.wire.sizes)
    assert rig.playout.position == rig.playout.sent_samples == len(rig.wire.audio)


def test_the_queue_is_bounded() -> None:
    rig = Rig()
    assert rig.playout.room() == 5.0
    rig.playout.play(SPEECH[:40000])
    assert rig.playout.room() == pytest.approx(0.4)
    with pytest.raises(LegError, match="full"):
        rig.playout.play(SPEECH[:3201])
    rig.playout.play(SPEECH[:3200])
    assert rig.playout.room() == 0.0
    assert rig.playout.queued_s() == 5.0
    rig.run(0.2)
    assert rig.playout.room() > 0.0


def test_half_samples_and_files_are_refused() -> None:
    rig = Rig(EXOTEL)
    with pytest.raises(LegError, match="sample"):
        rig.playout.play(b"\x00" * 3)
    for head in (
        b"RIFF\x24\x00\x00\x00WAVEfmt ",
        b"ID3\x04\x00\x00\x00\x00\x02\x01\x00\x00",
        b"OggS" + b"\x00" * 8,
    ):
        with pytest.raises(LegError, match="header"):
            rig.playout.play(head)
    assert not rig.wire.log
    rig.playout.play(b"\x01\x00" * 10)
    rig.playout.play(b"RIFF\x24\x00\x00\x00WAVE")  # within an utterance these are samples


def test_marks_follow_their_audio_and_always_end() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:8000])
    rig.playout.mark("half")
    rig.playout.play(SPEECH[8000:16000])
    rig.playout.end_utterance()
    rig.playout.mark("end")
    rig.run(2.0)
    sent = b""
    for kind, value in rig.wire.log:
        if isinstance(value, bytes):
            sent += value
        elif value == "0.1:8000" or value.startswith("0.1:"):
            assert kind == "mark"
            assert 8000 <= len(sent) <= 8000 + 20 * 160
    names = [str(value) for kind, value in rig.wire.log if kind == "mark"]
    assert len(names) == 2
    assert names[1] == "0.2:16000"
    rig.playout.mark_played(names[1])
    assert [(event.name, event.at_sample) for event in rig.ended] == [("half", 8000), ("end", 16000)]
    assert not rig.playout.busy


def test_marks_too_close_together_are_sent_later_and_not_lost() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:320])
    rig.playout.mark("one")
    rig.playout.mark("two")
    assert [kind for kind, _ in rig.wire.log] == ["media", "mark"]
    assert rig.playout.busy
    rig.run(0.2)
    assert [kind for kind, _ in rig.wire.log] == ["media", "mark", "mark"]


def test_an_unanswered_mark_times_out_by_the_ticks() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:800])
    rig.playout.mark("end")
    rig.run(2.06)
    assert rig.ended == []
    rig.run(0.1)
    assert rig.ended == [MarkEvent("end", 800, Outcome.TIMED_OUT)]
    assert not rig.playout.busy


def test_clear_drops_the_queue_tells_the_peer_and_says_what_was_heard() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:16000])
    rig.playout.mark("end")
    rig.run(0.1)
    sent = rig.playout.sent_samples
    assert rig.playout.clear() == 800
    assert rig.wire.log[-1] == ("clear", "")
    assert rig.playout.stats.dropped_samples == 16000 - sent
    assert rig.ended == [MarkEvent("end", 16000, Outcome.CLEARED)]
    assert rig.playout.position == sent
    count = len(rig.wire.log)
    rig.run(1.0)
    assert len(rig.wire.log) == count
    rig.playout.play(b"\x7f" * 320)
    assert rig.wire.audio.endswith(b"\x7f" * 320)


def test_clear_of_what_was_never_sent_says_nothing_to_the_peer() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:100])
    assert rig.playout.clear() == 0
    assert rig.wire.log == []
    rig.playout.clear()
    assert rig.wire.log == []


def test_clear_works_until_the_audio_has_been_played() -> None:
    """openai-agents-js#1173: an interruption after generation has finished still cuts."""
    rig = Rig()
    rig.playout.play(SPEECH[:3200])
    rig.playout.end_utterance()
    rig.run(0.3)
    assert not rig.playout.queued_s()
    assert rig.playout.clear() == 2400
    assert rig.wire.log[-1][0] == "clear"


def test_being_dry_counts_within_an_utterance_only() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:1600])
    rig.run(0.5)
    rig.playout.play(SPEECH[:1600])
    assert rig.playout.stats.underruns == 1
    assert rig.playout.stats.underrun_s == pytest.approx(0.3)
    rig.playout.end_utterance()
    rig.run(2.0)
    rig.playout.play(SPEECH[:1600])
    assert rig.playout.stats.underruns == 1
    assert rig.playout.stats.stalls == 0


def test_after_a_stall_longer_than_the_lead_the_clock_is_rebased_and_no_burst_exceeds_the_lead() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:40000])
    rig.run(1.0)
    before = len(rig.wire.audio)
    rig.clock.now += 0.7
    rig.playout.tick(rig.clock.now, rig.clock.now, 34)
    assert len(rig.wire.audio) - before == 2400  # the lead of 0.3 s
    assert rig.playout.lead_s() == pytest.approx(0.3)
    assert rig.playout.stats.stalls == 1
    assert rig.playout.stats.stall_s == pytest.approx(0.42, abs=0.03)
    assert rig.playout.stats.underruns == 0


def test_a_closed_playout_takes_and_sends_nothing() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:16000])
    rig.playout.mark("end")
    rig.run(0.1)
    assert rig.playout.close() == 800
    assert rig.ended == [MarkEvent("end", 16000, Outcome.CLEARED)]
    count = len(rig.wire.log)
    rig.run(0.5)
    rig.playout.end_utterance()
    assert rig.playout.clear() == rig.playout.close() == rig.playout.heard_samples() == 800
    assert not rig.playout.busy
    with pytest.raises(LegClosed):
        rig.playout.play(SPEECH[:160])
    with pytest.raises(LegClosed):
        rig.playout.mark("late")
    assert len(rig.wire.log) == count


def test_ticks_are_asked_for_when_needed() -> None:
    rig = Rig()
    rig.playout.play(SPEECH[:100])
    assert rig.busy == 0
    rig.playout.play(SPEECH[100:8000])
    assert rig.busy == 1
    assert rig.playout.tick(rig.clock.now, rig.clock.now)
    rig.playout.clear()
    assert not rig.playout.tick(rig.clock.now, rig.clock.now)
    rig.playout.mark("now")
    assert rig.busy == 2


# Peers without a buffer: our ticks are the clock


def test_a_peer_without_a_buffer_gets_one_frame_each_tick_and_silence_between() -> None:
    rig = Rig(RTP)
    assert rig.playout.busy
    rig.run(0.1)
    rig.playout.play(SPEECH[:1600])
    rig.playout.end_utterance()
    rig.run(0.4)
    assert rig.wire.sizes == [160] * 25
    silence = b"\xff" * 160
    assert rig.wire.audio == silence * 5 + SPEECH[:1600] + silence * 10
    assert rig.playout.stats.silence_frames == 15
    assert rig.playout.stats.underruns == 0
    assert rig.playout.heard_samples() == rig.playout.sent_samples == 1600


def test_a_peer_without_a_buffer_gets_no_burst_after_a_stall() -> None:
    rig = Rig(RTP)
    rig.playout.play(SPEECH[:8000])
    rig.run(0.1)
    before = len(rig.wire.log)
    rig.clock.now += 0.16
    rig.playout.tick(rig.clock.now, rig.clock.now, 7)
    assert len(rig.wire.log) == before + 1
    assert rig.playout.stats.stalls == 1
    assert rig.playout.stats.stall_s == pytest.approx(0.14)


def test_a_cut_is_faded_where_we_own_the_clock() -> None:
    rig = Rig(RTP)
    tone = np.cos(np.arange(8000) * 2 * np.pi * 300 / 8000).astype(np.float32) * 0.5
    rig.playout.play(pcm.encode(tone, "mulaw"))
    rig.run(0.1)
    before = len(rig.wire.audio)
    rig.playout.clear()
    rig.run(0.1)
    heard = pcm.decode(rig.wire.audio, "mulaw")
    after = heard[before:]
    assert len(after) == 800
    assert np.abs(after[:40]).max() > 0.2
    assert not after[80:].any()
    steepest = 0.5 * 2 * np.pi * 300 / 8000
    assert np.abs(np.diff(heard[before - 40 :])).max() < steepest * 1.2  # a hard cut here jumps by 0.5


def test_speech_after_being_dry_is_faded_in_where_we_own_the_clock() -> None:
    rig = Rig(RTP)
    loud = pcm.encode(np.full(160, 0.5, np.float32), "mulaw")
    rig.playout.play(loud)
    rig.run(0.1)
    assert rig.playout.stats.underruns == 1
    assert rig.playout.stats.underrun_s == pytest.approx(0.08)
    rig.playout.play(loud)
    rig.run(0.02)
    resumed = pcm.decode(rig.wire.audio[-160:], "mulaw")
    assert abs(resumed[0]) < 0.01
    assert resumed[-1] == pytest.approx(0.5, abs=0.02)


def test_lead_frames_are_caught_up_where_the_profile_allows_some() -> None:
    rig = Rig(dataclasses.replace(RTP, lead_s=0.04))
    rig.playout.play(SPEECH[:8000])
    rig.run(0.1)
    rig.clock.now += 0.16
    rig.playout.tick(rig.clock.now, rig.clock.now, 7)
    assert len(rig.wire.log) == 5 + 3
