"""Claims never overlap and plain text is recognised as such."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text.prepass import claims, is_plain

_TEXT = st.text(
    st.one_of(st.sampled_from(list("0123456789 .,-/:$%#@+()'\"&ADMPStrx")), st.characters()), max_size=80
)


@settings(max_examples=300, deadline=None)
@given(_TEXT)
def test_claims_are_ordered_and_apart(text: str) -> None:
    folded, found = claims(text)
    assert len(folded) == len(text)
    at = 0
    for c in found:
        assert at <= c.start < c.end <= len(text)
        at = c.end


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(list("abcdeIAtsorSD .,'!?")), max_size=60))
def test_plain_text_has_no_claims(text: str) -> None:
    if is_plain(text):
        assert claims(text)[1] == []


def test_plain() -> None:
    assert is_plain("Thanks for calling, how can I help you today?")
    for text in ("5", "Dr. No", "FBI", "a/b", "e.g. this", "Plan A", "I said no.", "Part I", "wait -- what"):
        assert not is_plain(text)
