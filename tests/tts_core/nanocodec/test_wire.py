"""The messages between the service and its processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.child.cases import feed
from tts_core.child.failure import Failed
from tts_core.child.frames import Reader
from tts_core.nanocodec import wire

ids = st.integers(0, 2**32 - 1)
messages = st.one_of(
    st.builds(wire.Configure, st.text(max_size=9), st.text(max_size=9), st.text(), st.text(), ids),
    st.just(wire.Ready()),
    st.builds(wire.Codes, ids, ids),
    st.builds(wire.Samples, ids, ids),
    st.builds(wire.Close, ids),
    st.builds(wire.Step, ids, st.floats(0, 9)),
    st.builds(Failed, ids, st.text(max_size=9), st.text(), st.none() | st.text()),
)


@given(messages, st.binary(max_size=99))
def test_every_message_arrives_as_it_was(message: wire.Message, payload: bytes) -> None:
    stream = b"".join(wire.LANGUAGE.encode(message, payload))
    ((got, beside),) = feed(Reader(wire.LANGUAGE), stream, [50])
    assert (got, bytes(beside)) == (message, payload)
