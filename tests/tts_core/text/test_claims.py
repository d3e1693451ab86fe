"""Rules and their helpers."""

from __future__ import annotations

import re

from tts_core.text.claims import NUM, Claim, alternatives, at_end, end_without_stop, rule


def test_rule_holds_its_needs() -> None:
    r = rule("x", r"x+", lambda m: m.group(0), "x0")
    assert r.needs == {"x", "0"} and r.pattern.pattern == "x+"
    assert Claim(0, 1, "a").rest is False


def test_alternatives_prefer_the_longest_and_escape() -> None:
    assert re.match(alternatives(["a", "a.b", "ab"]), "a.b").group(0) == "a.b"  # type: ignore[union-attr]


def test_final_stop_stays_outside() -> None:
    for text, end in (("Inc.", 3), ("Inc.'", 3), ("Inc. is", 4)):
        m = re.match(r"Inc\.", text)
        assert m is not None
        assert end_without_stop(m) == end
        assert at_end(text, 4) == (end == 3)


def test_written_numbers() -> None:
    for text, want in (
        ("1,234.5", "1,234.5"),
        ("1,2", "1"),
        (".5", ".5"),
        ("12345", "12345"),
        ("1.", "1"),
        ("1,2345", "1"),
    ):
        m = re.match(NUM, text)
        assert m is not None and m.group(0) == want
