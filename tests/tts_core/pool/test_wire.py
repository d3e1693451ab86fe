from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.child.cases import feed
from tests.tts_core.pool import toy
from tts_core.child.frames import Reader
from tts_core.pool.wire import Audio, Cancel, Done, Ready, Speak

U32 = st.integers(0, 2**32 - 1)
SECONDS = st.floats(0, 9)
MESSAGES = st.one_of(
    st.builds(
        Speak,
        id=U32,
        text=st.text(max_size=50),
        voice=st.text(max_size=9),
        speed=st.floats(0.5, 2),
        seed=st.none() | st.integers(0, 2**64 - 1),
    ),
    st.builds(Cancel, id=U32),
    st.builds(Ready, audio_s=SECONDS, busy_s=SECONDS),
    st.builds(
        Audio,
        id=U32,
        start=U32,
        last=st.booleans(),
        marks=st.lists(st.tuples(U32, U32, U32, U32), max_size=4).map(tuple),
    ),
    st.builds(Done, id=U32, audio_s=SECONDS, busy_s=SECONDS),
)


@given(message=MESSAGES, payload=st.binary(max_size=99), sizes=st.lists(st.integers(1, 50), min_size=1))
def test_every_message_arrives_as_it_was(message: toy.Message, payload: bytes, sizes: list[int]) -> None:
    stream = b"".join(toy.LANGUAGE.encode(message, payload))
    ((got, beside),) = feed(Reader(toy.LANGUAGE), stream, sizes)
    assert (got, bytes(beside)) == (message, payload)
