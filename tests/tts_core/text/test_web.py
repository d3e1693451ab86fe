"""Names of the net."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.normaliser import normalise_text
from tts_core.text.web import name, url, word


@given(st.from_regex(r"[a-z]{3,8}a[.]?[a-z]{2,6}o", fullmatch=True), st.sampled_from(["com", "org", "co.uk"]))
def test_email_and_host(local: str, tld: str) -> None:
    host = f"example.{tld}"
    assert normalise_text(f"Write to {local}@{host}.") == f"Write to {name(local)} at {name(host)}."
    for written in (f"https://{host}/", f"www.{host}", f"https://www.{host}"):
        assert normalise_text(f"See {written}.") == f"See {name(host)}."


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("https://example.com/a", "example dot com slash A."),
        ("https://example.com/?" + "q" * 40, "example dot com"),
        ("example.com:8080", "example dot com colon eight zero eight zero"),
    ],
)
def test_url(text: str, want: str) -> None:
    assert url(text) == want


def test_parts_that_are_no_words_are_spelled() -> None:
    assert [word(w) for w in ("html", "x", "uk", "mail")] == ["H T M L", "X", "U K", "mail"]


def test_punctuation_and_brackets_stay_outside() -> None:
    assert normalise_text("(see https://example.com/help), ok") == "(see example dot com slash help), ok"
    assert normalise_text("Is it 300.400.1.1?") != "Is it three dot"
