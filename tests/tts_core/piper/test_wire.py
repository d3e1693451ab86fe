from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.child.cases import feed
from tts_core.child.frames import Reader
from tts_core.piper import wire

MESSAGES = st.one_of(
    st.builds(
        wire.Configure,
        voices=st.lists(
            st.builds(
                wire.VoiceFile,
                path=st.text(),
                ids=st.lists(st.tuples(st.text(), st.none() | st.integers(0, 999))).map(tuple),
            )
        ).map(tuple),
        rate=st.integers(8000, 48000),
        loaded=st.integers(1, 99),
    ),
    st.builds(wire.Ready, audio_s=st.floats(0, 9), busy_s=st.floats(0, 9)),
    st.builds(wire.Cancel, id=st.integers(0, 9)),
)


@given(message=MESSAGES)
def test_every_message_arrives_as_it_was(message: wire.Message) -> None:
    ((got, _),) = feed(Reader(wire.LANGUAGE), b"".join(wire.LANGUAGE.encode(message)), [50])
    assert got == message
