"""What each peer wants of a leg: encoding, frames, messages, how far ahead, marks and clears.

Peers with a buffer of their own get a bounded lead of 200-400 ms: less, and a stall of ours is a hole in a
word; more, and marks come late, a barge-in leaves speech behind and "heard" is wrong. Peers without one get a
frame each 20 ms (reference, telephony 4.1 and 6).

``TWILIO`` is driven end to end by ``telephony.media_streams``. ``TELNYX``, ``PLIVO``, ``SIGNALWIRE`` and
``EXOTEL`` hold what those vendors document of pacing; no driver is wired to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from telephony.dsp import pcm

__all__ = ["EXOTEL", "PLIVO", "PROFILES", "SIGNALWIRE", "TELNYX", "TWILIO", "Profile"]


@dataclass(frozen=True)
class Profile:
    """Pacing of one kind of peer.

    Attributes:
        name: the peer.
        encoding: ``mulaw``, ``alaw`` or ``pcm_s16le`` (mono), as in ``telephony.dsp.pcm``.
        rate: samples per second.
        frame_ms: the unit of audio; nothing but whole frames is sent.
        message_frames: frames per message in the steady state; fewer only while the lead is low.
        max_message_frames: most frames in one message (a first burst may be one large message).
        lead_s: seconds sent ahead of playout; 0 for a peer that plays what comes when it comes.
        first_burst_s: lead allowed at the start of an utterance.
        queue_s: seconds of audio held back here; more is refused.
        owns_clock: the peer has no buffer and our ticks are the playout clock.
        needs_silence: silence is sent whenever there is no speech.
        has_marks: the peer confirms named points.
        has_clear: the peer empties its buffer on request.
        clear_returns_marks: pending marks come back on a clear, and must not be taken for heard.
        mark_gap_s: least seconds between two marks (5 a second).
        mark_timeout_s: seconds past the queued audio after which an unanswered mark is given up.
        remote_buffer_s: what the peer's buffer is documented to hold; ``None`` where it is not.
        fade_ms: fade when we own the playout clock and cut or resume.
    """

    name: str
    encoding: str = "mulaw"
    rate: int = 8000
    frame_ms: int = 20
    message_frames: int = 1
    max_message_frames: int = 1
    lead_s: float = 0.0
    first_burst_s: float = 0.0
    queue_s: float = 5.0
    owns_clock: bool = False
    needs_silence: bool = False
    has_marks: bool = True
    has_clear: bool = True
    clear_returns_marks: bool = True
    mark_gap_s: float = 0.2
    mark_timeout_s: float = 2.0
    remote_buffer_s: float | None = None
    fade_ms: float = 10.0

    def __post_init__(self) -> None:
        if self.rate * self.frame_ms % 1000:
            raise ValueError("a frame must be a whole number of samples")
        if not 1 <= self.message_frames <= self.max_message_frames:
            raise ValueError("message_frames must be between 1 and max_message_frames")
        if (
            not self.owns_clock
            and not self.message_frames * self.frame_s <= self.lead_s <= self.first_burst_s
        ):
            raise ValueError("a peer with a buffer needs a lead of at least one message")
        if self.remote_buffer_s is not None and self.first_burst_s > self.remote_buffer_s:
            raise ValueError("the lead must fit in the peer's buffer")
        if self.queue_s < self.message_frames * self.frame_s:
            raise ValueError("the queue must hold at least one message")

    @cached_property
    def frame_s(self) -> float:
        """Seconds of a frame."""
        return self.frame_ms / 1000

    @cached_property
    def frame_samples(self) -> int:
        """Samples of a frame."""
        return self.rate * self.frame_ms // 1000

    @cached_property
    def width(self) -> int:
        """Bytes of a sample."""
        return pcm.sample_bytes(self.encoding)

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        return self.frame_samples * self.width

    @cached_property
    def silence(self) -> bytes:
        """One frame of digital silence."""
        return pcm.silence(self.encoding, self.frame_samples)


# Buffer depth undocumented; messages of any length (reference 1.1). 100 ms messages cost a third of 20 ms
# ones (8), which is what lets one core carry a thousand calls; between two the lead never falls below 240 ms.
TWILIO = Profile(
    name="twilio",
    message_frames=5,
    max_message_frames=20,
    lead_s=0.34,
    first_burst_s=0.4,
)

# RTP mode: 20 ms to 30 s a message (reference 1.2).
TELNYX = Profile(
    name="telnyx",
    message_frames=2,
    max_message_frames=20,
    lead_s=0.3,
    first_burst_s=0.4,
)

# Remote buffer about 40 s, but its confirmations then come too late (reference 1.3, bolna PR621).
PLIVO = Profile(
    name="plivo",
    message_frames=2,
    max_message_frames=20,
    lead_s=0.3,
    first_burst_s=0.4,
    remote_buffer_s=40.0,
    clear_returns_marks=False,
)

# L16@24000h and L16@16000h are chosen in the document that opens the stream (reference 1.5).
SIGNALWIRE = Profile(
    name="signalwire",
    message_frames=2,
    max_message_frames=20,
    lead_s=0.3,
    first_burst_s=0.4,
)

# 16-bit little-endian, at least 3,200 bytes (100 ms at 20 ms frames: 10 x 320) and at most 100 kB, always a
# multiple of 320 bytes (reference 1.6).
EXOTEL = Profile(
    name="exotel",
    encoding="pcm_s16le",
    message_frames=10,
    max_message_frames=20,
    lead_s=0.4,
    first_burst_s=0.4,
)

PROFILES = {profile.name: profile for profile in (TWILIO, TELNYX, PLIVO, SIGNALWIRE, EXOTEL)}
