"""Which phonemes a word became."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tts_core.piper.words import Spoken, spoken, weight


def by_word(table: dict[str, str]) -> dict[str, list[str]]:
    return {word: list(phonemes) for word, phonemes in table.items()}


def said(text: str, sentences: list[str], table: dict[str, str]) -> list[tuple[str, str]]:
    flat = "".join(sentences)
    words = spoken(text, [list(s) for s in sentences], lambda w: list(table.get(w, "")))
    return [(text[w.start : w.end], flat[w.first : w.last].strip()) for w in words]


def test_one_for_one() -> None:
    table = {"Hello": "həlˈoʊ", "there.": "ðˈɛɹ", "You?": "jˈuː"}
    assert said("Hello there. You?", ["həlˈoʊ ðˈɛɹ.", "jˈuː?"], table) == [
        ("Hello", "həlˈoʊ"),
        ("there.", "ðˈɛɹ."),
        ("You?", "jˈuː?"),
    ]


def test_a_number_is_many_words() -> None:
    number = "fˈɔːɹ θˈaʊzənd tˈuːhˈʌndɹɪd fˈɪftiːn"
    table = {"It": "ɪt", "is": "ɪz", "4215": number, "now.": "nˈaʊ"}
    assert said("It is 4215 now.", [f"ɪt ɪz {number} nˈaʊ."], table) == [
        ("It", "ɪt"),
        ("is", "ɪz"),
        ("4215", number),
        ("now.", "nˈaʊ."),
    ]


def test_words_that_were_drawn_together_share() -> None:
    words = said("out of the way", ["ˈaʊɾəvðə wˈeɪ"], {"out": "ˈaʊt", "of": "ʌv", "the": "ðə", "way": "wˈeɪ"})
    assert [w for w, _ in words] == ["out", "of", "the", "way"]
    assert words[-1] == ("way", "wˈeɪ")


def test_what_is_not_heard_has_no_phonemes() -> None:
    assert said("A — b", ["eɪ bˈiː"], {"A": "eɪ", "b": "bˈiː"}) == [("A", "eɪ"), ("b", "bˈiː")]
    assert said("...", [], {}) == []
    assert said("a", [], {"a": "a"}) == []
    assert weight(list("ˈa, ː")) == 1


@given(
    st.lists(st.tuples(st.text("abc", min_size=1, max_size=6), st.text("aeiouˈ ,", max_size=8)), max_size=10)
)
def test_words_are_in_order_and_cover_every_sound(pairs: list[tuple[str, str]]) -> None:
    """Whatever the words became: no overlap, no gap, nothing but the words of the text."""
    text = " ".join(word for word, _ in pairs)
    alone = {word: list(phonemes) for word, phonemes in pairs}
    sentence = [p for word, _ in pairs for p in [*alone[word], " "]]
    words = spoken(text, [sentence], lambda w: alone[w])
    at = 0
    for word in words:
        assert isinstance(word, Spoken)
        assert word.first == at < word.last <= len(sentence)
        assert text[word.start : word.end] in alone
        at = word.last
    assert [w.start for w in words] == sorted({w.start for w in words})
    if weight(sentence):
        assert at == len(sentence)
