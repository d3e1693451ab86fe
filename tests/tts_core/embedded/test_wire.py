from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.child.cases import feed
from tts_core.child.failure import Failed
from tts_core.child.frames import Reader
from tts_core.embedded import wire
from tts_core.embedded.trim import Trim

u32 = st.integers(0, 2**32 - 1)
messages = st.one_of(
    st.builds(
        wire.Speak,
        id=u32,
        text=st.text(max_size=50),
        voice=st.text(max_size=9),
        speed=st.floats(0.5, 2),
        seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    ),
    st.builds(wire.Cancel, id=u32),
    st.builds(wire.Ready, audio_s=st.floats(0, 9), busy_s=st.floats(0, 9)),
    st.builds(
        wire.Audio,
        id=u32,
        start=u32,
        last=st.booleans(),
        marks=st.lists(st.tuples(u32, u32, u32, u32), max_size=4).map(tuple),
    ),
    st.builds(wire.Done, id=u32, audio_s=st.floats(0, 9), busy_s=st.floats(0, 9)),
    st.builds(Failed, id=u32, code=st.text(max_size=9), message=st.text(max_size=50)),
    st.builds(
        wire.Configure,
        voices=st.lists(st.builds(wire.VoiceFile, st.text(), st.text(), st.text(), st.booleans())).map(tuple),
        trim=st.just(Trim(lead_ms=3.0)),
        gain=st.floats(0, 4),
        durations=st.booleans(),
    ),
)


@given(message=messages, payload=st.binary(max_size=99))
def test_every_message_arrives_as_it_was(message: wire.Message, payload: bytes) -> None:
    stream = b"".join(wire.LANGUAGE.encode(message, payload))
    ((got, beside),) = feed(Reader(wire.LANGUAGE), stream, [50])
    assert (got, bytes(beside)) == (message, payload)
