from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.playback import PlaybackClock


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_plays_in_real_time_from_the_first_audio() -> None:
    clock = Clock()
    playback = PlaybackClock(8000, clock)
    assert playback.heard() == 0
    clock.now += 10
    assert playback.sent(8000) == 0.0
    assert playback.lead() == 1.0
    clock.now += 0.25
    assert playback.heard() == 2000
    assert playback.lead() == 0.75
    clock.now += 10
    assert playback.heard() == 8000


def test_a_dry_listener_starts_again_and_the_gap_is_told() -> None:
    clock = Clock()
    playback = PlaybackClock(8000, clock)
    playback.sent(800)
    clock.now += 0.6
    assert abs(playback.sent(800) - 0.5) < 1e-9
    assert playback.heard() == 800
    clock.now += 0.05
    assert abs(playback.heard() - 1200) <= 1


def test_reports_win_over_the_estimate() -> None:
    clock = Clock()
    playback = PlaybackClock(8000, clock)
    playback.sent(16000)
    clock.now += 1.0
    playback.reported(4000)  # the client started half a second late
    assert playback.heard() == 4000
    clock.now += 0.5
    assert playback.heard() == 8000
    playback.reported(1000)  # an old report
    assert playback.heard() == 8000
    playback.reported(10**9)
    assert playback.heard() == 16000


def test_a_client_that_takes_a_file_hears_no_gaps() -> None:
    clock = Clock()
    playback = PlaybackClock(8000, clock)
    for _ in range(5):
        assert playback.sent(8000) == 0.0
        clock.now += 0.01
        playback.reported(playback.sent_samples)
        clock.now += 0.5


@given(st.lists(st.tuples(st.sampled_from(["sent", "wait", "report"]), st.integers(0, 20_000)), max_size=60))
def test_heard_never_goes_back_past_a_report_nor_beyond_what_was_sent(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    playback = PlaybackClock(8000, clock)
    reported = 0
    for what, n in steps:
        if what == "sent":
            assert playback.sent(n) >= 0
        elif what == "wait":
            clock.now += n / 4000
        else:
            playback.reported(n)
            reported = max(reported, min(n, playback.sent_samples))
        assert reported <= playback.heard() <= playback.sent_samples
        assert playback.lead() >= 0
