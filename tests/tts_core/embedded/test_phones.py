from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.embedded.phones import PAUSES, Pronouncer
from tts_core.embedded.voices import assets


def read(pronouncer: Pronouncer, text: str) -> str:
    return " ".join(w.phonemes for w in pronouncer.words(text))


def test_words_keep_their_text_and_phonemes(pronouncer: Pronouncer) -> None:
    words = pronouncer.words("Hello there, don't go.")
    assert [w.text for w in words] == ["Hello", "there,", "don't", "go."]
    assert " ".join(w.phonemes for w in words) == "həlˈO ðˈɛɹ, dˈOnt ɡˌO."
    assert [w.speech for w in words] == [5, 4, 5, 3]


def test_it_reads_as_the_package_reads_one_sentence(pronouncer: Pronouncer) -> None:
    from hibari.g2p import G2P

    for text in ("Your total is fifty dollars, isn't it?", "She sells sea shells by the sea shore."):
        assert read(pronouncer, text) == G2P()(text)


@pytest.mark.parametrize("text", ["I said no.", "The answer is no. Sorry.", "He sat in the Sun."])
def test_a_word_at_the_end_of_a_sentence_is_no_abbreviation(pronouncer: Pronouncer, text: str) -> None:
    phonemes = read(pronouncer, text)
    assert "nˈʌmbəɹ" not in phonemes
    assert "sˈʌndˌA" not in phonemes


def test_abbreviations_are_still_read(pronouncer: Pronouncer) -> None:
    assert "nˈʌmbəɹ" in read(pronouncer, "It is no. 5 on the list.")
    assert "əpˈɑɹtmənt" in read(pronouncer, "Go to Apt. four.")


def test_inline_phonemes_are_text_not_commands(pronouncer: Pronouncer) -> None:
    assert "ZZZ" not in read(pronouncer, "[word](/ZZZ/)")


@pytest.mark.parametrize("text", ["1" * 200, "9," * 30 + "9", "1,000" * 20, "٣٤٥" * 9, "0" * 16 + ".5"])
def test_numbers_without_a_name_are_read_digit_by_digit(pronouncer: Pronouncer, text: str) -> None:
    assert pronouncer.words(f"It is {text} now.")[-1].text.startswith("now")


def test_a_word_that_breaks_the_package_costs_only_itself(
    pronouncer: Pronouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pronouncer._g2p.phonemize_tokens

    def fragile(tokens: Any) -> Any:
        if any(t.text == "boom" for t in tokens):
            raise IndexError
        return real(tokens)

    monkeypatch.setattr(pronouncer._g2p, "phonemize_tokens", fragile)
    assert [w.text for w in pronouncer.words("one boom two")] == ["one", "two"]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_gives_words_that_can_be_spoken_or_none(pronouncer: Pronouncer, text: str) -> None:
    for word in pronouncer.words(text):
        assert word.phonemes == word.phonemes.strip() != ""


def test_british_rules() -> None:
    assert read(Pronouncer(assets(), british=True), "Hello there.") == "həlˈQ ðˈɛː."


def test_pauses_are_no_speech() -> None:
    assert not any(c.isalnum() for c in PAUSES)
