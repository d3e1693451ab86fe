"""Phone numbers and ids: every figure, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.identifiers import STATES
from tts_core.text.normaliser import normalise_text
from tts_core.text.numerals import ONES

_D = st.text("0123456789", min_size=4, max_size=4)


def figures(spoken: str) -> str:
    words = spoken.replace(",", " ").replace(".", " ").replace("eight hundred", "eight zero zero").split()
    return "".join(str(ONES.index(w)) for w in words if w in ONES[:10])


@given(st.integers(200, 799), st.integers(200, 999), _D, st.sampled_from(
    ["({}) {}-{}", "{}-{}-{}", "{}.{}.{}", "{} {} {}", "+1 {}-{}-{}", "+1 ({}) {}-{}", "1-{}-{}-{}",
     "+1{}{}{}"]))  # fmt: skip
def test_phone_numbers_keep_every_figure(area: int, exchange: int, line: str, form: str) -> None:
    written = form.format(area, exchange, line)
    want = "".join(c for c in written if c.isdigit())
    assert figures(normalise_text(f"Call {written} today.")) == want
    assert figures(normalise_text(written)) == want


@given(
    st.sampled_from(
        [
            "Your order {} ships",
            "account {}",
            "code: {}",
            "confirmation number {} is set",
            "PIN is {}",
            "ID {}",
        ]
    ),
    st.text("0123456789", min_size=4, max_size=16),
)
def test_cued_digit_strings_are_read_one_by_one(form: str, digits: str) -> None:
    assert figures(normalise_text(form.format(digits))) == digits


@given(st.sampled_from(["card ending in {}", "account ends with {}", "the last four digits are {}"]), _D)
def test_endings(form: str, digits: str) -> None:
    assert figures(normalise_text(form.format(digits)).replace("last four", "last")) == digits


@given(st.sampled_from(sorted(STATES)), st.integers(501, 99950), st.one_of(st.none(), _D))
def test_zip(state: str, code: int, four: str | None) -> None:
    written = f"{state} {code:05}" + (f"-{four}" if four else "")
    assert figures(normalise_text(f"Springfield, {written}.")) == f"{code:05}{four or ''}"


@given(st.from_regex(r"[A-Z]{2,4}-?[0-9]{4,8}", fullmatch=True))
def test_hash_ids(token: str) -> None:
    spoken = normalise_text(f"Ticket #{token}, please.")
    assert spoken.startswith("Ticket number ")
    assert figures(spoken) == "".join(c for c in token if c.isdigit())


@pytest.mark.parametrize("text", ["order 12 pizzas", "case 5", "account for 30 percent", "order 1500 units"])
def test_counts_after_weak_cues_stay_numbers(text: str) -> None:
    assert any(w in normalise_text(text) for w in ("twelve", "five", "thirty", "thousand"))
