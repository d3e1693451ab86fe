from __future__ import annotations

import dataclasses

import pytest

from telephony.profile import EXOTEL, PROFILES, TWILIO, Profile


def test_twilio_is_mulaw_in_frames_of_160_bytes() -> None:
    assert (TWILIO.frame_samples, TWILIO.frame_bytes, TWILIO.width) == (160, 160, 1)
    assert TWILIO.silence == b"\xff" * 160


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_leads_are_between_200_and_400_ms(profile: Profile) -> None:
    assert 0.2 <= profile.lead_s <= profile.first_burst_s <= 0.4
    assert profile.mark_gap_s >= 0.2


def test_exotel_messages_are_between_3200_and_100000_bytes_and_multiples_of_320() -> None:
    assert EXOTEL.message_frames * EXOTEL.frame_bytes >= 3200
    assert EXOTEL.max_message_frames * EXOTEL.frame_bytes <= 100_000
    assert EXOTEL.frame_bytes % 320 == 0


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 22050, "frame_ms": 10},
        {"message_frames": 0},
        {"message_frames": 30},
        {"lead_s": 0.01},
        {"lead_s": 0.5},
        {"remote_buffer_s": 0.1},
        {"queue_s": 0.01},
    ],
)
def test_profiles_that_cannot_work_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"frame|message|lead|queue"):
        dataclasses.replace(TWILIO, **change)  # type: ignore[arg-type]


def test_a_peer_without_a_buffer_needs_no_lead() -> None:
    profile = Profile("rtp", owns_clock=True, needs_silence=True, has_marks=False, has_clear=False)
    assert profile.lead_s == 0.0
